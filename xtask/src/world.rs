//! The directories in which a harness plays the program, as root or as an ordinary user.

use crate::bounded::{self, Ended, Running};
use crate::free_user::ordinary_user;
use crate::tree::{self, Tree};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time that one command may take, with the disk's log and a neighbour beside it.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a directory into which everybody can look.
fn open_directory(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// The directory of a harness, with a copy of the program, since the build directory may be closed to others. It goes
/// when the value goes.
pub struct Base {
    /// Path of the directory.
    pub path: PathBuf,
    /// Path of the program.
    pub program: PathBuf,
}

impl Base {
    /// Makes the directory and copies the program.
    pub fn make(path: PathBuf, program: &Path) -> io::Result<Self> {
        open_directory(&path)?;
        let copy = path.join("nexus");
        let base = Self { path, program: copy };
        let copied = Command::new("install").args(["-m", "755"]).arg(program).arg(&base.program).status()?;
        if copied.success() {
            Ok(base)
        } else {
            Err(io::Error::other(format!("{} cannot be copied", program.display())))
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} stays: {error}", self.path.display());
        }
    }
}

/// Directories of a play, and the user who runs the program.
#[derive(Debug, Clone)]
pub struct World {
    /// Directory that holds everything.
    pub base: PathBuf,
    /// The program, where every identity can read it.
    pub program: PathBuf,
    /// The mount points of the disks; the state directory is on the first, the workspaces are on the last.
    pub disks: Vec<PathBuf>,
    /// The user who is not root, when the play is a user's.
    pub user: Option<u32>,
    /// The sync that the commands of a play leave out.
    pub skip: Option<Skip>,
    /// Set when the machine has started again since: commands see another boot id.
    pub rebooted: bool,
}

/// A sync that is left out in every command of a play.
#[derive(Debug, Clone)]
pub enum Skip {
    /// By the program itself, which has the feature `inject`: its sync of this number.
    Process(u32),
    /// By `strace`: the call of this name and number answers 0 and does nothing.
    Call(String, u32),
    /// None: `strace` adds the syncs to this file.
    Recorded(PathBuf),
}

/// The calls that bring something to the disk.
pub const SYNCS: &str = "fsync,fdatasync,syncfs,sync_file_range,msync,sync";

/// Shows another boot id and the uptime of a machine that has just started, and keeps a whole `proc` beside it, without
/// which an ordinary user cannot mount one of its own.
const REBOOT: &str = "mount -t proc proc \"$1/proc\" && mount --bind \"$1/boot\" /proc/sys/kernel/random/boot_id && \
    mount --bind \"$1/uptime\" /proc/uptime && shift && exec \"$@\"";

impl World {
    /// Makes the directories that do not lie on a disk. Without a disk, everything lies below `base`.
    pub fn make(base: &Path, program: &Path, user: bool, disks: usize) -> io::Result<Self> {
        open_directory(base)?;
        let disks = (0..disks).map(|number| base.join(format!("disk{number}"))).collect();
        let user = if user { Some(ordinary_user().map_err(io::Error::other)?) } else { None };
        let world =
            Self { base: base.to_owned(), program: program.to_owned(), disks, user, skip: None, rebooted: false };
        for disk in &world.disks {
            fs::create_dir(disk)?;
        }
        world.own_directory(&world.home())?;
        fs::create_dir(base.join("proc"))?;
        fs::write(base.join("boot"), "00000000-0000-4000-8000-000000000000\n")?;
        fs::write(base.join("uptime"), "0.01 0.01\n")?;
        Ok(world)
    }

    /// Makes the directories on the disks.
    pub fn populate(&self) -> io::Result<()> {
        for path in [self.workspace(), self.other(), self.state()] {
            self.own_directory(&path)?;
        }
        fs::set_permissions(self.state(), fs::Permissions::from_mode(0o700))?;
        self.disks.iter().try_for_each(|disk| fs::create_dir(disk.join("neighbour")))
    }

    /// The workspace of the play.
    pub fn workspace(&self) -> PathBuf {
        self.disks.last().unwrap_or(&self.base).join("ws")
    }

    /// A second workspace, in which nothing happens.
    pub fn other(&self) -> PathBuf {
        self.disks.last().unwrap_or(&self.base).join("other")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.disks.first().unwrap_or(&self.base).join("state")
    }

    fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    /// Names the identity and the disks.
    pub fn describe(&self) -> String {
        let disks = if self.disks.len() == 1 { "one disk" } else { "state and workspace on two disks" };
        format!("{}, {disks}", self.who())
    }

