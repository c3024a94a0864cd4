//! A workspace, a plain copy of it and a real overlay over it. Operations run in a child of the test program that has
//! a mount namespace of its own (and, for an ordinary user's layer, another uid and a user namespace).

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

#[path = "../../../../tests/support/free_user.rs"]
mod free_user;

use nexus_layer::{Layer, LayerMode, Rules, Workspace};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ordinary user that root plays.
pub fn user() -> u32 {
    free_user::ordinary_user().unwrap()
}

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

/// A path in bytes.
pub fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// An operation that writes a file.
pub fn write(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

/// An operation that renames an entry.
pub fn rename(from: &str, to: &str) -> Op {
    Op::Rename(b(from), b(to))
}

/// The workspace of a scene, looked at with leases: open files are seen.
pub fn leased(scene: &Scene) -> Workspace {
    Workspace::open(&scene.ws()).unwrap().with_leases(settled_lease)
}

/// Takes a lease. Between fork and exec, a child that another test of this process starts has every open file of this process,
/// so that a lease is refused for a moment.
pub fn settled_lease(file: BorrowedFd<'_>, take: bool) -> std::io::Result<()> {
    for _ in 0..5 {
        match nexus_jail::lease::read_lease(file, take) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done,
        }
    }
    nexus_jail::lease::read_lease(file, take)
}

/// Tells whether an entry below a directory is a file with this text, or a link to it. Lists of a commit count as none.
pub fn has(at: &Path, text: &str) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(at) else { return false };
    if meta.is_dir() {
        return std::fs::read_dir(at).unwrap().any(|entry| has(&entry.unwrap().path(), text));
    }
    if meta.is_symlink() {
        return std::fs::read_link(at).unwrap() == Path::new(text);
    }
    let is_file = meta.is_file() && !at.ends_with("journal") && !at.ends_with("parked.json");
    is_file && String::from_utf8_lossy(&std::fs::read(at).unwrap()).contains(text)
}

/// Dies before the call with this number after the decision of a commit.
#[cfg(feature = "inject")]
pub fn dying(scene: &Scene, nth: u64) -> nexus_layer::Faults {
    dying_at(scene.path("layers/run/journal"), nth)
}

/// Dies before the call with this number after a file came.
#[cfg(feature = "inject")]
pub fn dying_at(file: PathBuf, nth: u64) -> nexus_layer::Faults {
    use std::sync::atomic::{AtomicU64, Ordering};
    let calls = AtomicU64::new(0);
    nexus_layer::Faults::default().between(std::sync::Arc::new(move |_| {
        if file.exists() && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            std::panic::panic_any("crash");
        }
    }))
}

/// One operation of a run. Paths are relative.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Op {
    Write(Vec<u8>, String),
    Append(Vec<u8>, String),
    /// A text and so many blanks behind it.
    Padded(Vec<u8>, String, usize),
    Sparse(Vec<u8>),
    Mkdir(Vec<u8>),
    Remove(Vec<u8>),
    RemoveTree(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Link(Vec<u8>, Vec<u8>),
    Symlink(Vec<u8>, Vec<u8>),
    Fifo(Vec<u8>),
    Chmod(Vec<u8>, u32),
    SetXattr(Vec<u8>, String),
    Touch(Vec<u8>),
    /// Sets the time of the last change, in seconds.
    Date(Vec<u8>, i64),
    /// Runs git with these words.
    Git(Vec<String>),
}

