//! A reject never removes the last copy of what an accept deleted, also where overlay marks no copy: on a file system without
//! file handles (FUSE, 9p), for files with several names, and for symbolic links, FIFOs and devices of an ordinary user.

#![allow(clippy::unwrap_used, reason = "this is a test")]

#[path = "../../../tests/support/skip.rs"]
mod skip;

mod common;

use common::{Op, Scene, at, b, has, leased, rename, write};
use nexus_layer::{Abandoned, Faults, LayerMode, Rules, abandon};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file systems of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lower {
    Disk,
    /// A FUSE file system with file handles.
    Handles,
    /// A file system without handles.
    NoHandles,
}

/// Says why this machine has no FUSE file system for a test.
fn no_fuse() -> Option<&'static str> {
    let has_python = Command::new("/usr/bin/python3").arg("--version").output().is_ok_and(|done| done.status.success());
    match () {
        () if !has_python => Some("there is no python3 for the FUSE file system"),
        () if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() => Some("there is no /dev/fuse"),
        () => None,
    }
}

/// A FUSE file system over the directory of the workspace, as long as this lives.
struct Shown<'a> {
    scene: &'a Scene,
    server: Option<Child>,
}

impl<'a> Shown<'a> {
    fn new(scene: &'a Scene, lower: Lower) -> Self {
        if lower == Lower::Disk {
            return Self { scene, server: None };
        }
        fs::rename(scene.ws(), scene.path("backing")).unwrap();
        fs::create_dir(scene.ws()).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/passthrough.py");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(program).args([scene.path("backing"), scene.ws()]).stdout(Stdio::piped());
        command.arg(if lower == Lower::Handles { "handles" } else { "none" });
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { scene, server: Some(server) }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // The server ends with its mount.
            let ws = self.scene.ws();
            if rustix::mount::unmount(ws, rustix::mount::UnmountFlags::DETACH).is_err() {
                server.kill().ok();
            }
            server.wait().ok();
        }
    }
}

/// Everything that a run does with an entry of the user, and the paths that are accepted.
struct Story {
    name: &'static str,
    base: Vec<Op>,
    run: Vec<Op>,
    accepted: &'static [&'static str],
}

