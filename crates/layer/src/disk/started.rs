//! The start of a run, by the clock of the workspace's file system.
//!
//! A conflict is an entry of the workspace whose ctime is later than the start ([`crate::decide::plan`]), so both times must
//! come from one clock, and the clock must not have been set back between them:
//!
//! * The file system that holds the workspace stamps a file without a name (`O_TMPFILE`). Where the layer's directory
//!   is on the same device its own ctime serves, at no cost. A file system that has no such files stamps one with a
//!   name, which is removed at once. Where the workspace takes no file at all, the layer's clock has to do, taken as a
//!   coarse one.
//! * The stamp is taken twice. Linux 6.13 and later give an entry whose stamp was read a finer one at its next change,
//!   and no later change anywhere on the machine an earlier one, but an entry whose stamp no process read gets an equal one until
//!   the next tick. Where the second stamp is later than the first, an equal one therefore counts as later: what changed
//!   before has an earlier one. Older kernels stamp by the tick alone (1 to 10 ms), and an equal stamp is more likely of
//!   what was written just before the start, so that it counts as older.
//! * A stamp without nanoseconds comes from a clock of whole seconds (ext4 with inodes of 128 bytes, some network file
//!   systems). A later change can then have the same stamp, and an equal one counts as later.
//! * The wall clock is compared with the time since boot at both ends. If it was set back meanwhile, the start is set
//!   back as far. After a reboot the start is never later than that boot.
//!
//! What is not noticed: a clock that was set back and forward again between the two ends.

use crate::beneath::{Doing as _, IoFailure, Workspace, unlink_if_there};
use crate::meta::{FsTime, Meta, stat};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: i128 = 1_000_000_000;
/// Smaller steps of the wall clock are not acted on: reading two clocks takes time, and the kernel corrects the wall
/// clock of a running machine in small amounts.
const STEP: i128 = SECOND;

/// Records when a layer was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// By the clock of the workspace's file system.
    pub time: FsTime,
    /// A stamp that is equal to `time` counts as later. Layers of older versions call this `coarse`.
    #[serde(rename = "coarse")]
    pub equal_is_later: bool,
    /// Time since boot minus wall clock, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Id of the machine's boot then; empty where the kernel does not say.
    pub boot_id: String,
}

/// The readings of the machine's clocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// Time since boot minus wall clock, in nanoseconds.
    pub offset_ns: i64,
    /// Id of the machine's boot; empty where the kernel does not say.
    pub boot_id: String,
}

impl Started {
    /// Returns the latest time stamp that counts as older, where the clocks were not set since.
    pub(crate) fn last_older(&self) -> FsTime {
        from_nanoseconds(nanoseconds(self.time) - i128::from(self.equal_is_later))
    }
}

impl Clocks {
    /// Reads the clocks of this moment.
    pub fn now() -> io::Result<Self> {
        let uptime = std::fs::read_to_string("/proc/uptime")?;
        let since_boot = parse_uptime(&uptime).ok_or_else(|| io::Error::other("/proc/uptime has another form"))?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let offset = i128::from(since_boot) - i128::try_from(wall).unwrap_or(i128::MAX);
        let boot_id = match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(text) => text.trim().to_owned(),
            // Some containers hide it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                String::new()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { offset_ns: i64::try_from(offset).unwrap_or(i64::MIN), boot_id })
    }
}

