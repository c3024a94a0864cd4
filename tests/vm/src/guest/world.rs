//! Objects that the cases share: root and an ordinary user, each with a workspace, and ways to run `nexus` as them.

use super::start::DISK;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The ordinary user of the machine.
pub const USER: u32 = 1000;
/// Mount point of the unified hierarchy.
pub const GROUPS: &str = "/sys/fs/cgroup";

/// Emulation on a busy machine is slow; a condition that holds at all holds by then.
const TIMEOUT: Duration = Duration::from_secs(100);

/// A user who runs `nexus`.
#[derive(Debug, Clone)]
pub struct Who {
    /// Name of the user in messages.
    pub name: &'static str,
    /// Uid of the user.
    pub uid: u32,
    /// Directory that the user works on.
    pub workspace: PathBuf,
    home: PathBuf,
}

/// Both of them.
pub struct World {
    /// The user with uid 0.
    pub root: Who,
    /// The user with the uid [`USER`].
    pub user: Who,
}

impl World {
    /// Makes the directories of both users.
    pub fn make() -> Result<Self, String> {
        Ok(Self { root: who("root", 0)?, user: who("user", USER)? })
    }
}

fn who(name: &'static str, uid: u32) -> Result<Who, String> {
    let home = Path::new(DISK).join(name);
    let workspace = home.join("workspace");
    for path in [&home, &workspace] {
        fs::create_dir(path)
            .and_then(|()| chown(path, Some(uid), Some(uid)))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(Who { name, uid, workspace, home })
}

impl Who {
    /// `nexus` with these arguments, not yet started.
    pub fn nexus(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/nexus");
        command.args(arguments).current_dir(&self.workspace).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", &self.home).env("NEXUS_STATE_DIR", self.home.join("state")).stdin(Stdio::null());
        command.uid(self.uid).gid(self.uid);
        command
    }

    /// Runs `nexus run --json` with these further arguments to its end.
    pub fn json(&self, arguments: &[&str]) -> Result<Run, String> {
        let output = self.nexus(&[&["run", "--json"], arguments].concat()).output();
        Run::read(&output.map_err(|error| format!("nexus: {error}"))?)
    }

    /// Starts `nexus run` with these further arguments.
    pub fn start(&self, arguments: &[&str]) -> Result<Live, String> {
        let mut command = self.nexus(&[&["run"], arguments].concat());
        // What it says of itself goes to the serial port.
        command.stdout(Stdio::null());
        command.spawn().map(Live).map_err(|error| format!("nexus: {error}"))
    }
}

/// Result of a run, as it reported it.
#[derive(Debug)]
pub struct Run {
    /// Exit code of `nexus`.
    pub code: i32,
    /// Document that the run printed.
    pub reported: Value,
}

impl Run {
    fn read(output: &Output) -> Result<Self, String> {
        let reported = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{error}; {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(Self { code: output.status.code().unwrap_or(-1), reported })
    }

    /// Checks that the run ended with this code for this reason.
    pub fn ended(&self, code: i32, reason: &str) -> Result<(), String> {
        if self.code == code && self.reported["reason"].as_str() == Some(reason) {
            return Ok(());
        }
        Err(format!("ended with {} {} and not {code} {reason}; {}", self.code, self.reported["reason"], self.message()))
    }

    /// Its error message, if it has one.
    pub fn message(&self) -> String {
        self.reported.pointer("/error/message").and_then(Value::as_str).unwrap_or("no message").to_owned()
    }

    /// Returns the output of the command.
    pub fn stdout(&self) -> String {
        self.reported.pointer("/output/stdout/text").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// A `nexus` that runs; ended when it is dropped.
pub struct Live(Child);

impl Live {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a user does, so that it clears up.
    pub fn end(mut self) -> Result<(), String> {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw).ok_or("no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| format!("SIGTERM: {error}"))?;
        let status =
            wait_for("the end of nexus", || self.0.try_wait().transpose())?.map_err(|error| error.to_string())?;
        ensure(status.code().is_some(), || format!("nexus did not end on its own but with {status}"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // By now no result counts any more; a process that has ended cannot be killed, and that is fine.
        if self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}

/// The groups of runs below `folder`: their names are ids, which begin with a digit and hold dashes.
pub fn groups(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let directories = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    directories.filter(|path| path.is_dir() && path.to_string_lossy().contains('-')).collect()
}

/// Returns the directory with the control groups of root's runs.
pub fn of_root() -> PathBuf {
    Path::new(GROUPS).join("nexus")
}

/// Returns the directory with the control groups of the user's runs.
pub fn of_user() -> PathBuf {
    of_root().join(USER.to_string())
}

/// The only group below `folder`, as soon as at least `members` processes are in it.
pub fn group_with(directory: &Path, members: usize) -> Result<PathBuf, String> {
    let found = wait_for(&format!("a group with {members} processes in {}", directory.display()), || {
        groups(directory).into_iter().find(|group| processes(group).len() >= members)
    });
    found.map_err(|reason| {
        let each = groups(directory).into_iter().map(|group| format!("{}: {:?}", group.display(), processes(&group)));
        format!("{reason}; there are {:?}", each.collect::<Vec<_>>())
    })
}

/// The processes in a group.
pub fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A file of a group, without its last newline.
pub fn setting(group: &Path, name: &str) -> Result<String, String> {
    let file = group.join(name);
    fs::read_to_string(&file).map(|text| text.trim().to_owned()).map_err(|error| format!("{}: {error}", file.display()))
}

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match ask() {
            Some(answer) => return Ok(answer),
            None if Instant::now() > deadline => return Err(format!("{what}: not within {} s", TIMEOUT.as_secs())),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// An error unless the condition holds.
pub fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}
