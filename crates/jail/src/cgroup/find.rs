//! Finds the directory in which this process may make control groups.

use super::group::Group;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Controllers that a run needs.
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
    /// Mount point of v2.
    pub v2: Option<PathBuf>,
    /// Mount points of the v1 controllers.
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

    pub(super) fn v1_mount(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }
}

/// The groups of a process, as paths below the mount of their hierarchy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnGroups {
    v2: Option<PathBuf>,
    v1: Vec<(String, PathBuf)>,
}

impl OwnGroups {
    /// Reads those of this process from `/proc/self/cgroup` (cgroups(7)).
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/self/cgroup")?))
    }

    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
            // A group outside of this process's cgroup namespace is `/..`, and has no name here.
            let Some(path) = path.strip_prefix('/').filter(|path| !path.starts_with("..")) else { continue };
            if number == "0" && names.is_empty() {
                found.v2 = Some(path.into());
            }
            found.v1.extend(names.split(',').map(|name| (name.to_owned(), path.into())));
        }
        found
    }

    fn v1_of(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }
}

/// The group for a run, or the reason why there can be none. Makes nothing.
pub fn find(hierarchies: &Hierarchies, own: &OwnGroups, wanted: Wanted, uid: u32, run: &str) -> Result<Group, String> {
    let mut reasons = Vec::new();
    if let Some(mount) = &hierarchies.v2 {
        let delegated = || own.v2.as_ref().and_then(|path| v2_delegated(mount, path, wanted, uid));
        match v2_base(mount, wanted, uid).or_else(|reason| delegated().ok_or(reason)) {
            Ok(base) => return Ok(Group::V2 { path: base.join(run) }),
            Err(reason) => reasons.push(reason),
        }
    }
    let one = |name: &str, needed: bool| -> Result<Option<PathBuf>, String> {
        if !needed {
            return Ok(None);
        }
        let mount = hierarchies.v1_mount(name).ok_or(format!("no cgroup v1 controller {name} is mounted"))?;
        let delegated = || own.v1_of(name).and_then(|path| v1_delegated(mount, path, uid));
        v1_base(mount, uid).or_else(|reason| delegated().ok_or(reason)).map(|base| Some(base.join(run)))
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
    // directory must have been given them.
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

/// The caller's own group, where it was delegated to the caller.
fn v1_delegated(mount: &Path, own: &Path, uid: u32) -> Option<PathBuf> {
    let group = mount.join(own);
    (!own.as_os_str().is_empty() && is_delegated(&group, uid)).then_some(group)
}

/// The nearest group above the caller's processes that was delegated to the caller and can have groups with these
/// controllers: it hands them down already, or has no process of its own, so that it may begin to (cgroups(7)). With systemd
/// that is a slice of `user@UID.service`. The sandbox is put there from a group below the same one, which is the caller's
/// right.
fn v2_delegated(mount: &Path, own: &Path, wanted: Wanted, uid: u32) -> Option<PathBuf> {
    let named = own.ancestors().filter(|path| !path.as_os_str().is_empty());
    named.map(|path| mount.join(path)).find(|group| {
        let has_all = |file: &str| {
            let listed = std::fs::read_to_string(group.join(file)).unwrap_or_default();
            let has = |name: &str| listed.split_whitespace().any(|controller| controller == name);
            (!wanted.memory || has("memory")) && (!wanted.cpu || has("cpu"))
        };
        let has_no_process = || std::fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|all| all.is_empty());
        is_delegated(group, uid)
            && (has_all("cgroup.subtree_control") || has_all("cgroup.controllers") && has_no_process())
    })
}

/// Reports whether a group belongs to an ordinary user with the files that a delegation hands over.
fn is_delegated(group: &Path, uid: u32) -> bool {
    uid != 0 && [group, &group.join("cgroup.procs")].iter().all(|path| may_write(path, uid).is_ok())
}

/// Looks at the owner, so that asking changes nothing.
fn may_write(directory: &Path, uid: u32) -> Result<(), String> {
    let meta = std::fs::metadata(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    if meta.uid() == uid { Ok(()) } else { Err(format!("{} belongs to user {}", directory.display(), meta.uid())) }
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
        let directory = |path: &Path, controllers: &str| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("cgroup.controllers"), controllers).unwrap();
        };
        directory(mount.path(), "memory cpu");
        directory(&mount.path().join("nexus"), "memory");
        directory(&mount.path().join("nexus/1000"), "memory");
        let cpu = Wanted { memory: false, cpu: true };
        // Files of an ordinary user are not root's, even if another user has all that is asked for.
        let root = v2_base(mount.path(), cpu, 0);
        if own == 0 {
            assert_eq!(root, Ok(mount.path().join("nexus")));
        } else {
            assert!(root.unwrap_err().contains("belongs to"));
        }
        assert!(v2_base(mount.path(), cpu, 1000).unwrap_err().contains("no cpu controller"));
    }

    #[test]
    fn own_groups_are_read_by_controller() {
        let text =
            "9:name=systemd:/user\n4:memory:/a/b\n3:cpu,cpuacct:/c\n2:pids:/../../x\n0::/user.slice/x.scope\nodd\n";
        let own = OwnGroups::parse(text);
        assert_eq!(own.v2, Some("user.slice/x.scope".into()));
        assert_eq!((own.v1_of("memory"), own.v1_of("cpu")), (Some(Path::new("a/b")), Some(Path::new("c"))));
        assert_eq!(own.v1_of("pids"), None, "outside of the namespace");
    }

    /// Makes a group that belongs to this process's user.
    fn group(path: &Path, controllers: &str, handed_down: &str, processes: &str) {
        std::fs::create_dir_all(path).unwrap();
        for (file, text) in
            [("cgroup.controllers", controllers), ("cgroup.subtree_control", handed_down), ("cgroup.procs", processes)]
        {
            std::fs::write(path.join(file), text).unwrap();
        }
    }

    /// Gives the groups to a user that is not root, if this process may.
    fn given(mount: &Path) -> u32 {
        let own = rustix::process::geteuid().as_raw();
        if own != 0 {
            return own;
        }
        let mut all = vec![mount.to_owned()];
        while let Some(path) = all.pop() {
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            all.extend(std::fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
        }
        1234
    }

    #[test]
    fn the_nearest_delegated_group_with_the_controllers_is_used() {
        let mount = tempfile::tempdir().unwrap();
        let at = |name: &str| mount.path().join(name);
        group(&at("user.slice"), "cpu memory", "cpu memory", "");
        group(&at("user.slice/user.service"), "cpu memory", "memory", "");
        group(&at("user.slice/user.service/app.slice"), "memory", "memory", "");
        group(&at("user.slice/user.service/app.slice/x.scope"), "memory", "", "17\n");
        let uid = given(&at("user.slice/user.service"));
        let own = Path::new("user.slice/user.service/app.slice/x.scope");
        let memory = Wanted { memory: true, cpu: false };
        let found = |wanted| v2_delegated(mount.path(), own, wanted, uid);
        assert_eq!(
            found(memory),
            Some(at("user.slice/user.service/app.slice")),
            "a group with processes has no children"
        );
        assert_eq!(
            found(Wanted { memory: true, cpu: true }),
            Some(at("user.slice/user.service")),
            "empty, so it may begin"
        );
        assert_eq!(v2_delegated(mount.path(), own, memory, uid + 1), None, "another user's");
        assert_eq!(v2_delegated(mount.path(), own, memory, 0), None, "root has its own place");
        assert_eq!(v2_delegated(mount.path(), Path::new(""), memory, uid), None, "the root group is nobody's");
    }

    #[test]
    fn a_group_whose_member_list_is_not_the_users_is_not_delegated() {
        let mount = tempfile::tempdir().unwrap();
        let path = mount.path().join("own");
        group(&path, "", "", "17\n");
        let uid = given(mount.path());
        assert_eq!(v1_delegated(mount.path(), Path::new("own"), uid), Some(path.clone()));
        std::fs::remove_file(path.join("cgroup.procs")).unwrap();
        assert_eq!(v1_delegated(mount.path(), Path::new("own"), uid), None);
    }

    #[test]
    fn a_host_without_control_groups_says_so() {
        let wanted = Wanted { memory: true, cpu: false };
        let reason = find(&Hierarchies::default(), &OwnGroups::default(), wanted, 1000, "x").unwrap_err();
        assert!(reason.contains("memory"), "{reason}");
        let nothing = Wanted { memory: false, cpu: false };
        assert_eq!(
            find(&Hierarchies::default(), &OwnGroups::default(), nothing, 1000, "x"),
            Ok(Group::V1 { memory: None, cpu: None })
        );
    }
}
