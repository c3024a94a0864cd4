//! The system view of all sandboxes of a launcher, built once in a mount namespace of its own.
//!
//! ```text
//!  build: child in new mount and pid namespaces ─▶ system, /proc of no process ─▶ leaves the host's root ─▶ only its mount
//!         namespace stays, as a descriptor
//!  launch: launcher enters it ─▶ clone3 (copies its few mounts, not the host's) ─▶ launcher goes back
//! ```
//! A sandbox cloned from here never had the host's root in its mount namespace. What it inherits belongs to another
//! user namespace and is locked: not even its PID 1 could unmount or uncover it (mount_namespaces(7)).
//!
//! The `/proc` in the template is there because the kernel lets a user namespace mount its own only where it can see
//! one; it is of the builder's pid namespace, which has ended, so it shows no process at all.
//!
//! EtcMounts below `/etc` are the same for all sandboxes of a template. It is built with those that plans ask for, and a plan that
//! asks for others is launched without it: its sandbox would see their names.
//!
//! A template must not outlive the host that it shows. Changes of files and directories are seen through the mounts.
//! Other changes make it stale, and are looked for before every launch: another mount anywhere (mountinfo reports that through
//! poll(2), proc(5)), or another entry in a directory of which single entries are shown (its times).

use crate::clone::{Cloned, clone_process, exit_now, readable_until};
use crate::inside::etc::FROM_HOST;
use crate::inside::rootfs::{self, Root};
use crate::inside::system;
use crate::mount_targets::{below_root, ensure_place, show};
use crate::mounts;
use crate::request::targets;
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::Plan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Directories of the host of which the template shows single entries.
const WATCHED: &[&str] = &["/", "/etc", "/etc/ssl", "/etc/pki", "/etc/pki/tls", "/etc/pki/ca-trust"];
/// Times of a file system are coarse: a change this shortly after another may leave the same time behind.
const COARSE: Duration = Duration::from_millis(100);
/// Size of the file system for the synthesised files and the directories.
const BYTES: u64 = 16 << 20;

/// Time that a builder has. It is a process of nexus that runs nothing of a sandbox; a file system of the host can hold it.
const BUILT_WITHIN: Duration = Duration::from_secs(10);

/// A system view, ready to be cloned from.
#[derive(Debug)]
pub struct Template {
    namespace: OwnedFd,
    mountinfo: OwnedFd,
    links: Vec<PathBuf>,
    seen: Vec<Option<Times>>,
    /// Too young to tell the next change from the last one.
    is_young: bool,
    tops: BTreeSet<PathBuf>,
    places: EtcMounts,
}

/// EtcMounts below `/etc` with what is shown there: the target of a bind, and its source on the host.
pub type EtcMounts = BTreeSet<(PathBuf, PathBuf)>;

/// Returns the places below `/etc` that a plan asks for.
pub fn places_of(plan: &Plan) -> EtcMounts {
    let binds = plan.binds.iter().filter(|bind| is_below_etc(bind.target.as_path()));
    binds.map(|bind| (bind.target.as_path().to_owned(), bind.source.as_path().to_owned())).collect()
}

fn is_below_etc(target: &Path) -> bool {
    below_root(target).starts_with("etc")
}

