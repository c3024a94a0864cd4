//! Traces that runs could leave on the host, looked for from outside: processes, mounts, control groups, files.
//!
//! Other tests use this machine at the same time, so a bench that looks for traces has ids of its own: a host uid that
//! no other process has, for the ordinary user as for the sandboxes that root starts.

use super::{Bench, is_root, wait_until};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// First host id of sandboxes that root starts.
const UID_BASE: u32 = 1_000_000_000;
/// Longest time that a dying process or a closing mount may take.
const PATIENCE: Duration = Duration::from_secs(10);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A bench whose sandboxes have host ids of their own.
pub struct Lone {
    bench: Bench,
    id: u32,
    program: (u64, u64),
}

impl Deref for Lone {
    type Target = Bench;
    fn deref(&self) -> &Bench {
        &self.bench
    }
}

/// Things that were there before.
pub struct Before {
    mounts: BTreeSet<String>,
    groups: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

/// One bench for each identity that this machine can show.
pub fn lone_benches() -> Vec<Lone> {
    if is_root() { vec![Lone::new(false), Lone::new(true)] } else { vec![Lone::new(false)] }
}

impl Lone {
    /// For the caller, or for an ordinary user that root plays.
    pub fn new(as_user: bool) -> Self {
        let id = 100_000 + (std::process::id() % 1_000_000) * 32 + NEXT.fetch_add(1, Ordering::SeqCst);
        let bench = Bench::new(as_user.then_some(id));
        let tmp = bench.base.path().join("tmp");
        fs::create_dir(&tmp).unwrap();
        bench.give(&tmp);
        let program = bench.base.path().join("bin/nexus");
        // Another thread may have forked while the program was being copied: until that child executes its own
        // program it has ours open for writing, and the kernel refuses to execute it (ETXTBSY).
        wait_until("an executable nexus", PATIENCE, || match Command::new(&program).arg("--version").output() {
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ExecutableFileBusy);
                false
            }
            Ok(_) => true,
        });
        let meta = fs::metadata(program).unwrap();
        Self { program: (meta.dev(), meta.ino()), bench, id }
    }

    /// `nexus` with these arguments, not yet started; root's sandbox gets the lone id.
    pub fn nexus<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Command {
        let mut command = self.bench.nexus(arguments);
        command.env("NEXUS_INJECT_DRAWN", self.id.to_string()).env("TMPDIR", self.base.path().join("tmp"));
        command
    }

    /// Runs `nexus` with these arguments to its end.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Output {
        self.nexus(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// The host ids of what runs here; the caller's own does not count, when it is not a uid of our own.
    fn ids(&self) -> Vec<u32> {
        match (self.user, is_root()) {
            (Some(uid), _) => vec![uid],
            (None, true) => vec![UID_BASE + self.id],
            (None, false) => Vec::new(),
        }
    }

    /// Living processes of this bench: by the program that they execute, or by their uid.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let ids = self.ids();
        let all =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        all.filter_map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("State:")?.starts_with(['Z', 'X']) {
                return None;
            }
            let uid: u32 = field("Uid:")?.split_ascii_whitespace().next()?.parse().ok()?;
            let ours = fs::metadata(format!("/proc/{pid}/exe")).is_ok_and(|exe| (exe.dev(), exe.ino()) == self.program);
            // Closed to an ordinary caller, whose sandboxes cannot be distinguished from others of this user: by the label.
            let marked =
                ids.is_empty() && uid == rustix::process::geteuid().as_raw() && field("Name:")?.starts_with("nx-");
            (ours || marked || ids.contains(&uid)).then(|| (pid, field("Name:").unwrap_or("?").to_owned()))
        })
        .collect()
    }

    /// Looks at the present state.
    pub fn before(&self) -> Before {
        Before { mounts: mounts(), groups: groups(), files: files(self.base.path()) }
    }

    /// Fails unless everything that came since is gone, or goes soon: no process, mount, control group or file.
    pub fn assert_no_trace(&self, before: &Before, what: &str) {
        let who = self.who();
        // The searches for logins stay for the next run.
        let is_left = |path: &&PathBuf| !path.ends_with("state/searches.json");
        let files: Vec<_> = files(self.base.path()).difference(&before.files).filter(is_left).cloned().collect();
        assert!(files.is_empty(), "{who}, {what}: these files were left: {files:?}");
        assert!(self.leftovers().is_empty(), "{who}, {what}: {:?}", self.leftovers());
        self.assert_no_process(PATIENCE, what);
        let new: Vec<_> = mounts().difference(&before.mounts).filter(|line| self.may_be_ours(line)).cloned().collect();
        wait_until(&format!("{who}, {what}: the end of the mounts {new:?}"), PATIENCE, || {
            new.is_empty() || new.iter().all(|line| !mounts().contains(line))
        });
        let new: Vec<_> = groups().difference(&before.groups).cloned().collect();
        // No process of ours lives any more: a group with a process is that of another test.
        let is_left = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|all| all.is_empty());
        wait_until(&format!("{who}, {what}: the end of the groups {new:?}"), PATIENCE, || !new.iter().any(is_left));
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            for entry in fs::read_dir(folder).unwrap() {
                let Ok(meta) = entry.as_ref().unwrap().metadata() else { continue };
                assert!(!self.ids().contains(&meta.uid()), "{who}, {what}: {entry:?} was left");
            }
        }
    }

    /// Returns `false` for a line of the mount table that is about the place of another test.
    fn may_be_ours(&self, line: &str) -> bool {
        let is_within = |place: &str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(place));
        is_within(&self.base.path().display().to_string()) || !["/var/tmp/", "/tmp/"].into_iter().any(is_within)
    }

    /// Fails unless no process of this bench lives, within the limit.
    pub fn assert_no_process(&self, limit: Duration, what: &str) {
        let mut left = Vec::new();
        let end = std::time::Instant::now() + limit;
        while std::time::Instant::now() < end {
            left = self.processes();
            if left.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{}, {what}: these processes still live after {limit:?}: {left:?}", self.who());
    }
}

/// Lines of this process's mount table.
fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

/// Control groups of runs, in every hierarchy: `nexus/RUN` and `nexus/UID/RUN`.
fn groups() -> BTreeSet<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let hierarchies = table.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let mut found = BTreeSet::new();
    for hierarchy in hierarchies {
        let shared = Path::new(hierarchy).join("nexus");
        for folder in folders(&shared) {
            found.extend(folders(&folder));
            found.insert(folder);
        }
    }
    found.retain(|path| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<nexus_model::RunId>().is_ok())
    });
    found
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Everything below a directory but the parts of a state directory, which come with the first run.
fn files(base: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![base.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path.clone());
            }
            found.insert(path);
        }
    }
    let state = base.join("state");
    found.retain(|path| !["runs", "layers", "locks", "spare", "net"].iter().any(|name| *path == state.join(name)));
    // What is kept on purpose.
    found.retain(|path| !["keys", "receipts", "net"].iter().any(|name| path.starts_with(state.join(name))));
    // Empty directories that wait for the next run, with the mark that overlayfs makes; never a file of a run.
    let spare = state.join("spare");
    found
        .retain(|path| !path.starts_with(&spare) || !(path.is_dir() || path.ends_with("work/incompat/volatile/dirty")));
    found
}