pub fn at(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

fn write_file(path: &Path, text: &str, flags: OFlags) -> rustix::io::Result<()> {
    let flags = flags | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

/// Runs one operation below `root`.
pub fn run_op(root: &Path, op: &Op) -> rustix::io::Result<()> {
    use rustix::fs;
    let p = |path: &[u8]| at(root, path);
    match op {
        Op::Write(path, text) => write_file(&p(path), text, OFlags::CREATE | OFlags::TRUNC),
        Op::Padded(path, text, blanks) => {
            write_file(&p(path), &format!("{text}{}", " ".repeat(*blanks)), OFlags::CREATE | OFlags::TRUNC)
        }
        Op::Append(path, text) => write_file(&p(path), text, OFlags::APPEND),
        Op::Sparse(path) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = fs::open(p(path), flags, Mode::from_raw_mode(0o600))?;
            rustix::io::pwrite(&file, b"end", 300_000)?;
            Ok(())
        }
        Op::Mkdir(path) => fs::mkdir(p(path), Mode::from_raw_mode(0o755)),
        Op::Git(words) => {
            // A run of git in the background would hold the overlay.
            let who = ["safe.directory=*", "user.name=a", "user.email=a@b", "maintenance.auto=false", "gc.auto=0"]
                .map(|set| ["-c", set]);
            let done = Command::new("git").args(who.concat()).args(words).current_dir(root).status();
            if done.is_ok_and(|status| status.success()) { Ok(()) } else { Err(rustix::io::Errno::IO) }
        }
        Op::Remove(path) => match fs::unlink(p(path)) {
            Err(rustix::io::Errno::ISDIR) => fs::rmdir(p(path)),
            other => other,
        },
        Op::RemoveTree(path) => {
            let path = p(path);
            let result = if fs::lstat(&path)?.st_mode & 0o170_000 == 0o040_000 {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            result.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap())
        }
        Op::Rename(from, to) => fs::rename(p(from), p(to)),
        Op::Link(from, to) => fs::linkat(CWD, p(from), CWD, p(to), AtFlags::empty()),
        Op::Symlink(target, path) => fs::symlink(OsStr::from_bytes(target), p(path)),
        Op::Fifo(path) => fs::mkfifoat(CWD, p(path), Mode::from_raw_mode(0o644)),
        Op::Chmod(path, mode) => {
            // chmod(2) would follow a link.
            if fs::lstat(p(path))?.st_mode & 0o170_000 == 0o120_000 {
                return Err(rustix::io::Errno::LOOP);
            }
            fs::chmod(p(path), Mode::from_raw_mode(*mode))
        }
        Op::SetXattr(path, value) => fs::lsetxattr(p(path), "user.test", value.as_bytes(), XattrFlags::empty()),
        Op::Touch(path) => run_op(root, &Op::Date(path.clone(), 1_000_000)),
        Op::Date(path, seconds) => {
            let at = rustix::fs::Timespec { tv_sec: *seconds, tv_nsec: 5 };
            let times = rustix::fs::Timestamps { last_access: at, last_modification: at };
            fs::utimensat(CWD, p(path), &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

/// One entry as a test compares it: type, mode, content, attribute, and the first name of the same file.
pub type Entry = (char, u32, Vec<u8>, Vec<u8>, Vec<u8>);

/// Everything below `root` by path.
pub fn snapshot(root: &Path, with_links: bool) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let kind = meta.file_type();
            let (kind, content) = if kind.is_dir() {
                stack.push(path.clone());
                ('d', Vec::new())
            } else if kind.is_symlink() {
                ('l', std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if kind.is_file() {
                ('f', std::fs::read(&path).unwrap())
            } else if kind.is_fifo() {
                ('p', Vec::new())
            } else {
                ('?', Vec::new())
            };
            let mode = if kind == 'l' { 0 } else { meta.mode() & 0o7777 };
            let mut value = vec![0; 64];
            let length = rustix::fs::lgetxattr(&path, "user.test", &mut *value).unwrap_or(0);
            value.truncate(length);
            let mut list = vec![0; 4096];
            let length = rustix::fs::llistxattr(&path, &mut *list).unwrap();
            let list = String::from_utf8_lossy(&list[..length]).into_owned();
            assert!(!list.contains("overlay"), "{} carries {list:?}", path.display());
            let ino = meta.ino().to_be_bytes().to_vec();
            all.insert(name, (kind, mode, content, value, ino));
        }
    }
    let mut first: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (name, entry) in &mut all {
        let representative = first.entry(entry.4.clone()).or_insert_with(|| name.clone()).clone();
        entry.4 = if with_links && entry.0 != 'd' { representative } else { Vec::new() };
    }
    all
}

/// A file system that syncs to something.
const DISK: &str = "/var/tmp";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// Reports whether layers of all modes can lie in memory: tmpfs has attributes of users from Linux 6.6 on.
fn memory_has_layers() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| {
        let set = |dir: tempfile::TempDir| rustix::fs::setxattr(dir.path(), "user.nexus", b"1", XattrFlags::CREATE);
        tempfile::tempdir_in(MEMORY).is_ok_and(|dir| set(dir).is_ok())
    })
}

/// A scene: `ws`, `plain` (its copy), `layers`, `merged`.
pub struct Scene {
    pub dir: tempfile::TempDir,
    pub mode: LayerMode,
}

#[derive(Serialize, Deserialize)]
struct Order {
    mode: LayerMode,
    scene: PathBuf,
    ops: Vec<Op>,
}

impl Scene {
    /// Makes the workspace with `base` operations, which may fail.
    pub fn new(mode: LayerMode, base: &[Op]) -> Self {
        Self::new_in(Path::new(DISK), mode, base)
    }

    /// Makes one of many scenes of a test. The first and each fourth after it lie on the disk; the others lie in memory,
    /// where a sync takes no time.
    pub fn one_of_many(mode: LayerMode, base: &[Op]) -> Self {
        thread_local!(static MADE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let number = MADE.replace(MADE.get() + 1);
        Self::new_in(
            if number.is_multiple_of(4) || !memory_has_layers() { Path::new(DISK) } else { Path::new(MEMORY) },
            mode,
            base,
        )
    }

    /// Makes the scene in another directory than the usual one.
    pub fn new_in(place: &Path, mode: LayerMode, base: &[Op]) -> Self {
        let scene = Self { dir: tempfile::Builder::new().prefix("nexus-layer").tempdir_in(place).unwrap(), mode };
        std::fs::set_permissions(scene.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["ws", "layers", "merged"] {
            std::fs::create_dir(scene.path(name)).unwrap();
        }
        for op in base {
            run_op(&scene.ws(), op).ok();
        }
        let copied = Command::new("cp").arg("-a").arg(scene.ws()).arg(scene.path("plain")).status().unwrap();
        assert!(copied.success());
        if mode == LayerMode::User {
            give(scene.dir.path());
        }
        // Ticks of the file system's clock are coarse: the layer must be made after the workspace.
        wait_for_tick(scene.dir.path());
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn ws(&self) -> PathBuf {
        self.path("ws")
    }

    pub fn workspace(&self) -> Workspace {
        Workspace::open(&self.ws()).unwrap()
    }

    /// Makes a layer "run" and lets the operations run in its overlay and on the plain copy.
    pub fn layer(&self, ops: &[Op]) -> Layer {
        let mut layer = Layer::create(&self.path("layers"), "run", &self.workspace(), self.mode).unwrap();
        if self.mode == LayerMode::User {
            give(&self.path("layers"));
        }
        let order = Order { mode: self.mode, scene: self.dir.path().to_owned(), ops: ops.to_vec() };
        self.child("common::child_runs_operations", &serde_json::to_string(&order).unwrap(), &[], true).unwrap();
        layer.set_unreached();
        layer
    }

    /// Runs a test of this program as a child, as the layer's user. `Err` holds the output.
    pub fn child(&self, test: &str, order: &str, env: &[(&str, &str)], namespaces: bool) -> Result<(), String> {
        let user = user().to_string();
        let mut words: Vec<&str> = Vec::new();
        if self.mode == LayerMode::User {
            words.extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        if namespaces {
            words.extend(["unshare", if self.mode == LayerMode::User { "-Urm" } else { "-m" }]);
        }
        child_by(&words, test, order, env)
    }

    /// Returns the workspace as it should be after everything was committed.
    pub fn wanted(&self) -> BTreeMap<Vec<u8>, Entry> {
        snapshot(&self.path("plain"), self.with_links())
    }

    pub fn found(&self) -> BTreeMap<Vec<u8>, Entry> {
        snapshot(&self.ws(), self.with_links())
    }

    /// An ordinary user's overlay parts hard links of the workspace.
    fn with_links(&self) -> bool {
        self.mode == LayerMode::Root
    }
}

/// Runs a test of this program as a child behind other words. `Err` holds the output.
pub fn child_by(words: &[&str], test: &str, order: &str, env: &[(&str, &str)]) -> Result<(), String> {
    let mut command = Command::new("env");
    command.args(words).arg(open_to_all());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("NEXUS_TEST_ORDER", order).envs(env.iter().copied());
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{:?}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Gives a tree to the ordinary user.
pub fn give(tree: &Path) {
    let owner = format!("{0}:{0}", user());
    assert!(Command::new("chown").args(["-R", "-h", &owner]).arg(tree).status().unwrap().success());
    // The new owner is not a change of what was parked.
    if let Ok(parked) = std::fs::File::open(tree.join("run/parked.json")) {
        parked.set_modified(std::time::SystemTime::now()).unwrap();
    }
}

/// Waits until a new file gets another time stamp than one made before.
pub fn wait_for_tick(dir: &Path) {
    let stamp = || {
        let file = dir.join("tick");
        std::fs::write(&file, "").unwrap();
        let meta = std::fs::metadata(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    let first = stamp();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while stamp() == first {
        assert!(std::time::Instant::now() < deadline, "the clock of the file system stands still");
    }
}

/// The child's part of [`Scene::layer`].
pub fn run_operations_of_parent() {
    let order: Order = serde_json::from_str(&std::env::var("NEXUS_TEST_ORDER").unwrap()).unwrap();
    let path = |name: &str| order.scene.join(name);
    let (ws, upper, work) = (path("ws"), path("layers/run/upper"), path("layers/run/work"));
    let extra = match order.mode {
        LayerMode::Root => "redirect_dir=on,index=on",
        LayerMode::User => "userxattr",
    };
    let options = format!("lowerdir={},upperdir={},workdir={},{extra}", ws.display(), upper.display(), work.display());
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("overlay", path("merged"), "overlay", rustix::mount::MountFlags::empty(), &*options).unwrap();
    for (number, op) in order.ops.iter().enumerate() {
        let layered = run_op(&path("merged"), op);
        // The documented difference of an ordinary user's overlay; the plain copy does without the operation too.
        if layered == Err(rustix::io::Errno::XDEV) && order.mode == LayerMode::User {
            continue;
        }
        if matches!(op, Op::Git(_)) {
            // The plain copy has no repository that the test made later.
            layered.unwrap();
            continue;
        }
        let plain = run_op(&path("plain"), op);
        assert_eq!(layered.is_ok(), plain.is_ok(), "operation {number} {op:?}: overlay {layered:?}, plain {plain:?}");
    }
    rustix::mount::unmount(path("merged"), rustix::mount::UnmountFlags::empty()).unwrap();
}

/// The child's part of a commit by an ordinary user: the order is the scene's directory. Prints the result.
pub fn commit_for_parent() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    let layer = reopen(&scene.join("layers"));
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert!(result.conflicts.is_empty(), "{:?}", result.conflicts);
    assert!(result.parked.is_empty(), "{:?}", result.parked);
}

/// Opens the layer "run", which its parent process parked.
pub fn reopen(layers: &Path) -> Layer {
    Layer::open(layers, "run").unwrap()
}

/// A copy of this program that an ordinary user can execute: the build directory may be closed to others.
fn open_to_all() -> &'static Path {
    use std::os::unix::fs::PermissionsExt;
    static COPY: std::sync::OnceLock<(Option<tempfile::TempDir>, PathBuf)> = std::sync::OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let is_open = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o001 != 0;
        if exe.ancestors().all(is_open) {
            return (None, exe);
        }
        let folder = tempfile::Builder::new().prefix("nexus-layer-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("test");
        // By another process, whose open descriptor no fork of a test beside this one holds (ETXTBSY).
        assert!(Command::new("install").args(["-m", "755"]).arg(exe).arg(&path).status().unwrap().success());
        (Some(folder), path)
    });
    path
}
