//! A half-applied commit that is taken back: what a person did to what had arrived stays, and is named.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, write};
use nexus_layer::commit::abandon::set_aside_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{
    Abandoned, Conflict, Faults, Layer, LayerMode, LayerStage, Outside, RecoverError, Rules, abandon, clear_staging,
    recover, roll_back, set_aside, stage,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Lets a commit die before its first call for which `when` holds.
fn killed(scene: &Scene, mut layer: Layer, flags: bool, when: impl Fn() -> bool + Send + Sync + 'static) {
    let once = Mutex::new(Some(()));
    let mut faults = Faults::default().between(Arc::new(move |_| {
        if when() && once.lock().unwrap().take().is_some() {
            std::panic::panic_any("crash");
        }
    }));
    if !flags {
        faults = faults.without_rename_flags();
    }
    layer.set_faults(faults);
    let workspace = leased(scene);
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
}

/// A commit that died when the directory `src` had arrived, in the place of a file or at a free name.
fn with_a_directory(mode: LayerMode, over_file: bool, flags: bool) -> Scene {
    let mut base = vec![write("z", "old z"), write("low", "low")];
    let mut run = vec![write("z", "run z")];
    if over_file {
        base.push(write("src", "it was a file"));
        run.push(Op::Remove(b("src")));
    }
    run.extend([Op::Mkdir(b("src")), write("src/main.c", "generated\n"), Op::Mkdir(b("src/in"))]);
    // A file of the workspace carries a mark of overlay, which the commit takes off.
    run.extend([write("src/in/a", "a\n"), Op::Link(b("src/in/a"), b("src/b")), Op::Rename(b("low"), b("src/low"))]);
    let scene = Scene::new(mode, &base);
    let layer = scene.layer(&run);
    let (arrived, journal) = (scene.ws().join("src/main.c"), scene.path("layers/run/journal"));
    killed(&scene, layer, flags, move || journal.exists() && arrived.exists());
    scene
}

fn taken_back(scene: &Scene) -> Vec<Conflict> {
    roll_back(&scene.path("layers"), "run", &leased(scene)).unwrap()
}

fn shell(scene: &Scene, script: &str) {
    assert!(Command::new("sh").args(["-ec", script]).current_dir(scene.ws()).status().unwrap().success(), "{script}");
}

/// Acts of a person in the directory, and the file that then has their work.
const EDITS: [(&str, &str); 9] = [
    ("echo mine >> src/main.c", "src/main.c"),
    ("echo mine >> src/low", "src/low"),
    ("echo mine >> src/b", "src/in/a"),
    ("echo mine > src/in/new", "src/in/new"),
    ("echo mine > t; mv t src/in/a", "src/in/a"),
    ("echo mine >> src/main.c; touch -r src/in/a src/main.c", "src/main.c"),
    ("echo mine > t; touch -d @1000000 t src/in/a; mv t src/main.c; touch -r src/in src", "src/main.c"),
    ("printf 'mine\\nxxxx\\n' > t; touch -r src/main.c t; cat t > src/main.c; touch -r t src/main.c", "src/main.c"),
    ("mkdir src/in/deep; echo mine > src/in/deep/f", "src/in/deep/f"),
];

/// Later acts on the directory that set its time of change.
const LATER: [&str; 4] = ["true", "chmod 750 src", "mv src away; mv away src", "chmod -R g+w src"];

#[test]
fn edits_in_a_new_directory_stay_whatever_happens_to_it() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for (at, (edit, file)) in EDITS.iter().enumerate() {
            for (over_file, flags) in [(false, true), (true, true), (false, false), (true, false)] {
                let scene = with_a_directory(mode, over_file, flags);
                shell(&scene, edit);
                shell(&scene, LATER[at % LATER.len()]);
                shell(&scene, LATER[1]);
                let conflicts = taken_back(&scene);
                let case = format!("{mode:?} {edit:?} over {over_file}, flags {flags}: {conflicts:?}");
                let found = fs::read_to_string(scene.ws().join(file)).unwrap_or_default();
                assert!(found.contains("mine"), "{case}");
                let named: Vec<_> = conflicts.iter().map(|one| (one.path.as_path().to_owned(), one.outside)).collect();
                assert!(named.contains(&(PathBuf::from("src"), Outside::Changed)), "{case}");
                let beside = conflicts.iter().find_map(|one| one.beside.as_ref());
                assert_eq!(beside.is_some(), over_file, "{case}");
                if let Some(beside) = beside {
                    let old = fs::read_to_string(scene.ws().join(beside.as_path())).unwrap();
                    assert_eq!(old, "it was a file", "{case}");
                }
            }
        }
    }
}