/// Reads the first number of `/proc/uptime`, in nanoseconds.
fn parse_uptime(text: &str) -> Option<i64> {
    let (seconds, hundredths) = text.split(' ').next()?.split_once('.')?;
    let (seconds, hundredths) = (seconds.parse::<i64>().ok()?, hundredths.get(..2)?.parse::<i64>().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(hundredths * 10_000_000)
}

/// Returns the latest time stamp that still counts as older than the start, given the current clocks.
#[must_use]
pub fn effective(started: &Started, now: &Clocks) -> FsTime {
    let time = nanoseconds(started.last_older());
    let same_boot = started.boot_id == now.boot_id;
    let set_back = i128::from(now.offset_ns) - i128::from(started.clock_offset_ns);
    match () {
        // Without a boot id a machine that was booted again looks like one whose clock was set forward.
        () if same_boot && set_back > STEP => from_nanoseconds(time - set_back),
        () if same_boot => from_nanoseconds(time),
        // The wall clock at the last boot.
        () => from_nanoseconds(time.min(-i128::from(now.offset_ns))),
    }
}

/// Reports whether something with this ctime changed after the start, as the clocks are now.
#[must_use]
pub fn is_fresh(started: &Started, now: &Clocks, ctime: FsTime) -> bool {
    ctime > effective(started, now)
}

fn nanoseconds(time: FsTime) -> i128 {
    i128::from(time.sec) * SECOND + i128::from(time.nsec)
}

fn from_nanoseconds(time: i128) -> FsTime {
    let sec = i64::try_from(time.div_euclid(SECOND)).unwrap_or(i64::MIN);
    FsTime { sec, nsec: u32::try_from(time.rem_euclid(SECOND)).unwrap_or(0) }
}

/// Takes the start of the run `run`, whose layer's directory is `layer`: sets the directory's ctime.
pub(crate) fn measure(workspace: &Workspace, layer: &Workspace, run: &str) -> Result<Started, IoFailure> {
    let clocks = Clocks::now().doing("read the clocks for", run.as_bytes())?;
    // Directories made ahead get the ctime of this run.
    let own = stamp_twice(layer.fd(), 0o700).doing("stamp", run.as_bytes())?;
    let top = stat(workspace.fd(), b"").doing("look at", b"")?;
    let stamped = if top.dev == own.dev { Some(own) } else { stamp(workspace, run)? };
    let is_the_workspaces = stamped.is_some();
    let Stamp { time, is_exact, .. } = stamped.unwrap_or(own);
    let equal_is_later = is_exact || !is_the_workspaces || time.nsec == 0;
    Ok(Started { time, equal_is_later, clock_offset_ns: clocks.offset_ns, boot_id: clocks.boot_id })
}

/// The ctime of an entry that was changed twice and looked at in between.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    time: FsTime,
    dev: (u32, u32),
    /// The second change has a later ctime, so that no change before it has this one.
    is_exact: bool,
}

/// Changes an entry that no other process uses, looks at it, and does both again.
fn stamp_twice(entry: impl AsFd, mode: u32) -> io::Result<Stamp> {
    let change = || -> io::Result<Meta> {
        rustix::fs::fchmod(&entry, Mode::from_raw_mode(mode))?;
        stat(entry.as_fd(), b"")
    };
    let (first, second) = (change()?, change()?);
    Ok(Stamp { time: second.ctime, dev: second.dev, is_exact: second.ctime > first.ctime })
}

