//! A taking back tells the times of change that it set itself from those that other processes set.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, dying_at, leased, write};
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Layer, LayerMode, Rules, recover};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A parked layer with a commit that died at a call. `None`: it was done before.
fn interrupted(mode: LayerMode, base: &[Op], run: &[Op], nth: u64) -> Option<Scene> {
    let scene = Scene::one_of_many(mode, base);
    let (layers, workspace) = (scene.path("layers"), leased(&scene));
    scene.layer(run).park(&workspace, &Rules::default()).unwrap();
    let mut layer = Layer::open(&layers, "run").unwrap();
    layer.set_faults(dying_at(layers.join("run/journal"), nth));
    catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap())).err()?;
    layers.join("run/journal").exists().then_some(scene)
}

/// Takes the commit back in two tries, of which the first dies. Returns whether it did.
fn taken_back(scene: &Scene, dies_at: u64, meanwhile: impl FnOnce()) -> bool {
    let (layers, workspace) = (scene.path("layers"), leased(scene));
    let faults = dying_at(layers.join("run/journal"), dies_at);
    let back = catch_unwind(AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &faults).unwrap()));
    meanwhile();
    recover(&layers, "run", &workspace).unwrap();
    back.is_err()
}

#[test]
fn a_file_in_a_renamed_directory_is_accepted_after_a_way_back() {
    let dirs = ["d", "sub", "d/in"].map(|dir| Op::Mkdir(b(dir)));
    let base = [&dirs[..], &["d/1", "d/2", "d/3", "d/in/x"].map(|path| write(path, "old"))].concat();
    let run = [
        Op::Rename(b("d"), b("sub/e")),
        write("sub/e/1", "new"),
        Op::Remove(b("sub/e/3")),
        Op::Rename(b("sub/e/in"), b("out")),
        write("out/x", "new"),
    ];
    let mut places = 0;
    for nth in 1..40 {
        for dies_at in [3, 9, 14, 19, 22, 25] {
            let Some(scene) = interrupted(LayerMode::Root, &base, &run, nth) else { continue };
            if !taken_back(&scene, dies_at, || ()) {
                continue;
            }
            let case = format!("{nth} {dies_at}");
            let layer = Layer::open(&scene.path("layers"), "run").unwrap();
            layer.note_shown().unwrap();
            let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
            assert_eq!((result.conflicts, result.parked), (vec![], vec![]), "{case}");
            for path in ["sub/e/1", "out/x"] {
                assert_eq!(fs::read_to_string(scene.ws().join(path)).unwrap(), "new", "{case}");
            }
            places += 1;
        }
    }
    assert!(places > 20, "only {places} places");
}

/// The edit keeps the size and the modification time, as rsync -t --inplace does.
#[test]
fn an_edit_of_what_a_commit_did_not_reach_stays_a_conflict() {
    let names = ["1", "2", "3", "4"];
    let base = names.map(|name| write(name, "old"));
    let run = [write("1", "new 1"), Op::Remove(b("2")), write("3", "new 3"), write("4", "new 4")];
    let mut edited = 0;
    for nth in 1..30 {
        for (dies_at, chmod, mode) in [
            (1, false, LayerMode::Root),
            (6, true, LayerMode::User),
            (10, false, LayerMode::Root),
            (17, true, LayerMode::Root),
        ] {
            let Some(scene) = interrupted(mode, &base, &run, nth) else { continue };
            let mut edits = Vec::new();
            let edit = || {
                for name in names {
                    let path = scene.ws().join(name);
                    if fs::read_to_string(&path).is_ok_and(|text| text == "old") {
                        let before = fs::metadata(&path).unwrap();
                        if chmod {
                            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
                        } else {
                            let file = fs::File::options().write(true).open(&path).unwrap();
                            std::io::Write::write_all(&mut &file, b"EXT").unwrap();
                            file.set_modified(before.modified().unwrap()).unwrap();
                        }
                        edits.push(name);
                    }
                }
            };
            taken_back(&scene, dies_at, edit);
            let Ok(layer) = Layer::open(&scene.path("layers"), "run") else { continue };
            layer.note_shown().unwrap();
            let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
            let case = format!("{mode:?} {nth} {dies_at} {chmod} {edits:?}: {result:?}");
            for name in edits {
                edited += 1;
                let meta = fs::metadata(scene.ws().join(name)).unwrap();
                let text = fs::read_to_string(scene.ws().join(name)).unwrap();
                let stays = if chmod { meta.permissions().mode() & 0o777 == 0o600 } else { text == "EXT" };
                assert!(stays, "{name}: {case}");
            }
        }
    }
    assert!(edited > 20, "only {edited} edits");
}