#[test]
fn a_new_directory_that_no_process_edited_goes_with_its_commit() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for later in ["true", "chmod 750 src", "mv src away; mv away src", "cat src/*.c src/in/*"] {
            for (over_file, flags) in [(false, true), (true, true), (false, false)] {
                let scene = with_a_directory(mode, over_file, flags);
                shell(&scene, later);
                assert_eq!(taken_back(&scene), [], "{mode:?} {later:?}");
                assert!(!scene.ws().join("src").is_dir(), "{mode:?} {later:?}");
                assert_eq!(fs::read_to_string(scene.ws().join("low")).unwrap(), "low");
            }
        }
    }
}

/// A journal that does not say what was in the directory.
#[test]
fn a_directory_of_an_unknown_state_stays_when_its_commit_goes() {
    let scene = with_a_directory(LayerMode::Root, false, true);
    let journal = scene.path("layers/run/journal");
    let text = fs::read_to_string(&journal).unwrap();
    let lines: Vec<String> = text.lines().map(|line| line.replace("\"inside\":", "\"outside\":")).collect();
    assert_ne!(text.trim_end(), lines.join("\n"));
    fs::write(&journal, lines.join("\n") + "\n").unwrap();
    let conflicts = taken_back(&scene);
    assert!(conflicts.iter().any(|one| one.path.as_path() == Path::new("src")), "{conflicts:?}");
    assert!(scene.ws().join("src/main.c").exists());
}

/// A new name of an unchanged file is the very file, and may be its only name by now.
#[test]
fn a_file_that_lost_its_old_name_since_is_not_removed() {
    let scene = Scene::new(LayerMode::Root, &[write("f", "old"), Op::Link(b("f"), b("f2")), write("z", "old z")]);
    let layer = scene.layer(&[Op::Link(b("f"), b("g")), write("z", "run z")]);
    let (g, journal) = (scene.ws().join("g"), scene.path("layers/run/journal"));
    killed(&scene, layer, true, move || journal.exists() && g.exists());
    assert!(fs::read_to_string(scene.path("layers/run/journal")).unwrap().contains("\n{\"hold\":"));
    for name in ["f", "f2"] {
        fs::remove_file(scene.ws().join(name)).unwrap();
    }
    let conflicts = taken_back(&scene);
    let found = fs::read_dir(scene.ws()).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    assert!(found.into_iter().any(|text| text == "old"), "{conflicts:?}");
}

/// Everything below a directory, by path.
fn all(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).ok());
    }
    found
}

/// The state in which a caller decided to remove a layer may be over.
#[test]
fn a_layer_with_a_decided_commit_is_never_removed() {
    let scene = with_a_directory(LayerMode::Root, true, true);
    let (layers, layer) = (scene.path("layers"), scene.path("layers/run"));
    for journal in ["journal", "journal.done"] {
        let before = all(&layer);
        let error = abandon(&layers, "run", || panic!("it was marked as gone")).unwrap_err();
        assert!(matches!(error, RecoverError::Decided { .. }), "{error:?}");
        assert_eq!(all(&layer), before, "{journal}");
        if journal == "journal" {
            fs::rename(layer.join(journal), layer.join("journal.done")).unwrap();
        }
    }
    fs::remove_file(layer.join("journal.done")).unwrap();
    let mut marked = false;
    let mark = || {
        marked = true;
        // No other process decides meanwhile.
        assert!(matches!(stage(&layers, "run"), Err(RecoverError::Busy { .. })));
        Ok(())
    };
    assert_eq!(abandon(&layers, "run", mark).unwrap(), Abandoned::Removed(None));
    assert!(marked && !layer.exists());
    assert_eq!(abandon(&layers, "run", || panic!("there is nothing")).unwrap(), Abandoned::Nothing);
}

