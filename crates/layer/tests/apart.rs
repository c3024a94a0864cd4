//! Places within one mount between which the file system moves nothing: directories with different encryption policies, and
//! directories of an overlay. What cannot be moved is copied, or named before anything was changed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, write};
use nexus_layer::{
    CommitError, CommitState, Committed, Faults, Layer, LayerMode, Outside, Phase, Rules, Workspace, roll_back,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

/// Runs a test of this program in a mount namespace of its own.
fn in_own_mounts(test: &str) {
    common::child_by(&["unshare", "-m"], test, "", &[]).unwrap();
}

fn call(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A mounted file system that can encrypt, which goes with this.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("nexus-layer-disk").tempdir_in("/var/tmp").unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        call(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "encrypt"]).arg(&image));
        let device = call(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        mount(&*device, &at, "ext4", MountFlags::empty(), None).unwrap();
        for open in [dir.path(), &at] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir, device }
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    fn scene(&self, mode: LayerMode) -> Scene {
        Scene::new_in(&self.at(), mode, &base())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.at(), UnmountFlags::DETACH).ok();
        Command::new("losetup").args(["--detach", &self.device]).status().ok();
    }
}

/// Adds a key that is made of a number, and makes an empty directory take a policy with it (fscrypt).
const SET_POLICY: &str = "import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
key = bytes([int(sys.argv[2])]) * 64
arg = bytearray(struct.pack('=II32sII32s', 2, 0, b'', len(key), 0, b'') + key)
fcntl.ioctl(fd, 3 << 30 | 80 << 16 | ord('f') << 8 | 23, arg)
policy = struct.pack('=BBBBB3s16s', 2, 1, 4, 2, 0, b'', bytes(arg[8:24]))
fcntl.ioctl(fd, 2 << 30 | 12 << 16 | ord('f') << 8 | 19, policy)
";

/// Encrypts a directory with everything in it.
fn encrypt(number: u8, tree: &Path) {
    let plain = tree.with_extension("plain");
    fs::rename(tree, &plain).unwrap();
    fs::create_dir(tree).unwrap();
    call(Command::new("/usr/bin/python3").args(["-c", SET_POLICY]).arg(tree).arg(number.to_string()));
    call(Command::new("cp").arg("-aT").arg(&plain).arg(tree));
    fs::remove_dir_all(plain).unwrap();
}

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn base() -> Vec<Op> {
    let dirs = ["a", "p", "p/in", "z", "z/in"].map(dir);
    let files = ["a/f", "p/f", "p/in/f", "z/f", "z/in/f", "top"].map(|file| write(file, "old"));
    [dirs.to_vec(), files.to_vec()].concat()
}

fn run() -> Vec<Op> {
    let mut all: Vec<Op> = ["a/f", "p/f", "p/new", "z/new", "top"].map(|file| write(file, "run")).to_vec();
    all.extend([dir("new"), write("new/f", "run"), Op::RemoveTree(b("z/in")), Op::Remove(b("p/in/f"))]);
    all
}

fn commit(scene: &Scene, layer: &Layer, except: &[&str]) -> Result<Committed, CommitError> {
    let except = except.iter().map(|path| b(path).into()).collect();
    layer.commit(&scene.workspace(), &Rules { except, ..Rules::default() })
}

fn blocked(done: &Committed) -> Vec<String> {
    let path = |one: &nexus_layer::Conflict| {
        assert_eq!(one.outside, Outside::Blocked, "{done:?}");
        assert!(one.detail.as_ref().is_some_and(|detail| detail.contains("the file system")), "{done:?}");
        String::from_utf8_lossy(&one.path.0).into_owned()
    };
    done.conflicts.iter().map(path).collect()
}

#[test]
fn a_layer_that_is_encrypted_otherwise_than_the_workspace_is_copied() {
    in_own_mounts("child_commits_to_an_encrypted_workspace");
}

