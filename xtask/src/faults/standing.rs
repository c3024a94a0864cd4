//! Faults that stay: a mount, a file that cannot be changed, an output that cannot be written. The decision about the
//! changes must be possible while they stand.

use super::phases::{Phase, SCRIPT, Versions};
use super::verdict::{Rules, brief};
use crate::bounded::Ended;
use crate::tree::difference;
use crate::world::World;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A fault that stays until it is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A file is mounted over a file that the run replaces, before the run starts.
    MountBefore,
    /// The same while the run works.
    Mount,
    /// A file that the run replaces is made immutable, while the run works.
    Immutable,
    /// The standard output is `/dev/full`.
    FullOutput,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::MountBefore, Self::Mount, Self::Immutable, Self::FullOutput];

    /// Returns the words for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Self::MountBefore => "a mount over a file of the workspace",
            Self::Mount => "a mount over a file that the run replaces",
            Self::Immutable => "an immutable file that the run replaces",
            Self::FullOutput => "standard output on a full disk",
        }
    }

    fn begin(self, file: &Path, beside: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.describe());
        match self {
            Self::MountBefore | Self::Mount => mount_bind(beside, file).map_err(|error| failed(error.into())),
            Self::Immutable => change_flag("+i", file),
            Self::FullOutput => Ok(()),
        }
    }

    fn end(self, file: &Path) -> Result<(), String> {
        match self {
            Self::MountBefore | Self::Mount => {
                unmount(file, UnmountFlags::empty()).map_err(|error| format!("{}: {error}", file.display()))
            }
            Self::Immutable => change_flag("-i", file),
            Self::FullOutput => Ok(()),
        }
    }
}

fn change_flag(word: &str, file: &Path) -> Result<(), String> {
    match Command::new("chattr").arg(word).arg(file).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("chattr {word} {}: {other:?}", file.display())),
    }
}

/// Plays a commit with a standing fault. While it stands nothing is half done, the other directory works, and what waits
/// can be rejected (or, with `accept`, is accepted once the fault is gone).
pub fn play(world: &World, versions: &Versions, fault: Standing, accept: bool) -> Result<(), String> {
    Phase::Commit.prepare(world, versions.half)?;
    let file = world.workspace().join("f3");
    // Older than the run, such as a mount of long ago.
    let beside = world.own_file("mounted").map_err(|error| error.to_string())?;
    let ended = match fault {
        Standing::FullOutput => to_full_output(world)?,
        Standing::MountBefore => {
            fault.begin(&file, &beside)?;
            world.nexus(&world.workspace(), Phase::Commit.words(false))?
        }
        Standing::Mount | Standing::Immutable => while_running(world, || fault.begin(&file, &beside))?,
    };
    let evaluated = while_it_stands(world, versions, &ended, fault, accept);
    fault.end(&file)?;
    evaluated?;
    let mut reported = vec![brief(&ended)];
    for run in world.waiting()? {
        if accept {
            // What was made immutable or mounted over has changed outside, and may be a conflict.
            reported.push(brief(&world.nexus(&world.workspace(), &["changes", "accept", "--run", &run])?));
        }
        if world.waiting()?.contains(&run) {
            world.must(&world.workspace(), &["changes", "reject", "--run", &run])?;
        }
    }
    let mut found = world.tree()?;
    // The path of the fault may have been kept back and rejected, and the rest committed.
    if fault != Standing::FullOutput
        && found.get("f3") == versions.old.get("f3")
        && let Some(entry) = versions.new.get("f3")
        && found != versions.old
    {
        found.insert("f3".to_owned(), entry.clone());
    }
    if found != versions.old && found != versions.new {
        return Err(format!("in the end ({}): {}", reported.join("; "), difference(&found, &versions.new)));
    }
    world.must(&world.workspace(), &["run", "--", "true"]).map(drop)
}

fn to_full_output(world: &World) -> Result<Ended, String> {
    let full = File::options().write(true).open("/dev/full").map_err(|error| error.to_string())?;
    let mut command = world.command(&[], &world.workspace(), Phase::Commit.words(false));
    let output = command.stdin(std::process::Stdio::null()).stdout(full).output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Ended {
        code: output.status.code(),
        timed_out: false,
        computed: Duration::ZERO,
        stdout: "DONE".to_owned(),
        stderr,
    })
}

/// Runs the commit; calls `act` when its command has made its changes and has not ended.
fn while_running(world: &World, act: impl FnOnce() -> Result<(), String>) -> Result<Ended, String> {
    let script = format!("{SCRIPT}; sleep 0.5");
    let running = world.start(&[], &["run", "--changes", "commit", "--", "sh", "-c", &script], "")?;
    let end = Instant::now() + Duration::from_secs(20);
    while !running.stdout_so_far().map_err(|error| error.to_string())?.contains("DONE") {
        if Instant::now() > end {
            return Err("the command of the run did not get to its end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let acted = act();
    let ended = running.wait().map_err(|error| error.to_string())?;
    acted.map(|()| ended)
}

fn while_it_stands(
    world: &World,
    versions: &Versions,
    ended: &Ended,
    fault: Standing,
    accept: bool,
) -> Result<(), String> {
    let (workspace, other) = (world.workspace(), world.other());
    world.must(&other, &["changes", "list"])?;
    world.must(&other, &["run", "--", "true"])?;
    let mut found = world.tree()?;
    let mounted = matches!(fault, Standing::MountBefore | Standing::Mount);
    if mounted {
        // The mount hides the file itself; it is compared when the mount is gone.
        let version = if found.get("f1") == versions.new.get("f1") { &versions.new } else { &versions.old };
        if let Some(entry) = version.get("f3") {
            found.insert("f3".to_owned(), entry.clone());
        }
    }
    let reported = brief(ended);
    let rules = Rules { world, versions, edited: false };
    rules.one_of_both(&found).map_err(|why| format!("{why} ({reported})"))?;
    let waiting = world.waiting()?;
    if found == versions.old && waiting.is_empty() && ended.stdout.contains("DONE") {
        return Err(format!("the work of the run is gone ({reported})"));
    }
    if !accept {
        for run in waiting {
            world.must(&workspace, &["changes", "reject", "--run", &run])?;
        }
        // A mount in a workspace may be refused by name, so only the other faults must let a run in.
        if !mounted {
            world.must(&workspace, &["run", "--", "true"])?;
        }
    }
    Ok(())
}
