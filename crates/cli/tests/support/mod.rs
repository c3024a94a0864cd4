//! Parts that the tests of the command share: a place of its own for each test, and `nexus` as root and as an ordinary user.
//!
//! A machine's root plays both; an ordinary user plays only itself.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::must_use_candidate, reason = "a test stops at the first surprise")]

#[path = "../../../../tests/support/free_user.rs"]
mod free_user;
pub mod net;
pub mod screen;
pub mod session;
#[path = "../../../../tests/support/skip.rs"]
pub mod skip;
pub mod traces;
pub mod tree;
pub mod twin;
pub mod world;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The ordinary user that root plays.
pub fn user() -> u32 {
    free_user::ordinary_user().unwrap()
}

/// One test's own directories, and the user of `nexus` there.
pub struct Bench {
    /// The directory that holds all others.
    pub base: tempfile::TempDir,
    /// The uid that runs `nexus`, when it is not the test's own.
    pub user: Option<u32>,
    /// A workspace that this user owns.
    pub workspace: PathBuf,
    /// Value of `NEXUS_STATE_DIR`.
    pub state: PathBuf,
    /// Value of `HOME` for `nexus`.
    pub home: PathBuf,
    program: PathBuf,
}

/// Reports whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports whether this process is root's. Otherwise it says that the test tries nothing.
pub fn needs_root() -> bool {
    if !is_root() {
        skip::skipped("only root can try it");
    }
    is_root()
}

/// A bench for each identity that this machine can show: root and an ordinary user, or just the caller.
pub fn benches() -> Vec<Bench> {
    if is_root() {
        return vec![Bench::new(None), Bench::new(Some(user()))];
    }
    skip::partial("only root can try it as root and as an ordinary user");
    vec![Bench::new(None)]
}

/// Calls `test` with each of [`benches`], side by side: a test that mostly waits (for the disk, for other processes) then
/// takes the time of one.
pub fn on_each_bench(test: impl Fn(Bench) + Sync) {
    let (name, test) = (std::thread::current().name().unwrap_or("main").to_owned(), &test);
    std::thread::scope(|scope| {
        let start = |bench: Bench| {
            let thread = std::thread::Builder::new().name(format!("{name} ({})", bench.who()));
            thread.spawn_scoped(scope, move || test(bench)).unwrap()
        };
        let running: Vec<_> = benches().into_iter().map(start).collect();
        let failed = running.into_iter().filter_map(|bench| bench.join().err()).count();
        assert_eq!(failed, 0, "see above");
    });
}

impl Bench {
    /// Makes the directories of a test.
    pub fn new(user: Option<u32>) -> Self {
        // Not /tmp: that is private inside, and a workspace below it would hide part of what is tested.
        let base = tempfile::Builder::new().prefix("nexus-test-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            if let Some(uid) = user {
                chown(&path, Some(uid), Some(uid)).unwrap();
            }
            path
        };
        let (workspace, state, home, bin) = (folder("ws"), folder("state"), folder("home"), folder("bin"));
        // The build directory may be closed to the ordinary user.
        let program = bin.join("nexus");
        // By another process: a descriptor of ours that is open for writing would be in the fork of a test beside this
        // one, and the program could not be executed that long (ETXTBSY).
        let copied = Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_nexus")]).arg(&program).status();
        assert!(copied.unwrap().success(), "the program could not be copied");
        Self { base, user, workspace, state, home, program }
    }

    /// Names the user of this bench, for messages.
    pub fn who(&self) -> &'static str {
        match (self.user, is_root()) {
            (Some(_), _) => "user",
            (None, true) => "root",
            (None, false) => "caller",
        }
    }

    /// Writes a file of the workspace, owned by the user of `nexus`.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace.join(name);
        let mut missing = Vec::new();
        let mut parent = path.parent().unwrap();
        while !parent.exists() {
            missing.push(parent.to_owned());
            parent = parent.parent().unwrap();
        }
        for folder in missing.iter().rev() {
            fs::create_dir(folder).unwrap();
            self.give(folder);
        }
        fs::write(&path, content).unwrap();
        self.give(&path);
        path
    }

    /// Writes a file below the home that only the user of `nexus` can write.
    pub fn at_home(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let own = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            self.give(path);
        };
        let path = self.home.join(name);
        let mut directory = self.home.clone();
        for part in Path::new(name).parent().unwrap().components() {
            directory.push(part);
            if !directory.exists() {
                fs::create_dir(&directory).unwrap();
                own(&directory);
            }
        }
        fs::write(&path, content).unwrap();
        own(&path);
        path
    }

    /// Gives a path to the user of `nexus`.
    pub fn give(&self, path: &Path) {
        if let Some(uid) = self.user {
            std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
        }
    }

    /// The copy of `nexus` that this bench runs.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command for any program as this bench's identity, in the workspace, with an environment of its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command_as_root(program);
        if let Some(uid) = self.user {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// As [`Self::command`], as the user of the test: for a program that takes another identity on its own.
    pub fn command_as_root(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &self.home)
            .env("NEXUS_STATE_DIR", &self.state)
            .stdin(Stdio::null());
        command
    }

    /// `nexus` with these arguments, not yet started.
    pub fn nexus<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Command {
        let mut command = self.command(&self.program);
        command.args(arguments);
        command
    }

    /// Runs `nexus` with these arguments to its end.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Output {
        self.nexus(arguments).output().unwrap()
    }

    /// Runs `nexus run --json` with these further arguments; the document and the exit code.
    pub fn json<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> (serde_json::Value, i32) {
        let mut command = self.nexus(["run", "--json"]);
        let output = command.args(arguments).output().unwrap();
        let document = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)));
        (document, output.status.code().unwrap())
    }

    /// Lists the entries of the state directory besides its own directories: none, after a run without parked changes.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        // A slow machine needs more than the second that a command waits for a removal.
        if self.state.join("layers/going").exists() {
            assert_eq!(self.run(["changes", "recover"]).status.code(), Some(0));
        }
        ["runs", "layers", "locks"]
            .iter()
            .filter_map(|name| fs::read_dir(self.state.join(name)).ok())
            .flat_map(|entries| entries.map(|entry| entry.unwrap().path()))
            .collect()
    }
}

/// Reads the output of a command with `--json`.
pub fn report(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

/// stderr as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// stdout as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the condition holds; fails the test after the limit.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, limit, || condition().then_some(()));
}

/// Waits until there is a value; fails the test after the limit.
pub fn wait_for<T>(what: &str, limit: Duration, mut value: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not happen within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbers of the processes on this machine whose command line holds these words.
pub fn processes_with(needle: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|pid| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(needle))
    })
    .collect()
}

/// Another number at every call.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now())
}
