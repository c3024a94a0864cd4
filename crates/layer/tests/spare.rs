//! Directories made ahead, and layers without changes put away: faster, and nothing of one run reaches the next.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../tests/support/free_user.rs"]
mod free_user;

use nexus_layer::{Faults, Layer, LayerMode, LayerPool, Workspace};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["ws", "layers", "spare"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn layer(&self, run: &str) -> Layer {
        let pool = LayerPool::open(&self.path("spare")).unwrap();
        let workspace = Workspace::open(&self.path("ws")).unwrap();
        Layer::create_with(Some(pool), &self.path("layers"), run, &workspace, mode(), Faults::default()).unwrap()
    }

    fn tidy(&self) {
        LayerPool::open(&self.path("spare")).unwrap().tidy(mode(), &mut || false).unwrap();
    }

    fn inode(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).unwrap().ino()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn mode() -> LayerMode {
    if rustix::process::geteuid().is_root() { LayerMode::Root } else { LayerMode::User }
}

/// The name of the directories made ahead.
fn ready() -> &'static str {
    if mode() == LayerMode::Root { "ready-root" } else { "ready-user" }
}

#[test]
fn a_run_takes_pooled_directories_and_gives_them_the_workspaces_owner_and_mode() {
    let scene = Scene::new();
    fs::set_permissions(scene.path("ws"), fs::Permissions::from_mode(0o751)).unwrap();
    if mode() == LayerMode::Root {
        let user = free_user::ordinary_user().unwrap();
        std::os::unix::fs::chown(scene.path("ws"), Some(user), Some(user + 1)).unwrap();
    }
    scene.tidy();
    let made = scene.inode(&format!("spare/{}", ready()));
    let layer = scene.layer("run");
    assert_eq!(scene.inode("layers/run"), made);
    assert_eq!(scene.names("spare"), [] as [&str; 0]);
    let [workspace, upper] = ["ws", "layers/run/upper"].map(|name| fs::metadata(scene.path(name)).unwrap());
    assert_eq!((upper.mode(), upper.uid(), upper.gid()), (workspace.mode(), workspace.uid(), workspace.gid()));
    assert_eq!(fs::metadata(scene.path("layers/run")).unwrap().mode() & 0o777, 0o700);
    layer.discard().unwrap();
    assert_eq!(scene.names("layers"), [] as [&str; 0]);
}

#[test]
fn a_change_before_the_directories_were_taken_is_no_conflict() {
    let scene = Scene::new();
    scene.tidy();
    let made = fs::metadata(scene.path("spare").join(ready())).unwrap();
    let file = scene.path("ws/file");
    // Until the clock of the file system has moved on.
    loop {
        fs::write(&file, "x").unwrap();
        let written = fs::metadata(&file).unwrap();
        if (written.ctime(), written.ctime_nsec()) > (made.ctime(), made.ctime_nsec()) {
            break;
        }
    }
    let layer = scene.layer("run");
    let written = fs::metadata(&file).unwrap();
    let started = layer.started();
    assert!((started.sec, i64::from(started.nsec)) >= (written.ctime(), written.ctime_nsec()), "{started:?}");
}