#[test]
#[ignore = "the child of another test"]
fn child_commits_to_an_encrypted_workspace() {
    let disk = Disk::new();
    for mode in MODES {
        for (of_the_workspace, of_the_layers) in [(5, 0), (5, 6), (0, 6), (5, 5), (0, 0)] {
            let scene = disk.scene(mode);
            for (number, name) in [(of_the_workspace, "ws"), (of_the_layers, "layers")] {
                if number > 0 {
                    encrypt(number, &scene.path(name));
                }
            }
            common::wait_for_tick(scene.dir.path());
            let layer = scene.layer(&run());
            let inode = fs::metadata(layer.upper().join("a/f")).unwrap().ino();
            let done = commit(&scene, &layer, &[]).unwrap();
            assert_eq!((done.state, &done.conflicts[..], &done.parked[..]), (CommitState::Committed, &[][..], &[][..]));
            assert_eq!(scene.found(), scene.wanted());
            let is_moved = fs::metadata(scene.ws().join("a/f")).unwrap().ino() == inode;
            let moves = of_the_layers == of_the_workspace;
            assert_eq!(is_moved, moves, "{mode:?} {of_the_workspace} {of_the_layers}");
        }
    }
}

#[test]
fn a_directory_that_is_apart_is_named_before_anything_is_changed() {
    in_own_mounts("child_commits_beside_an_encrypted_directory");
}

#[test]
#[ignore = "the child of another test"]
fn child_commits_beside_an_encrypted_directory() {
    let disk = Disk::new();
    for mode in MODES {
        let scene = disk.scene(mode);
        encrypt(7, &scene.ws().join("p"));
        common::wait_for_tick(scene.dir.path());
        let before = scene.found();
        let layer = scene.layer(&run());
        let done = commit(&scene, &layer, &[]).unwrap();
        assert_eq!((done.state, blocked(&done)), (CommitState::Parked, vec!["p".to_owned()]));
        assert_eq!(scene.found(), before);
        let done = commit(&scene, &layer, &["p"]).unwrap();
        assert_eq!((done.state, &done.conflicts[..]), (CommitState::Committed, &[][..]));
        let text = |path: &str| fs::read_to_string(scene.ws().join(path)).unwrap();
        assert_eq!(["a/f", "p/f", "z/new", "new/f"].map(text), ["run", "old", "run", "run"]);
        assert!(!scene.ws().join("z/in").exists());
    }
}

#[test]
#[ignore = "the child of another test"]
fn child_is_refused_by_the_file_system() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let layer = common::reopen(&scene.join("layers"));
    match layer.commit(&Workspace::open(&scene.join("ws")).unwrap(), &Rules::default()) {
        Ok(done) => {
            let [conflict] = &done.conflicts[..] else { panic!("{done:?}") };
            assert_eq!((done.state, conflict.outside), (CommitState::Parked, Outside::Blocked), "{done:?}");
            assert!(conflict.detail.as_ref().is_some_and(|detail| detail.contains("cross-device")), "{done:?}");
            assert!(done.parked.iter().any(|change| change.path == conflict.path), "{done:?}");
        }
        Err(CommitError::Interrupted { .. }) => std::process::exit(INTERRUPTED),
        Err(error) => panic!("{error:?}"),
    }
}

/// The exit code of a child whose commit could not be taken back.
const INTERRUPTED: i32 = 9;