/// Lets the file system of the workspace stamp a file. `None` when the workspace takes no file.
fn stamp(workspace: &Workspace, run: &str) -> Result<Option<Stamp>, IoFailure> {
    let mode = Mode::from_raw_mode(0o600);
    let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(workspace.fd(), ".", nameless, mode) {
        return stamp_twice(file, 0o600).map(Some).doing("stamp a file in", b"");
    }
    let name = format!(".nexus-tmp-{run}-start");
    let named = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(workspace.fd(), &*name, named, mode) else { return Ok(None) };
    let stamped = stat(file.as_fd(), b"").doing("look at", name.as_bytes());
    unlink_if_there(workspace.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
    // The removal changed the workspace itself, perhaps in the same tick: an equal stamp stays an older one.
    stamped.map(|meta| Some(Stamp { time: meta.ctime, dev: meta.dev, is_exact: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: i64 = 1_800_000_000_000_000_000;
    const BOOT: i64 = 5_000_000_000_000;

    fn at(sec: i64, nsec: u32) -> FsTime {
        FsTime { sec: WALL / 1_000_000_000 + sec, nsec }
    }

    fn started(nsec: u32) -> Started {
        let time = at(0, nsec);
        Started { time, equal_is_later: nsec == 0, clock_offset_ns: BOOT - WALL, boot_id: "a".into() }
    }

    fn clocks(set_forward_ns: i64, boot_id: &str) -> Clocks {
        Clocks { offset_ns: BOOT - WALL - set_forward_ns, boot_id: boot_id.into() }
    }

    #[test]
    fn an_equal_stamp_is_later_only_by_a_coarse_clock() {
        let now = clocks(0, "a");
        assert!(!is_fresh(&started(5), &now, at(0, 5)) && is_fresh(&started(5), &now, at(0, 6)));
        assert!(is_fresh(&started(0), &now, at(0, 0)) && !is_fresh(&started(0), &now, at(-1, 999_999_999)));
    }

    #[test]
    fn a_clock_that_was_set_back_sets_the_start_back() {
        let hour = 3_600_000_000_000;
        assert!(is_fresh(&started(5), &clocks(-hour, "a"), at(-3600, 6)));
        assert!(!is_fresh(&started(5), &clocks(-hour, "a"), at(-3600, 5)));
        assert_eq!(effective(&started(5), &clocks(hour, "a")), at(0, 5), "set forward");
        for small in [-1_000_000_000, -999_999_999, 0, 1] {
            assert_eq!(effective(&started(5), &clocks(small, "a")), at(0, 5), "{small}");
        }
    }

    #[test]
    fn after_a_reboot_the_start_is_no_later_than_the_boot() {
        let booted_at = |sec: i64| Clocks { offset_ns: -(WALL + sec * 1_000_000_000), boot_id: "b".into() };
        assert_eq!(effective(&started(5), &booted_at(60)), at(0, 5));
        assert_eq!(effective(&started(5), &booted_at(-60)), at(-60, 0), "the clock was set back meanwhile");
    }

    #[test]
    fn numbers_at_the_ends_of_their_range_are_no_panic() {
        for sec in [i64::MIN, -1, 0, i64::MAX] {
            for offset_ns in [i64::MIN, 0, i64::MAX] {
                let started = Started { time: FsTime { sec, nsec: 0 }, clock_offset_ns: offset_ns, ..started(0) };
                for now in [clocks(0, "a"), clocks(0, "b"), Clocks { offset_ns: i64::MIN, boot_id: "a".into() }] {
                    assert!(effective(&started, &now).nsec < 1_000_000_000);
                }
            }
        }
    }

    #[test]
    fn the_clocks_of_this_machine_agree_with_themselves() {
        let (first, second) = (Clocks::now().unwrap(), Clocks::now().unwrap());
        assert!(i128::from(first.offset_ns - second.offset_ns).abs() < STEP, "{first:?} {second:?}");
        assert_eq!(first.boot_id, second.boot_id);
        assert_eq!(parse_uptime("12.34 56.78\n"), Some(12_340_000_000));
        for text in ["", "x", "12", "12.", "12.3", "a.34 1"] {
            assert_eq!(parse_uptime(text), None, "{text}");
        }
    }

    #[test]
    fn the_workspace_stamps_the_start_and_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let before = stat(workspace.fd(), b"").unwrap();
        let layer = tempfile::tempdir().unwrap();
        let layer = Workspace::from_fd(std::fs::File::open(layer.path()).unwrap().into());
        let taken = measure(&workspace, &layer, "run").unwrap();
        assert!(taken.time >= before.ctime, "{taken:?}");
        assert_eq!(taken.time, stat(layer.fd(), b"").unwrap().ctime, "the layer's own stamp serves");
        let stamped = stamp(&workspace, "run").unwrap().unwrap();
        assert!(stamped.time >= taken.time, "{stamped:?}");
        assert!(crate::beneath::is_empty(workspace.readable_dir(b"").unwrap().as_fd()).unwrap());
        assert_eq!(stat(workspace.fd(), b"").unwrap().ctime, before.ctime);
    }
}