#[test]
fn a_layer_that_is_set_aside_has_everything_and_is_nobodys() {
    let scene = with_a_directory(LayerMode::Root, true, true);
    let (layers, layer, kept) = (scene.path("layers"), scene.path("layers/run"), scene.path("kept"));
    let staging = scene.ws().join(".nexus-tmp-run");
    fs::create_dir(&staging).unwrap();
    fs::write(staging.join("1"), "displaced").unwrap();
    let before = all(&layer);
    let aside = set_aside(&layers, "run", &kept, Some(&leased(&scene))).unwrap().unwrap();
    assert_eq!((aside.layer.as_path(), all(&aside.layer)), (kept.join("run").as_path(), before));
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o7777, 0o700);
    let staging = aside.staging.unwrap();
    assert!(staging.starts_with(scene.ws()) && !staging.ends_with(".nexus-tmp-run"), "{}", staging.display());
    assert_eq!(fs::read_to_string(staging.join("1")).unwrap(), "displaced");
    assert_eq!(stage(&layers, "run").unwrap(), LayerStage::Gone);
    clear_staging(&layers, "run", &leased(&scene)).unwrap();
    assert!(staging.exists());
    assert_eq!(set_aside(&layers, "run", &kept, None).unwrap(), None);
    // A second one of the same name takes no other's place.
    fs::create_dir(&layer).unwrap();
    assert_eq!(set_aside(&layers, "run", &kept, None).unwrap(), None, "nothing was decided");
    fs::write(layer.join("journal"), "").unwrap();
    let second = set_aside(&layers, "run", &kept, None).unwrap().unwrap();
    assert_eq!(second.layer, kept.join("run-2"));
}

/// Reports whether a file below a directory has this text.
fn has(root: &Path, text: &str) -> bool {
    all(root).values().flatten().any(|found| found.contains(text))
}

/// The files that a person edits while a commit is taken back: replaced, new, and in a new directory.
const ARRIVED: [&str; 3] = ["z", "added", "n/f"];

/// The edit comes before any call of a reject, which dies before its next call; a second one ends it.
#[test]
fn an_edit_before_a_reject_that_dies_stays_at_the_next() {
    for (mode, flags) in [(LayerMode::Root, true), (LayerMode::Root, false), (LayerMode::User, true)] {
        for file in ARRIVED {
            let mut edits = 0;
            for nth in 1.. {
                let scene = Scene::new(mode, &[write("z", "old z")]);
                let layer =
                    scene.layer(&[write("z", "run"), write("added", "run"), Op::Mkdir(b("n")), write("n/f", "run")]);
                let (ws, journal) = (scene.ws(), scene.path("layers/run/journal"));
                let arrived = move |file: &str| fs::read_to_string(ws.join(file)).is_ok_and(|text| text == "run");
                let all_arrived = arrived.clone();
                killed(&scene, layer, flags, move || journal.exists() && ARRIVED.iter().all(|file| all_arrived(file)));
                let (path, (edited, calls)) = (scene.ws().join(file), (Arc::new(Mutex::new(false)), Mutex::new(0)));
                let done = Arc::clone(&edited);
                let mut faults = Faults::default().between(Arc::new(move |_| {
                    let mut calls = calls.lock().unwrap();
                    *calls += 1;
                    if *calls == nth && arrived(file) {
                        use std::io::Write as _;
                        fs::File::options().append(true).open(&path).unwrap().write_all(b" mine").unwrap();
                        *done.lock().unwrap() = true;
                    }
                    if *calls == nth + 1 {
                        drop(calls);
                        std::panic::panic_any("crash");
                    }
                }));
                if !flags {
                    faults = faults.without_rename_flags();
                }
                let workspace = leased(&scene);
                let layers = scene.path("layers");
                let first = catch_unwind(AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &faults)));
                if first.is_ok() {
                    break;
                }
                let faults = if flags { Faults::default() } else { Faults::default().without_rename_flags() };
                let conflicts = roll_back_with(&layers, "run", &workspace, &faults).unwrap();
                let case = format!("{mode:?} {file} {nth}, flags {flags}: {conflicts:?}");
                assert!(has(&scene.ws(), "old z"), "{case}");
                if *edited.lock().unwrap() {
                    edits += 1;
                    assert!(has(&scene.ws(), "mine"), "{case}");
                    let top = Path::new(file).components().next().unwrap().as_os_str();
                    assert!(conflicts.iter().any(|one| one.path.as_path() == Path::new(top)), "{case}");
                } else {
                    assert_eq!(conflicts, [], "{case}");
                    assert!(!scene.ws().join("added").exists() && !scene.ws().join("n").exists(), "{case}");
                }
            }
            assert!(edits > 0, "{mode:?} {file}");
        }
    }
}

