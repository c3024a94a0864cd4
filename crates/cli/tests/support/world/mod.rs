//! A world of its own for tests of the network: real servers under public-looking names and addresses, and nothing else.
//!
//! ```text
//!  test ──stdin──▶ PID 1 (enter.sh) of new mount, pid and network namespaces     ends, with all of it, when stdin does
//!                   │   /etc: name server, authority of the certificates
//!                   ├── clients' network ◀── nexus, clients (entered with nsenter)
//!                   └── servers' network (veth): DNS, nginx, git, sshd, postgres, redis
//! ```
//!
//! An ordinary user makes it in a user namespace, in which everything that root would do is done by the root of that.

use super::{Bench, is_root, stderr, stdout, user};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The uid of the servers; another one than the clients'.
fn servers() -> String {
    (user() + 1).to_string()
}

/// No client needs as long, even when other tests take the processors.
const LIMIT: &str = "120";

/// A world that is up.
pub struct World {
    /// Holds everything that servers and clients use.
    pub folder: PathBuf,
    /// PID 1 of the world, as this process sees it.
    first: u32,
    /// Its standard input keeps the world alive.
    _keeper: Child,
}

/// Result of a command, and the time that it took.
pub struct Ran {
    /// Exit code and output.
    pub output: Output,
    /// From start to end.
    pub took: Duration,
}

/// The world of this test program, made on first use.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    static TRIED: AtomicBool = AtomicBool::new(false);
    WORLD.get_or_init(|| {
        assert!(!TRIED.swap(true, Ordering::Relaxed), "the world did not come up; the first test that failed says why");
        World::start()
    })
}

impl World {
    fn start() -> Self {
        let begun = Instant::now();
        let unfinished = tempfile::Builder::new().prefix("nexus-world-").tempdir_in("/var/tmp").unwrap();
        let folder = unfinished.path().to_owned();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        // The build directory may be closed to the users of servers and clients.
        let kit = folder.join("kit");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        copy_files(&from.join("support/world"), &kit);
        copy_files(&from.join("clients"), &folder.join("tools/clients"));
        let made = Command::new("bash").arg(kit.join("content.sh")).arg(&folder).status().unwrap();
        assert!(made.success(), "the servers' content could not be made");
        for part in ["toolchain/bin", "toolchain/lib"] {
            fs::create_dir_all(folder.join("tools").join(part)).unwrap();
        }
        toolchain(&folder.join("tools/toolchain"));
        fs::copy(folder.join("srv/www/npm-lock"), folder.join("tools/npm-lock")).unwrap();

        let mut command = Command::new("unshare");
        if is_root() {
            give(&folder.join("srv"));
        } else {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--", "bash"]);
        command.env("CLIENT_UID", user().to_string()).env("SERVER_UID", servers());
        command.arg(kit.join("enter.sh")).arg(&folder).args(become_user(&servers()));
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        if first_line != "ready\n" {
            let logs = fs::read_dir(folder.join("srv/log")).unwrap().map(|entry| {
                let path = entry.unwrap().path();
                format!("{}:\n{}\n", path.display(), String::from_utf8_lossy(&fs::read(&path).unwrap()))
            });
            panic!("the world did not come up: {first_line}{}", logs.collect::<String>());
        }

        // From now on PID 1 removes it.
        let folder = unfinished.keep();

        let unshare = keeper.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        eprintln!("world: up after {:.1} s", begun.elapsed().as_secs_f64());
        Self { folder, first: children.trim().parse().unwrap(), _keeper: keeper }
    }

    /// Tools of the clients: programs, keys, scripts.
    pub fn tools(&self) -> PathBuf {
        self.folder.join("tools")
    }

    /// The files of the servers.
    pub fn served(&self) -> PathBuf {
        self.folder.join("srv")
    }

    /// Runs words in the clients' network with just this environment, in the bench's workspace.
    ///
    /// `user` is the uid there; none means root of the machine.
    pub fn run(&self, bench: &Bench, user: Option<u32>, environment: &[(String, String)], words: &[String]) -> Ran {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.first)).args(["--mount", "--net", "--pid"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--");
        if let Some(uid) = user {
            command.args(become_user(&uid.to_string()));
        }
        command.args(["env", "-i"]).args(environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(["sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh"]).arg(&bench.workspace);
        command.args(["timeout", LIMIT]).args(words).stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().unwrap();
        Ran { output, took: begun.elapsed() }
    }

    /// `nexus` with these arguments, in the clients' network, as the user of the bench.
    pub fn nexus(&self, bench: &Bench, arguments: &[String]) -> Ran {
        let program = bench.nexus([] as [&str; 0]).get_program().to_str().unwrap().to_owned();
        let mut words = vec![program];
        words.extend_from_slice(arguments);
        let environment = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", bench.home.to_str().unwrap()),
            ("NEXUS_STATE_DIR", bench.state.to_str().unwrap()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.run(bench, if is_root() { bench.user } else { Some(user()) }, &environment, &words)
    }
}

/// The words that make root of a namespace, or of the machine, this ordinary user.
fn become_user(uid: &str) -> Vec<String> {
    if is_root() {
        ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--"].map(str::to_owned).into()
    } else {
        vec!["unshare".into(), "--user".into(), format!("--map-user={uid}"), format!("--map-group={uid}"), "--".into()]
    }
}

fn give(folder: &Path) {
    let status = Command::new("chown").args(["-R", &format!("{0}:{0}", servers())]).arg(folder).status().unwrap();
    assert!(status.success(), "{} could not be given to the servers", folder.display());
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Copies the part of the toolchain that `cargo fetch` needs of these tests, where every uid can read it: cargo asks rustc for its
/// version.
fn toolchain(to: &Path) {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    assert!(sysroot.status.success(), "these tests need a rustc on PATH that they may run: {}", stderr(&sysroot));
    let sysroot = PathBuf::from(stdout(&sysroot).trim());
    let mut parts = vec![PathBuf::from("bin/cargo"), PathBuf::from("bin/rustc")];
    for entry in fs::read_dir(sysroot.join("lib")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            parts.push(Path::new("lib").join(entry.file_name()));
        }
    }
    for part in parts {
        let (from, to) = (sysroot.join(&part), to.join(&part));
        // A link costs nothing; another file system takes a copy.
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap();
        }
    }
}