#[derive(Debug, PartialEq, Eq)]
struct Times {
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Template {
    /// Builds one with these places from the host as it is now.
    pub fn build(faults: Faults, places: &EtcMounts) -> Result<Self, StepError> {
        faults.check(Step::Template)?;
        // Looked at before anything is built, so that what changes meanwhile counts as changed.
        let mountinfo = open_readable("/proc/self/mountinfo").at(Step::Template, "/proc/self/mountinfo")?;
        let links = links().at(Step::Template, "links of the host")?;
        let (seen, is_young) = inspect(&links).at(Step::Template, "directories of the host")?;
        let namespace = build_apart(faults, places, BUILT_WITHIN)?;
        Ok(Self { namespace, mountinfo, links, seen, is_young, tops: BTreeSet::new(), places: places.clone() })
    }

    /// Returns whether the template still shows the host.
    pub fn is_current(&self) -> io::Result<bool> {
        if self.is_young || mounts_changed(&self.mountinfo)? {
            return Ok(false);
        }
        Ok(inspect(&self.links)?.0 == self.seen)
    }

    /// Returns the places below `/etc` that it has.
    pub fn places(&self) -> &EtcMounts {
        &self.places
    }

    /// Returns whether a top directory that these targets need is still to be made.
    pub fn lacks_top(&self, targets: &[&Path]) -> bool {
        targets.iter().any(|target| !self.tops.contains(crate::mount_targets::top(below_root(target))))
    }

    /// Moves this process into it and makes the top directories that a plan's targets need. They are the only traces
    /// that one sandbox leaves for the next ones, and they are names of top directories of the host.
    pub fn enter(&mut self, targets: &[&Path]) -> Result<(), StepError> {
        move_into_link_name_space(rustix::fd::AsFd::as_fd(&self.namespace), Some(LinkNameSpaceType::Mount))
            .at(Step::Template, "entering the template")?;
        for target in targets {
            let top = crate::mount_targets::top(below_root(target));
            if self.tops.contains(top) {
                continue;
            }
            let place = Path::new("/").join(top);
            match rustix::fs::mkdir(&place, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(StepError::os(Step::Template, error, show(&place))),
            }
            self.tops.insert(top.to_owned());
        }
        Ok(())
    }
}

/// Returns whether a target can be had on a template: it cannot when it would have to be made in `/dev`, which all sandboxes
/// share.
pub fn fits(target: &Path) -> bool {
    !below_root(target).starts_with("dev")
}

/// Returns whether everything that a plan shows can be had on a template with its places.
#[must_use]
pub fn fits_plan(plan: &Plan) -> bool {
    // A template has the host's system.
    plan.image.is_none()
        && !is_below_etc(plan.workspace.target.as_path())
        && targets(plan).iter().all(|target| fits(target))
}

fn open_readable(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn mounts_changed(mountinfo: &OwnedFd) -> io::Result<bool> {
    let mut wait = [PollFd::new(mountinfo, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut wait, Some(&now)))?;
    Ok(wait[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
}

/// Returns the shown entries that are links: their targets may be replaced in a directory whose times are not watched.
/// (Another entry in the place of a link is seen in the times of its own directory.)
fn links() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in FROM_HOST.iter().map(|name| Path::new("/etc").join(name)) {
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => found.push(path),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn inspect(links: &[PathBuf]) -> io::Result<(Vec<Option<Times>>, bool)> {
    let since = SystemTime::now().checked_sub(COARSE).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut is_young = false;
    let mut seen = Vec::with_capacity(WATCHED.len() + links.len());
    let directories = WATCHED.iter().map(|directory| (Path::new(directory), true));
    for (path, is_directory) in directories.chain(links.iter().map(|link| (link.as_path(), false))) {
        seen.push(match std::fs::metadata(path) {
            Ok(meta) => {
                is_young |= is_directory && meta.modified()? > since;
                // Of what a link leads to only which one it is.
                let times = |seconds, nanoseconds| if is_directory { (seconds, nanoseconds) } else { (0, 0) };
                Some(Times {
                    inode: (meta.dev(), meta.ino()),
                    modified: times(meta.mtime(), meta.mtime_nsec()),
                    changed: times(meta.ctime(), meta.ctime_nsec()),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        });
    }
    Ok((seen, is_young))
}

/// The builder is a process of its own: the pid namespace of the template's `/proc` ends with it.
fn build_apart(faults: Faults, places: &EtcMounts, within: Duration) -> Result<OwnedFd, StepError> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(Step::Template, "pipe");
    let ((outcome, tell), (stay, held)) = (pipe()?, pipe()?);
    let namespaces = (libc::CLONE_NEWNS | libc::CLONE_NEWPID) as u64;
    let child = match clone_process(namespaces, None).at(Step::Template, "clone3")? {
        Cloned::Child => {
            drop((outcome, held));
            let build = std::panic::AssertUnwindSafe(|| builder(faults, places, tell, &stay));
            exit_now(std::panic::catch_unwind(build).unwrap_or(101));
        }
        Cloned::Parent(child) => child,
    };
    drop((tell, stay));
    let built = answer(&outcome, within).and_then(|text| match text.as_str() {
        "" => Err(StepError::new(Step::Template, "the builder ended without an answer")),
        BUILT => {
            let path = format!("/proc/{}/ns/mnt", child.pid.as_raw_nonzero());
            open_readable(&path).at(Step::Template, &path)
        }
        other => Err(parse(other)),
    });
    drop(held);
    // It has nothing to do any more, or does not come to its end.
    match (built, child.end().at(Step::Template, "the builder's end")) {
        (Ok(namespace), ended) => ended.map(|()| namespace),
        (Err(error), _) => Err(error),
    }
}

/// Reads what the builder says, up to its end of the pipe.
fn answer(outcome: &OwnedFd, within: Duration) -> Result<String, StepError> {
    let until = Instant::now() + within;
    let mut text = Vec::new();
    let mut piece = [0u8; 1024];
    loop {
        if !readable_until(outcome, until).at(Step::Template, "the builder's answer")? {
            let seconds = within.as_secs();
            let detail =
                format!("the system view was not built within {seconds} s: a file system of the host does not answer");
            return Err(StepError::new(Step::Template, detail));
        }
        let count = rustix::io::retry_on_intr(|| rustix::io::read(outcome, &mut piece));
        match count.at(Step::Template, "the builder's answer")? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

const BUILT: &str = "built";

fn builder(faults: Faults, places: &EtcMounts, tell: OwnedFd, stay: &OwnedFd) -> i32 {
    let answer = match build_here(faults, places) {
        Ok(()) => BUILT.to_owned(),
        Err(error) => format!("{}\n{}\n{}", error.step.name(), error.errno, error.detail),
    };
    let written = File::from(tell).write_all(answer.as_bytes());
    let mut byte = [0u8; 1];
    // Until the launcher has taken the namespace: it closes its end.
    let ended = rustix::io::retry_on_intr(|| rustix::io::read(stay, &mut byte));
    i32::from(written.is_err() || ended.is_err())
}

fn parse(text: &str) -> StepError {
    let mut lines = text.splitn(3, '\n');
    let step = lines.next().and_then(Step::by_name).unwrap_or(Step::Template);
    let errno = lines.next().and_then(|errno| errno.parse().ok()).unwrap_or(0);
    StepError { step, errno, detail: lines.next().unwrap_or_default().to_owned() }
}

fn build_here(faults: Faults, places: &EtcMounts) -> Result<(), StepError> {
    rustix::process::umask(Mode::empty());
    faults.check(Step::PrivateMounts)?;
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private).at(Step::PrivateMounts, "/")?;
    let system = system::open(faults, None)?;
    let mut kinds = Vec::with_capacity(places.len());
    for (target, source) in places {
        let meta = std::fs::metadata(source).at(Step::Template, &show(source))?;
        kinds.push((below_root(target), meta.is_dir()));
    }
    let root = Root::fresh(faults, &system, BYTES)?;
    for (place, is_dir) in kinds {
        ensure_place(root.tree(), place, is_dir).at(Step::Template, &show(place))?;
    }
    let proc = rootfs::new_proc().at(Step::Template, "/proc")?;
    mounts::attach_at(proc, root.tree(), Path::new("proc")).at(Step::Template, "/proc")?;
    rootfs::leave_host(faults, root.tree())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_builder_arrives_whole() {
        let error = StepError { step: Step::MountSystem, errno: 13, detail: "usr\nand more".to_owned() };
        assert_eq!(parse("mount_system\n13\nusr\nand more"), error);
        assert_eq!(parse("nonsense").step, Step::Template);
    }

    #[cfg(feature = "inject")]
    #[test]
    fn a_builder_that_never_ends_holds_up_no_launch() {
        if !rustix::process::geteuid().is_root() {
            crate::skip::skipped("only root makes a mount namespace without a user namespace");
            return;
        }
        let began = Instant::now();
        let error = build_apart(Faults::stopping(Step::PrivateMounts), &EtcMounts::new(), Duration::from_millis(100))
            .unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(error.detail.contains("does not answer"), "{error}");
    }

    #[test]
    fn a_plan_with_an_image_takes_no_template() {
        let mut draft = nexus_model::plan::PlanDraft::direct(Path::new("/srv/x"), ["true"], Path::new("/state/x"));
        assert!(fits_plan(&Plan::new(draft.clone()).unwrap()));
        let path = "/state/images/roots/x/tree".into();
        draft.image = Some(nexus_model::plan::ImageRoot { path, digest: String::new() });
        assert!(!fits_plan(&Plan::new(draft).unwrap()));
    }

    #[test]
    fn places_in_shared_directories_do_not_fit() {
        assert!(
            fits(Path::new("/srv/project"))
                && is_below_etc(Path::new("/etc/x"))
                && !is_below_etc(Path::new("/etcetera/x"))
        );
        // The file of a device would be seen by the other sandboxes of the template.
        assert!(!fits(Path::new("/dev/net/tun")));
    }
}
