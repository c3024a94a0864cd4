//! A layer that takes long to remove holds up no end of a run: later commands remove the rest.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, write};
use nexus_layer::disk::going::{Going, set_within};
use nexus_layer::{LayerMode, Rules};
use std::fs;
use std::time::Duration;

/// A chain of directories that is deeper than what is moved up, with files on the way.
fn deep() -> Vec<Op> {
    let mut path = String::from("d");
    let mut all = vec![Op::Mkdir(b(&path))];
    for number in 0..100 {
        path = format!("{path}/d");
        all.push(Op::Mkdir(b(&path)));
        if number % 50 == 0 {
            all.push(write(&format!("{path}/f"), "text"));
        }
    }
    all
}

fn names(scene: &Scene, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(scene.path(directory)).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// One test, since the time is one for the whole program.
#[test]
fn what_takes_long_to_remove_goes_away_in_later_commands() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let scene = Scene::new(mode, &[write("kept", "text")]);
        let layers = scene.path("layers");
        assert!(Going::open(&layers).unwrap().is_none());
        set_within(Duration::ZERO);
        let layer = scene.layer(&deep());
        assert_eq!(layer.discard().unwrap(), None);
        assert_eq!(names(&scene, "layers"), ["going"], "nothing that is taken for a layer");
        assert_eq!(names(&scene, "layers/going"), ["run"]);
        let going = Going::open(&layers).unwrap().unwrap();
        assert_eq!(going.count().unwrap(), 1);
        // Each command removes a part, also where the one before stopped in the middle of a directory.
        let mut calls = 0;
        loop {
            let mut left = 200;
            let mut stop = || {
                left -= 1;
                left < 0
            };
            calls += 1;
            if going.remove(&mut stop).unwrap() {
                break;
            }
            assert!(calls < 1000, "no part is removed");
        }
        assert!(calls > 1, "it was removed in {calls} parts");
        assert!(Going::open(&layers).unwrap().is_none(), "the directory is gone too");
        // A whole commit is not touched by the time.
        let layer = scene.layer(&[write("new", "text")]);
        layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(fs::read_to_string(scene.ws().join("new")).unwrap(), "text");
        set_within(Duration::from_secs(1));
    }
}