/// The file system says only at a step that it does not move an entry.
#[test]
fn a_commit_that_meets_what_cannot_be_moved_is_taken_back() {
    for mode in MODES {
        for refused in ["1", "2", "3", "5", "2+", "4+"] {
            let scene = Scene::new(mode, &base());
            let before = scene.found();
            let layer = scene.layer(&run());
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            drop(layer);
            if mode == LayerMode::User {
                common::give(&scene.path("layers"));
            }
            let inject = format!("inject=renameat2:error=EXDEV:when={refused}");
            let user = common::user().to_string();
            let mut words = vec!["strace", "-f", "-o", "/dev/null", "-e", &*inject];
            if mode == LayerMode::User {
                words.splice(0..0, ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
            }
            let order = scene.dir.path().to_str().unwrap();
            let ended = common::child_by(&words, "child_is_refused_by_the_file_system", order, &[]);
            // With every later call refused, only the next command can take the commit back.
            if refused.ends_with('+') {
                let said = ended.unwrap_err();
                assert!(said.contains(&format!("({})", INTERRUPTED << 8)), "{said}");
                assert_eq!(roll_back(&scene.path("layers"), "run", &scene.workspace()).unwrap(), []);
            } else {
                ended.unwrap();
            }
            assert_eq!(scene.found(), before, "{mode:?} {refused}");
            // Nothing stands in the way any more.
            let layer = common::reopen(&scene.path("layers"));
            layer.note_shown().unwrap();
            let done = commit(&scene, &layer, &[]).unwrap();
            assert_eq!((done.state, &done.conflicts[..]), (CommitState::Committed, &[][..]), "{mode:?} {refused}");
            assert_eq!(scene.found(), scene.wanted());
        }
    }
}

/// A scene whose workspace is an overlay with everything in its lower layer.
fn on_overlay(mode: LayerMode) -> Scene {
    let scene = Scene::new(mode, &base());
    let place = |name: &str| scene.path(name).to_str().unwrap().to_owned();
    fs::rename(scene.ws(), scene.path("lower")).unwrap();
    for name in ["ws", "upper", "work"] {
        fs::create_dir(scene.path(name)).unwrap();
    }
    if mode == LayerMode::User {
        for name in ["ws", "upper", "work"] {
            common::give(&scene.path(name));
        }
    }
    let directories = ["lower", "upper", "work"].map(|name| format!("{name}dir={},", place(name)));
    let options = CString::new(directories.concat() + "redirect_dir=off").unwrap();
    mount("overlay", scene.ws(), "overlay", MountFlags::empty(), &*options).unwrap();
    scene
}

#[test]
fn what_an_overlay_copies_up_is_no_change_from_outside() {
    in_own_mounts("child_commits_what_an_overlay_copies_up");
}

#[test]
#[ignore = "the child of another test"]
fn child_commits_what_an_overlay_copies_up() {
    for mode in MODES {
        for fails in [false, true] {
            let scene = on_overlay(mode);
            common::wait_for_tick(scene.dir.path());
            let edits = [write("a/f", "run"), write("z/in/f", "run"), Op::Remove(b("p/in/f")), write("p/new", "run")];
            let mut layer = scene.layer(&edits);
            if fails {
                let origin = layer.origin();
                layer.set_faults(Faults::failing(Phase::WriteJournal));
                assert!(matches!(commit(&scene, &layer, &[]), Err(CommitError::Prepare { .. })));
                drop(layer);
                layer = Layer::adopt(&scene.path("layers"), "run", &origin).unwrap();
                layer.set_unreached();
            }
            let done = commit(&scene, &layer, &[]).unwrap();
            assert_eq!((done.state, &done.conflicts[..], &done.parked[..]), (CommitState::Committed, &[][..], &[][..]));
            assert_eq!(scene.found(), scene.wanted(), "{mode:?}");
            drop(layer);
            unmount(scene.ws(), UnmountFlags::DETACH).unwrap();
        }
    }
}

#[test]
fn a_directory_that_an_overlay_cannot_move_is_named_before_anything_is_changed() {
    in_own_mounts("child_commits_to_an_overlay");
}

#[test]
#[ignore = "the child of another test"]
fn child_commits_to_an_overlay() {
    for mode in MODES {
        for (acts, named) in [
            (vec![Op::RemoveTree(b("z/in"))], "z/in"),
            (vec![Op::RemoveTree(b("z/in")), write("z/in", "a file")], "z/in"),
            (vec![Op::RemoveTree(b("z")), dir("z"), write("z/f", "run")], "z/in"),
        ] {
            let scene = on_overlay(mode);
            common::wait_for_tick(scene.dir.path());
            let before = scene.found();
            let edits = [write("a/f", "run"), write("top", "run"), Op::Remove(b("p/f"))].to_vec();
            let layer = scene.layer(&[edits, acts.clone()].concat());
            let done = commit(&scene, &layer, &[]).unwrap();
            assert_eq!(
                (done.state, blocked(&done)),
                (CommitState::Parked, vec![named.to_owned()]),
                "{mode:?} {acts:?}"
            );
            assert_eq!(scene.found(), before);
            let done = commit(&scene, &layer, &[named]).unwrap();
            assert_eq!((done.state, &done.conflicts[..]), (CommitState::Committed, &[][..]), "{mode:?} {acts:?}");
            let text = |path: &str| fs::read_to_string(scene.ws().join(path)).unwrap();
            assert_eq!(["a/f", "top", "z/in/f"].map(text), ["run", "run", "old"]);
            assert!(!scene.ws().join("p/f").exists());
            drop(layer);
            unmount(scene.ws(), UnmountFlags::DETACH).unwrap();
        }
    }
}