/// A file that came out edited finds its place free or taken.
#[test]
fn an_edited_version_stays_when_its_place_is_free_again() {
    let scene = Scene::new(LayerMode::Root, &[write("z", "old z")]);
    let layer = scene.layer(&[write("z", "run")]);
    let (z, journal) = (scene.ws().join("z"), scene.path("layers/run/journal"));
    let arrived = |z: &Path| fs::read_to_string(z).is_ok_and(|text| text.starts_with("run"));
    let now = z.clone();
    killed(&scene, layer, true, move || journal.exists() && arrived(&now));
    let stage = Mutex::new(0);
    // The first call is the step itself, the second the exchange, and the fourth the exchange back.
    let faults = Faults::default().between(Arc::new(move |_| {
        let mut stage = stage.lock().unwrap();
        if *stage < 2 && arrived(&z) {
            *stage += 1;
            if *stage == 2 {
                fs::write(&z, "run and mine").unwrap();
            }
        } else if *stage == 2 && !arrived(&z) {
            *stage += 1;
        } else if *stage == 3 {
            *stage += 1;
            fs::remove_file(&z).unwrap();
        }
    }));
    let conflicts = roll_back_with(&scene.path("layers"), "run", &leased(&scene), &faults).unwrap();
    assert!(has(&scene.ws(), "run and mine"), "{conflicts:?}");
    assert!(conflicts.iter().any(|one| one.path.as_path() == Path::new("z")), "{conflicts:?}");
}

/// The staging directory leaves the workspace before the layer leaves its place, so that a second try names both.
#[test]
fn a_setting_aside_that_is_killed_is_ended_by_the_next() {
    let mut killed = 0;
    for nth in 1.. {
        let scene = Scene::new(LayerMode::Root, &[write("z", "old z")]);
        let (layers, kept, workspace) = (scene.path("layers"), scene.path("kept"), leased(&scene));
        fs::create_dir(layers.join("run")).unwrap();
        fs::write(layers.join("run/journal"), "cut off").unwrap();
        fs::create_dir(scene.ws().join(".nexus-tmp-run")).unwrap();
        fs::write(scene.ws().join(".nexus-tmp-run/1"), "displaced").unwrap();
        let calls = AtomicU64::new(0);
        let faults = Faults::default().between(Arc::new(move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                std::panic::panic_any("crash");
            }
        }));
        let first = AssertUnwindSafe(|| set_aside_with(&layers, "run", &kept, Some(&workspace), &faults).unwrap());
        let aside = if let Ok(aside) = catch_unwind(first) {
            aside.unwrap()
        } else {
            killed += 1;
            let is_begun = !scene.ws().join(".nexus-tmp-run").exists();
            let recovered = recover(&layers, "run", &workspace);
            assert!(!is_begun || matches!(recovered, Err(RecoverError::HalfAside { .. })), "{recovered:?}");
            set_aside(&layers, "run", &kept, Some(&workspace)).unwrap().unwrap()
        };
        assert!(aside.layer.join("journal").exists());
        assert_eq!(fs::read_to_string(aside.staging.unwrap().join("1")).unwrap(), "displaced");
        if killed < nth {
            assert!(killed > 3, "only {killed} places");
            return;
        }
    }
}