#[test]
fn what_a_run_had_is_never_taken_by_another() {
    let scene = Scene::new();
    let layer = scene.layer("first");
    let seen = ["", "/upper", "/work"].map(|name| scene.inode(&format!("layers/first{name}")));
    fs::write(scene.path("layers/first/run.json"), "what was run").unwrap();
    fs::set_permissions(scene.path("layers/first/work"), fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(layer.end_if_empty().unwrap().0);
    drop(layer);
    assert_eq!(scene.names("layers"), [] as [&str; 0]);
    assert_eq!(scene.names("spare"), ["old-0"]);
    assert_eq!(scene.names("spare/old-0"), ["upper", "work"], "the note about the run is gone");
    let second = scene.layer("second");
    for name in ["", "/upper", "/work"] {
        assert!(!seen.contains(&scene.inode(&format!("layers/second{name}"))), "{name}");
    }
    scene.tidy();
    assert_eq!(scene.names("spare"), [ready()]);
    drop(second);
}

#[test]
fn a_layer_with_content_is_kept_or_removed_at_once() {
    let scene = Scene::new();
    let layer = scene.layer("changed");
    fs::write(scene.path("layers/changed/upper/secret"), "x").unwrap();
    assert!(!layer.end_if_empty().unwrap().0);
    assert!(scene.path("layers/changed/upper/secret").exists(), "it may still be committed");
    layer.discard().unwrap();
    // Overlay keeps files with several names there, and those that were deleted while they were open.
    for place in ["work/index", "work/work"] {
        let layer = scene.layer("hidden");
        fs::create_dir(scene.path("layers/hidden").join(place)).unwrap();
        fs::write(scene.path("layers/hidden").join(place).join("secret"), "x").unwrap();
        assert!(layer.end_if_empty().unwrap().0, "{place}");
    }
    assert_eq!((scene.names("layers"), scene.names("spare")), (vec![], vec![]));
}

#[test]
fn more_layers_than_places_are_removed_as_ever() {
    let scene = Scene::new();
    let layers: Vec<Layer> = (0..6).map(|number| scene.layer(&format!("run{number}"))).collect();
    for layer in &layers {
        assert!(layer.end_if_empty().unwrap().0);
    }
    assert_eq!(scene.names("layers"), [] as [&str; 0]);
    assert_eq!(scene.names("spare"), ["old-0", "old-1", "old-2", "old-3"]);
    scene.tidy();
    assert_eq!(scene.names("spare"), [ready()]);
}

#[test]
fn directories_that_were_being_made_when_the_process_was_killed_are_made_again() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("spare/new/upper")).unwrap();
    scene.tidy();
    assert_eq!(scene.names("spare"), [ready()]);
    assert_eq!(scene.names(&format!("spare/{}", ready())), ["upper", "work"]);
}

#[test]
fn tidying_that_is_stopped_anywhere_goes_on_later() {
    for stop_after in 0..9 {
        let scene = Scene::new();
        let layer = scene.layer("run");
        fs::create_dir_all(scene.path("layers/run/work/work/incompat/volatile")).unwrap();
        assert!(layer.end_if_empty().unwrap().0);
        assert_eq!(scene.names("spare"), ["old-0"]);
        let mut asked = 0;
        let mut stop = || {
            asked += 1;
            asked > stop_after
        };
        LayerPool::open(&scene.path("spare")).unwrap().tidy(mode(), &mut stop).unwrap();
        assert_eq!(scene.path("spare/old-0").exists(), stop_after < 7, "{stop_after}");
        assert_eq!(scene.path("spare").join(ready()).exists(), stop_after > 0, "{stop_after}");
        scene.tidy();
        assert_eq!(scene.names("spare"), [ready()]);
    }
}

#[test]
fn clearing_leaves_nothing() {
    let scene = Scene::new();
    assert!(scene.layer("run").end_if_empty().unwrap().0);
    let layer = scene.layer("failed");
    layer.tidy_pool(&mut || false).unwrap();
    assert_eq!(scene.names("spare"), [ready()]);
    layer.clear_pool().unwrap();
    assert_eq!(scene.names("spare"), [] as [&str; 0]);
    layer.discard().unwrap();
}

#[test]
fn one_process_tidies_and_the_others_go_on() {
    let scene = Scene::new();
    let other = fs::File::open(scene.path("spare")).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    scene.tidy();
    assert_eq!(scene.names("spare"), [] as [&str; 0]);
    drop(other);
    scene.tidy();
    assert_eq!(scene.names("spare"), [ready()]);
}

#[test]
fn a_place_on_another_file_system_is_done_without() {
    let scene = Scene::new();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = LayerPool::open(elsewhere.path()).unwrap();
    pool.tidy(mode(), &mut || false).unwrap();
    let workspace = Workspace::open(&scene.path("ws")).unwrap();
    let layers = scene.path("layers");
    let layer = Layer::create_with(Some(pool), &layers, "run", &workspace, mode(), Faults::default()).unwrap();
    assert!(layer.end_if_empty().unwrap().0);
    assert_eq!(scene.names("layers"), [] as [&str; 0]);
}