    /// Names the identity.
    pub fn who(&self) -> &'static str {
        if self.user.is_some() { "user" } else { "root" }
    }

    /// Makes a directory that belongs to the identity.
    pub fn own_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.give(path)
    }

    /// Writes a file of the workspace that belongs to the identity, and the directories above it.
    pub fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let path = self.workspace().join(name);
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
        for parent in missing.into_iter().rev() {
            self.own_directory(parent)?;
        }
        fs::write(&path, content)?;
        self.give(&path)
    }

    /// Makes an empty file beside the workspace that belongs to the identity.
    pub fn own_file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.base.join(name);
        fs::write(&path, "")?;
        self.give(&path).map(|()| path)
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        lchown(path, self.user, self.user)
    }

    /// Reads the workspace.
    pub fn tree(&self) -> Result<Tree, String> {
        tree::read(&self.workspace()).map_err(|error| format!("the workspace cannot be read: {error}"))
    }

    /// Returns a command for `nexus` in the directory `at`; the words before it run it, such as `strace`.
    pub fn command(&self, before: &[&str], at: &Path, words: &[&str]) -> Command {
        let mut line: Vec<OsString> = Vec::new();
        if self.rebooted {
            line.extend(["unshare", "--mount", "--", "sh", "-c", REBOOT, "sh"].map(OsString::from));
            line.push(self.base.clone().into());
            if let Some(uid) = self.user {
                let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
                line.push("setpriv".into());
                line.extend(ids.map(OsString::from));
            }
        }
        line.extend(before.iter().map(OsString::from));
        line.push(self.program.clone().into());
        line.extend(words.iter().map(OsString::from));
        let mut command = Command::new(line.first().map_or(OsStr::new("nexus"), OsString::as_os_str));
        command
            .args(line.iter().skip(1))
            .current_dir(at)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.home())
            .env("NEXUS_STATE_DIR", self.state());
        if let (Some(uid), false) = (self.user, self.rebooted) {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Starts `nexus` in the workspace as a part of the play, which may leave out a sync.
    pub fn start(&self, before: &[&str], words: &[&str], input: &str) -> Result<Running, String> {
        let mut before: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        match &self.skip {
            Some(Skip::Call(call, number)) if before.is_empty() => {
                let (trace, inject) = (format!("trace={call}"), format!("inject={call}:retval=0:when={number}"));
                let strace = ["strace", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
                before.extend(strace.map(str::to_owned));
            }
            Some(Skip::Recorded(file)) if before.is_empty() => {
                let (trace, file) = (format!("trace={SYNCS}"), file.display().to_string());
                before.extend(["strace", "-y", "-A", "-o", &file, "-e", &trace].map(str::to_owned));
            }
            _ => {}
        }
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let mut command = self.command(&before, &self.workspace(), words);
        if let Some(Skip::Process(number)) = &self.skip {
            command.env("NEXUS_LAYER_SKIP_SYNC", number.to_string());
        }
        bounded::start(&mut command, input, LIMIT).map_err(|error| format!("nexus {}: {error}", words.join(" ")))
    }

    /// Runs `nexus` in the directory `at` to its end.
    pub fn nexus(&self, at: &Path, words: &[&str]) -> Result<Ended, String> {
        bounded::run(&mut self.command(&[], at, words), "", LIMIT)
            .map_err(|error| format!("nexus {}: {error}", words.join(" ")))
    }

    /// Runs `nexus` and demands exit code 0.
    pub fn must(&self, at: &Path, words: &[&str]) -> Result<Ended, String> {
        let ended = self.nexus(at, words)?;
        if ended.code == Some(0) {
            return Ok(ended);
        }
        let place = at.file_name().unwrap_or_default().display().to_string();
        Err(format!("`nexus {}` in {place}: {}", words.join(" "), ended.describe()))
    }

    /// Returns the runs whose changes wait for a decision.
    pub fn waiting(&self) -> Result<Vec<String>, String> {
        let ended = self.must(&self.workspace(), &["changes", "list", "--json"])?;
        let list: serde_json::Value = serde_json::from_str(&ended.stdout)
            .map_err(|error| format!("`nexus changes list --json` wrote no JSON: {error}: {}", ended.describe()))?;
        let runs = list.as_array().ok_or("`nexus changes list --json` wrote no list")?;
        Ok(runs.iter().filter_map(|run| run["run_id"].as_str().map(str::to_owned)).collect())
    }

    /// Returns the paths that wait for a decision, of all runs.
    pub fn waiting_paths(&self) -> Result<BTreeSet<String>, String> {
        let mut paths = BTreeSet::new();
        for run in self.waiting()? {
            // A commit that was interrupted is in the list, and may have nothing to show.
            let ended = self.nexus(&self.workspace(), &["changes", "show", "--json", "--run", &run])?;
            let shown: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
            let changes = shown["changes"].as_array().cloned().unwrap_or_default();
            paths.extend(changes.iter().filter_map(|change| change["path"]["text"].as_str().map(str::to_owned)));
        }
        Ok(paths)
    }
}