/// Moving an entry away and back sets its time of change, and that does not count as a change of another process.
#[test]
fn what_waits_after_an_interrupted_way_back_is_accepted() {
    let run = [write("1", "new 1"), Op::Remove(b("2")), write("3", "new 3"), Op::Mkdir(b("n")), write("n/x", "new x")];
    let mut places = 0;
    for nth in 1.. {
        let scene = Scene::new(LayerMode::Root, &["1", "2", "3"].map(|name| write(name, "old")));
        let (layers, ws, workspace) = (scene.path("layers"), scene.ws(), leased(&scene));
        let layer = scene.layer(&run);
        layer.park(&workspace, &Rules::default()).unwrap();
        drop(layer);
        let (journal, three) = (layers.join("run/journal"), ws.join("3"));
        let arrived = move || journal.exists() && fs::read_to_string(&three).unwrap_or_default() == "new 3";
        killed(&scene, Layer::open(&layers, "run").unwrap(), true, arrived);
        let calls = AtomicU64::new(0);
        let faults = Faults::default().between(Arc::new(move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                std::panic::panic_any("crash");
            }
        }));
        let back = AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &faults).unwrap());
        let is_killed = catch_unwind(back).is_err();
        // Before its first mark nothing records the rollback.
        let is_back = !is_killed || layers.join("run/journal.back").exists() || !layers.join("run/journal").exists();
        if is_back {
            places += 1;
            recover(&layers, "run", &workspace).unwrap();
            assert_eq!(fs::read_to_string(ws.join("1")).unwrap(), "old", "{nth}");
            let layer = Layer::open(&layers, "run").unwrap();
            // What was in the workspace for a while waits for another look.
            layer.note_shown().unwrap();
            let result = layer.commit(&workspace, &Rules::default()).unwrap();
            assert_eq!((result.conflicts, result.parked), (vec![], vec![]), "{nth}");
            assert_eq!(fs::read_to_string(ws.join("3")).unwrap(), "new 3", "{nth}");
            assert!(!ws.join("2").exists() && ws.join("n/x").exists(), "{nth}");
        }
        if !is_killed {
            assert!(places > 5, "only {places} places");
            return;
        }
    }
}

#[test]
fn what_another_process_removes_stops_no_taking_back() {
    let paths = ["a", "new", "src", "src/main.c"];
    for (path, flags) in paths.into_iter().flat_map(|path| [(path, true), (path, false)]) {
        for nth in 1.. {
            let scene = Scene::one_of_many(LayerMode::Root, &[write("a", "old a"), write("z", "old z")]);
            let run = [
                write("a", "run a"),
                write("new", "run"),
                Op::Mkdir(b("src")),
                write("src/main.c", "run"),
                write("z", "run z"),
            ];
            let layer = scene.layer(&run);
            let (arrived, journal) = (scene.ws().join("z"), scene.path("layers/run/journal"));
            killed(&scene, layer, flags, move || {
                journal.exists() && fs::read_to_string(&arrived).is_ok_and(|now| now == "run z")
            });
            let (at, seen) = (scene.ws().join(path), Arc::new(AtomicU64::new(0)));
            let count = seen.clone();
            let mut faults = Faults::default().between(Arc::new(move |_| {
                if count.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                    let removed = if at.is_dir() { fs::remove_dir_all(&at) } else { fs::remove_file(&at) };
                    removed.ok();
                }
            }));
            if !flags {
                faults = faults.without_rename_flags();
            }
            let result = roll_back_with(&scene.path("layers"), "run", &leased(&scene), &faults);
            assert!(result.is_ok(), "{path} {flags} {nth}: {result:?}");
            if seen.load(Ordering::SeqCst) < nth {
                break;
            }
        }
    }
}