fn story(name: &'static str, base: &[Op], run: &[Op], accepted: &'static [&'static str]) -> Story {
    Story { name, base: base.to_vec(), run: run.to_vec(), accepted }
}

fn stories() -> Vec<Story> {
    let two = [write("f", "text of f"), Op::Link(b("f"), b("f2"))];
    let inside = [Op::Mkdir(b("d")), write("d/f", "text of f"), Op::Link(b("d/f"), b("d/f2"))];
    let link = [Op::Symlink(b("text of f"), b("f"))];
    let in_directory = [Op::Mkdir(b("d")), Op::Symlink(b("text of f"), b("d/f"))];
    vec![
        story("a file", &[write("f", "text of f")], &[rename("f", "g")], &["f"]),
        story("two names", &two, &[rename("f", "g"), Op::Remove(b("f2"))], &["f", "f2"]),
        story(
            "two names, edited",
            &two,
            &[rename("f", "g"), Op::Append(b("g"), "x".into()), Op::Remove(b("f2"))],
            &["f", "f2"],
        ),
        story("two names one after the other", &two, &[rename("f", "g"), Op::Remove(b("f2"))], &["f2", "f"]),
        story("two names in a directory", &inside, &[rename("d/f", "g"), Op::RemoveTree(b("d"))], &["d"]),
        story("a link", &link, &[rename("f", "g")], &["f"]),
        story("a link over a file", &[&link[..], &[write("g", "old")]].concat(), &[rename("f", "g")], &["f"]),
        story("a link in a directory", &in_directory, &[rename("d/f", "g"), Op::RemoveTree(b("d"))], &["d"]),
        // mv(1) of a directory in an ordinary user's layer.
        story(
            "a directory that a program copied",
            &[Op::Mkdir(b("d")), write("d/f", "text of f")],
            &[Op::Mkdir(b("g")), write("g/f", "text of f"), Op::RemoveTree(b("d"))],
            &["d"],
        ),
        story(
            "a directory that a program copied, edited",
            &[Op::Mkdir(b("d")), write("d/f", "text of f")],
            &[Op::Mkdir(b("g")), write("g/f", "text of f and more"), Op::RemoveTree(b("d"))],
            &["d"],
        ),
        story(
            "a file that a program copied",
            &[write("f", "text of f")],
            &[write("g", "text of f"), Op::Remove(b("f"))],
            &["f"],
        ),
        story(
            "a file that a program copied and renamed in the copy of its directory, edited",
            &[Op::Mkdir(b("d")), write("d/f", "text of f")],
            &[Op::Mkdir(b("g")), write("g/h", "text of f and more"), Op::RemoveTree(b("d"))],
            &["d"],
        ),
        story(
            "a file that a program copied over another",
            &[write("f", "text of f"), write("g", "other")],
            &[write("g", "text of f"), Op::Remove(b("f"))],
            &["f"],
        ),
        story(
            "a file that a program copied over another before it was replaced",
            &[write("f", "text of f"), write("g", "other")],
            &[Op::Append(b("g"), "text of f".into()), write("f", "new")],
            &["f"],
        ),
        story(
            "a file that a program copied before it was replaced",
            &[write("f", "text of f")],
            &[write("g", "text of f"), write("f", "new")],
            &["f"],
        ),
        story(
            "a link that a program copied",
            &link,
            &[Op::Symlink(b("text of f"), b("g")), Op::Remove(b("f"))],
            &["f"],
        ),
        story("a file over another", &[write("f", "text of f"), write("g", "other")], &[rename("f", "g")], &["f"]),
        story(
            "a file over another, edited",
            &[write("f", "text of f"), write("g", "other")],
            &[rename("f", "g"), Op::Append(b("g"), "x".into())],
            &["f"],
        ),
    ]
}

fn accept(scene: &Scene, layer: &nexus_layer::Layer, paths: &[&str]) {
    let chosen = Rules { only: Some(paths.iter().map(|path| b(path).into()).collect()), ..Rules::default() };
    let done = layer.commit(&leased(scene), &chosen).unwrap();
    assert!(done.conflicts.is_empty(), "{done:?}");
}

/// Accepts the deletions of a story, one after the other or at once, and rejects the rest.
fn play(mode: LayerMode, lower: Lower, story: &Story, at_once: bool) {
    let what = format!("{} {mode:?} {lower:?} {at_once}", story.name);
    let scene = Scene::new(mode, &story.base);
    let shown = Shown::new(&scene, lower);
    let mut layer = Some(scene.layer(&story.run));
    let groups: Vec<_> = if at_once { vec![story.accepted] } else { story.accepted.chunks(1).collect() };
    for paths in groups {
        let open = layer.take().unwrap_or_else(|| nexus_layer::Layer::open(&scene.path("layers"), "run").unwrap());
        accept(&scene, &open, paths);
    }
    let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    if !has(&scene.ws(), "text of f") {
        let Abandoned::Removed(Some(left)) = left else { panic!("{what}: nothing is named") };
        assert!(has(left.at.as_path(), "text of f"), "{what}: {left:?}");
        assert!(left.why.contains("only copy"), "{what}: {left:?}");
    }
    drop(shown);
}

#[test]
fn a_reject_keeps_a_last_copy_that_has_no_mark() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for story in stories() {
            for at_once in [true, false] {
                play(mode, Lower::Disk, &story, at_once);
            }
        }
    }
}

#[test]
fn a_reject_keeps_a_last_copy_on_a_fuse_file_system() {
    if let Some(why) = no_fuse() {
        skip::skipped(why);
        return;
    }
    for lower in [Lower::Handles, Lower::NoHandles] {
        for mode in [LayerMode::Root, LayerMode::User] {
            for story in stories() {
                play(mode, lower, &story, true);
            }
        }
    }
}

