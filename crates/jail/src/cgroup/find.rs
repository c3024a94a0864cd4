//! Where this process may make control groups.

use super::Group;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which controllers a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// For a memory limit.
    pub memory: bool,
    /// For a limit of processor time.
    pub cpu: bool,
}

/// The mounted hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Where v2 is mounted.
    pub v2: Option<PathBuf>,
    /// Where the v1 controllers are mounted.
    pub v1: Vec<(String, PathBuf)>,
}

impl Hierarchies {
    /// Reads them from `/proc/self/mountinfo` (proc(5)).
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(mount_point) = left.split(' ').nth(4) else { continue };
            let mut right = right.split(' ');
            match (right.next(), right.nth(1)) {
                (Some("cgroup2"), _) => found.v2 = Some(mount_point.into()),
                (Some("cgroup"), Some(options)) => {
                    for controller in options.split(',').filter(|option| ["memory", "cpu"].contains(option)) {
                        found.v1.push((controller.to_owned(), mount_point.into()));
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn v1_mount(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }
}

/// The group for a run, or the reason why there can be none. Makes nothing.
pub fn find(hierarchies: &Hierarchies, wanted: Wanted, uid: u32, run: &str) -> Result<Group, String> {
    let mut reasons = Vec::new();
    if let Some(mount) = &hierarchies.v2 {
        match v2_base(mount, wanted, uid) {
            Ok(base) => return Ok(Group::V2 { path: base.join(run) }),
            Err(reason) => reasons.push(reason),
        }
    }
    let one = |name: &str, needed: bool| -> Result<Option<PathBuf>, String> {
        if !needed {
            return Ok(None);
        }
        let mount = hierarchies.v1_mount(name).ok_or(format!("no cgroup v1 controller {name} is mounted"))?;
        v1_base(mount, uid).map(|base| Some(base.join(run)))
    };
    match one("memory", wanted.memory).and_then(|memory| Ok((memory, one("cpu", wanted.cpu)?))) {
        Ok((memory, cpu)) => Ok(Group::V1 { memory, cpu }),
        Err(reason) => {
            reasons.push(reason);
            Err(reasons.join("; "))
        }
    }
}

fn v1_base(mount: &Path, uid: u32) -> Result<PathBuf, String> {
    let shared = mount.join("nexus");
    if uid == 0 {
        return may_write(if shared.exists() { &shared } else { mount }, uid).map(|()| shared);
    }
    let own = shared.join(uid.to_string());
    may_write(&own, uid).map(|()| own)
}

fn v2_base(mount: &Path, wanted: Wanted, uid: u32) -> Result<PathBuf, String> {
    let base = if uid == 0 { mount.join("nexus") } else { mount.join("nexus").join(uid.to_string()) };
    // Root hands controllers down itself when the group is made: `nexus` has those that earlier runs needed. A user's
    // folder must have been given them.
    let giver = if uid == 0 { mount } else { &base };
    let listed = std::fs::read_to_string(giver.join("cgroup.controllers"))
        .map_err(|error| format!("{}: {error}", giver.display()))?;
    for (name, needed) in [("memory", wanted.memory), ("cpu", wanted.cpu)] {
        if needed && !listed.split_whitespace().any(|controller| controller == name) {
            return Err(format!("cgroup v2 at {} has no {name} controller", giver.display()));
        }
    }
    may_write(if uid == 0 && !base.exists() { mount } else { &base }, uid)?;
    Ok(base)
}

/// Looks at the owner, so that asking changes nothing.
fn may_write(folder: &Path, uid: u32) -> Result<(), String> {
    let meta = std::fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if meta.uid() == uid { Ok(()) } else { Err(format!("{} belongs to user {}", folder.display(), meta.uid())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
32 30 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 30 0:31 / /proc rw - proc proc rw
";

    #[test]
    fn a_hybrid_host_has_both() {
        let found = Hierarchies::parse(HYBRID);
        assert_eq!(found.v2, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(found.v1_mount("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(found.v1_mount("cpu"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
    }

    #[test]
    fn root_may_use_a_controller_that_no_earlier_run_needed_and_a_user_only_those_it_was_given() {
        let mount = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let folder = |path: &Path, controllers: &str| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("cgroup.controllers"), controllers).unwrap();
        };
        folder(mount.path(), "memory cpu");
        folder(&mount.path().join("nexus"), "memory");
        folder(&mount.path().join("nexus/1000"), "memory");
        let cpu = Wanted { memory: false, cpu: true };
        // Files of an ordinary user are not root's, whoever else has all that is asked for.
        let root = v2_base(mount.path(), cpu, 0);
        if own == 0 {
            assert_eq!(root, Ok(mount.path().join("nexus")));
        } else {
            assert!(root.unwrap_err().contains("belongs to"));
        }
        assert!(v2_base(mount.path(), cpu, 1000).unwrap_err().contains("no cpu controller"));
    }

    #[test]
    fn a_host_without_control_groups_says_so() {
        let wanted = Wanted { memory: true, cpu: false };
        let reason = find(&Hierarchies::default(), wanted, 1000, "x").unwrap_err();
        assert!(reason.contains("memory"), "{reason}");
        let nothing = Wanted { memory: false, cpu: false };
        assert_eq!(find(&Hierarchies::default(), nothing, 1000, "x"), Ok(Group::V1 { memory: None, cpu: None }));
    }
}
