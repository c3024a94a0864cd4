//! A socket of the host in a directory that a run renames or removes: no commit takes it along unasked.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, reopen, write};
use nexus_layer::{Layer, LayerMode, Rules};
use std::os::unix::net::{UnixListener, UnixStream};

fn scene(mode: LayerMode) -> Scene {
    Scene::new(mode, &[Op::Mkdir(b("a")), Op::Mkdir(b("x")), write("a/f", "text")])
}

/// Commits what a run does, with what the rules let come.
fn waits(scene: &Scene, layer: &Layer, rules: &Rules) -> Vec<String> {
    let done = layer.commit(&scene.workspace(), rules).unwrap();
    assert!(done.conflicts.is_empty(), "{:?}", done.conflicts);
    done.parked.iter().map(|change| change.path.as_path().display().to_string()).collect()
}

fn named(paths: &[&str]) -> Rules {
    let paths: Vec<_> = paths.iter().map(|path| (*path).into()).collect();
    Rules { only: Some(paths.clone()), named: paths, ..Rules::default() }
}

#[test]
fn a_directory_with_a_socket_moves_and_goes_only_when_it_is_accepted() {
    // An ordinary user's layer has no renamed directory: the old one goes, and a new one comes.
    for (mode, run, waiting) in [
        (LayerMode::Root, rename("a", "x/a"), "x/a"),
        (LayerMode::Root, Op::RemoveTree(b("a")), "a"),
        (LayerMode::User, Op::RemoveTree(b("a")), "a"),
    ] {
        let what = format!("{mode:?} {run:?}");
        let scene = scene(mode);
        let socket = scene.ws().join("a/s");
        let service = UnixListener::bind(&socket).unwrap();
        let layer = scene.layer(std::slice::from_ref(&run));
        assert_eq!(waits(&scene, &layer, &Rules::default()), [waiting], "{what}");
        assert!(UnixStream::connect(&socket).is_ok(), "{what}: the service is where it was");
        drop(layer);
        // What is protected below a directory is accepted only as such.
        let again = |rules: &Rules| waits(&scene, &reopen(&scene.path("layers")), rules);
        assert_eq!(again(&named(&[waiting])), [waiting], "{what}");
        assert!(UnixStream::connect(&socket).is_ok(), "{what}");
        assert_eq!(again(&Rules { accept_protected: true, ..Rules::default() }), [""; 0], "{what}");
        assert!(!socket.exists(), "{what}: accepted");
        drop(service);
    }
}

#[test]
fn a_directory_with_a_named_pipe_moves_and_goes_only_when_it_is_accepted() {
    for (mode, run, waiting) in [
        (LayerMode::Root, rename("a", "x/a"), "x/a"),
        (LayerMode::Root, Op::RemoveTree(b("a")), "a"),
        (LayerMode::User, Op::RemoveTree(b("a")), "a"),
    ] {
        let what = format!("{mode:?} {run:?}");
        let scene = scene(mode);
        let pipe = scene.ws().join("a/p");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
        let layer = scene.layer(std::slice::from_ref(&run));
        assert_eq!(waits(&scene, &layer, &Rules::default()), [waiting], "{what}");
        assert!(pipe.exists(), "{what}");
        drop(layer);
        let all = Rules { accept_protected: true, ..Rules::default() };
        assert_eq!(waits(&scene, &reopen(&scene.path("layers")), &all), [""; 0], "{what}");
        assert!(!pipe.exists(), "{what}: accepted");
    }
}

/// As scripts do it: `rm -rf a; mkdir a`.
#[test]
fn a_socket_in_a_directory_that_is_replaced_goes_only_when_it_is_accepted() {
    let replaces = |more: &[Op]| [&[Op::RemoveTree(b("a")), Op::Mkdir(b("a"))], more].concat();
    for mode in [LayerMode::Root, LayerMode::User] {
        for (run, waiting) in [
            (replaces(&[write("a/n", "new")]), "a/s"),
            (replaces(&[write("a/s", "a file of its name")]), "a/s"),
            (vec![Op::RemoveTree(b("x")), Op::Mkdir(b("x")), Op::Mkdir(b("x/sub"))], "x/sub/s"),
        ] {
            let what = format!("{mode:?} {run:?}");
            let base = [Op::Mkdir(b("a")), Op::Mkdir(b("x")), Op::Mkdir(b("x/sub")), write("a/f", "text")];
            let scene = Scene::new(mode, &base);
            let socket = scene.ws().join(waiting);
            let service = UnixListener::bind(&socket).unwrap();
            let layer = scene.layer(&run);
            assert_eq!(waits(&scene, &layer, &Rules::default()), [waiting], "{what}");
            assert!(UnixStream::connect(&socket).is_ok(), "{what}: the service is where it was");
            drop(layer);
            // It has a name of its own among the changes.
            assert_eq!(waits(&scene, &reopen(&scene.path("layers")), &named(&[waiting])), [""; 0], "{what}");
            assert!(UnixStream::connect(&socket).is_err(), "{what}: accepted");
            drop(service);
        }
    }
}

#[test]
fn a_socket_of_a_service_that_has_ended_holds_nothing_back() {
    for (mode, run) in [
        (LayerMode::Root, vec![rename("a", "x/a")]),
        (LayerMode::User, vec![Op::RemoveTree(b("a"))]),
        (LayerMode::User, vec![Op::RemoveTree(b("a")), Op::Mkdir(b("a"))]),
    ] {
        let scene = scene(mode);
        drop(UnixListener::bind(scene.ws().join("a/s")).unwrap());
        let layer = scene.layer(&run);
        assert!(waits(&scene, &layer, &Rules::default()).is_empty(), "{mode:?} {run:?}");
        assert!(!scene.ws().join("a/s").exists(), "{mode:?} {run:?}");
    }
}

#[test]
fn a_directory_without_a_socket_moves_and_goes_unasked() {
    for (mode, run) in [
        (LayerMode::Root, rename("a", "x/a")),
        (LayerMode::Root, Op::RemoveTree(b("a"))),
        (LayerMode::User, Op::RemoveTree(b("a"))),
    ] {
        let scene = scene(mode);
        let layer = scene.layer(std::slice::from_ref(&run));
        assert!(waits(&scene, &layer, &Rules::default()).is_empty(), "{mode:?} {run:?}");
        assert!(!scene.ws().join("a").exists(), "{mode:?} {run:?}");
    }
}