/// Another process takes the new name after the decision, so that it is kept back.
#[test]
fn what_has_no_mark_and_is_kept_back_keeps_its_old_names() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for lower in [Lower::Disk, Lower::NoHandles] {
            if lower == Lower::NoHandles
                && let Some(why) = no_fuse()
            {
                skip::partial(why);
                continue;
            }
            for story in stories().iter().filter(|story| !story.name.contains("over")) {
                let what = format!("{} {mode:?} {lower:?}", story.name);
                let scene = Scene::new(mode, &story.base);
                let shown = Shown::new(&scene, lower);
                let mut layer = scene.layer(&story.run);
                let (journal, new, done) =
                    (scene.path("layers/run/journal"), scene.ws().join("g"), AtomicBool::new(false));
                layer.set_faults(Faults::default().between(Arc::new(move |_| {
                    if journal.exists() && !done.swap(true, Ordering::SeqCst) {
                        fs::write(&new, "of another process").unwrap();
                    }
                })));
                layer.commit(&leased(&scene), &Rules::default()).unwrap();
                drop(layer);
                let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
                let is_kept = has(&scene.ws(), "text of f") || has(&scene.path("layers"), "text of f");
                assert!(is_kept, "{what}: {left:?}");
                assert_eq!(fs::read_to_string(scene.ws().join("g")).unwrap(), "of another process", "{what}");
                drop(shown);
            }
        }
    }
}

#[test]
fn an_archive_may_hold_what_went_away() {
    let file = write("f", "text of f");
    for (mode, archive) in [(LayerMode::Root, "BZh91AY&SY"), (LayerMode::User, "PK\u{3}\u{4}and more")] {
        let scene = Scene::new(mode, std::slice::from_ref(&file));
        let layer = scene.layer(&[Op::Remove(b("f")), write("n", archive)]);
        accept(&scene, &layer, &["f"]);
        drop(layer);
        let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
        assert!(matches!(left, Abandoned::Removed(Some(_))), "{archive:?}: {left:?}");
        assert!(has(&scene.path("layers"), archive), "{archive:?}");
    }
}

/// A file that cannot be a copy of the one that went away keeps no layer.
#[test]
fn what_cannot_be_a_copy_of_what_went_keeps_no_layer() {
    let file = write("f", "text of f");
    for mode in [LayerMode::Root, LayerMode::User] {
        for (name, base, run) in [
            ("a new file", vec![file.clone()], vec![Op::Remove(b("f")), write("n", "new")]),
            (
                "a new directory",
                vec![Op::Mkdir(b("f")), write("f/a", "text of a")],
                vec![Op::RemoveTree(b("f")), Op::Mkdir(b("n")), write("n/b", "new")],
            ),
            (
                "a copy of a file that stays",
                vec![write("f", "text of f\n")],
                vec![Op::Append(b("f"), "more".into()), write("n", "text of f")],
            ),
            ("a new link", vec![file.clone()], vec![Op::Remove(b("f")), Op::Symlink(b("text of f"), b("n"))]),
            (
                "another link",
                vec![Op::Symlink(b("long target"), b("f"))],
                vec![Op::Remove(b("f")), Op::Symlink(b("x"), b("n"))],
            ),
            (
                "another renamed file",
                vec![file.clone(), write("h", "longer text of h")],
                vec![Op::Remove(b("f")), rename("h", "n")],
            ),
            (
                "an edit after a link went",
                vec![Op::Symlink(b("target"), b("f")), write("n", "text of n")],
                vec![Op::Remove(b("f")), Op::Append(b("n"), "more".into())],
            ),
            (
                "an edit after an empty file went",
                vec![write("f", ""), write("n", "text of n")],
                vec![Op::Remove(b("f")), Op::Append(b("n"), "more".into())],
            ),
            (
                "a file of which names stay",
                vec![file.clone(), Op::Link(b("f"), b("f2"))],
                vec![Op::Remove(b("f")), write("n", "new")],
            ),
            (
                "a renamed file after an edit",
                vec![file.clone(), write("h", "longer text of h")],
                vec![Op::Append(b("f"), "more".into()), rename("h", "n")],
            ),
        ] {
            let scene = Scene::new(mode, &base);
            let layer = scene.layer(&run);
            accept(&scene, &layer, &["f"]);
            drop(layer);
            assert!(at(&scene.path("layers/run/upper"), b"n").symlink_metadata().is_ok());
            let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
            assert_eq!(left, Abandoned::Removed(None), "{name} {mode:?}");
        }
    }
}
