//! Snapshots of facilities against a model, with hostile trees, and with damaged stores.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::{Listing, edit, listing};
use nexus_facility::snapshots::record::Named;
use nexus_facility::{Facilities, Facility, FacilityName, Kind, Snapshots, StateError, StoreError};
use nexus_snapshot::{Hold, Store, reach};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

fn name(text: &str) -> FacilityName {
    text.parse().unwrap()
}

fn quiet() -> impl FnMut(u64, u64) {
    |_, _| {}
}

struct Scene {
    base: tempfile::TempDir,
    facilities: Facilities,
}

impl Scene {
    fn new() -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let facilities = Facilities::open(&base.path().join("facilities")).unwrap();
        Self { base, facilities }
    }

    fn make(&self, text: &str) -> Facility {
        self.facilities.create(&name(text), Kind::Empty, 1).unwrap()
    }

    fn take(&self, facility: &Facility) -> Named {
        Snapshots::of(&self.facilities).take(facility, None, &mut quiet()).unwrap().snapshot
    }

    fn restore(&self, facility: &Facility, which: &str, keeps: bool) -> Result<Option<Named>, StateError> {
        let done = Snapshots::of(&self.facilities).restore(facility, which, keeps, &mut quiet())?;
        assert!(done.meanwhile.is_none(), "nothing else writes: {:?}", done.meanwhile);
        Ok(done.before.map(|taken| taken.snapshot))
    }

    fn objects(&self) -> PathBuf {
        self.base.path().join("facilities/.snapshots")
    }

    fn packs(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> =
            fs::read_dir(self.objects().join("packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Changes something in a facility; the numbers choose what.
    Edit(usize, u8, u8, u16),
    Snapshot(usize),
    Restore(usize, usize, bool),
    Fork(usize, usize),
    Forget(usize, usize),
    Clean,
    /// Lets files become old enough for the cache.
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3_usize, any::<u8>(), any::<u8>(), any::<u16>()).prop_map(|(f, a, b, c)| Step::Edit(f, a, b, c)),
        4 => (0..3_usize).prop_map(Step::Snapshot),
        3 => (0..3_usize, any::<usize>(), any::<bool>()).prop_map(|(f, which, keeps)| Step::Restore(f, which, keeps)),
        1 => (0..3_usize, any::<usize>()).prop_map(|(f, which)| Step::Fork(f, which)),
        1 => (0..3_usize, any::<usize>()).prop_map(|(f, which)| Step::Forget(f, which)),
        2 => Just(Step::Clean),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..30)
}

fn play(steps: Vec<Step>) {
    let scene = Scene::new();
    let states = Snapshots::of(&scene.facilities);
    let mut all = vec![scene.make("f0")];
    // For each facility its snapshots with what the tree was.
    let mut model: Vec<Vec<(Named, Listing)>> = vec![Vec::new()];
    for step in steps {
        match step {
            Step::Edit(at, what, place, value) => edit(all[at % all.len()].tree(), what, place, value),
            Step::Snapshot(at) => {
                let at = at % all.len();
                let before = listing(all[at].tree());
                let taken = scene.take(&all[at]);
                assert_eq!(listing(all[at].tree()), before, "a snapshot changes nothing");
                model[at].push((taken, before));
            }
            Step::Restore(at, which, keeps) => {
                let at = at % all.len();
                if model[at].is_empty() {
                    continue;
                }
                let (wanted, expected) = model[at][which % model[at].len()].clone();
                let before = listing(all[at].tree());
                let kept = scene.restore(&all[at], &wanted.id, keeps).unwrap();
                assert_eq!(listing(all[at].tree()), expected);
                assert_eq!(kept.is_some(), keeps);
                model[at].extend(kept.map(|kept| (kept, before)));
            }
            Step::Fork(at, which) => {
                let at = at % all.len();
                if all.len() == 3 || model[at].is_empty() {
                    continue;
                }
                let (wanted, expected) = model[at][which % model[at].len()].clone();
                let new = name(&format!("f{}", all.len()));
                let (forked, _) = states.fork(&all[at], &new, Some(&wanted.id), &mut quiet()).unwrap();
                assert_eq!(listing(forked.tree()), expected);
                model.push(vec![(wanted, expected)]);
                all.push(forked);
            }
            Step::Forget(at, which) => {
                let at = at % all.len();
                if model[at].is_empty() {
                    continue;
                }
                let place = which % model[at].len();
                let (gone, _) = model[at].remove(place);
                states.forget(&all[at], &gone.id).unwrap();
                assert!(matches!(states.verify(&all[at], &gone.id), Err(StateError::Unknown { .. })));
            }
            Step::Clean => {
                states.clean(&mut quiet()).unwrap();
                let mut store = Store::open(&scene.objects(), Hold::Use).unwrap();
                let mut reached = HashSet::new();
                for (one, _) in model.iter().flatten() {
                    reach(&mut store, &one.record.top().unwrap(), &mut reached).unwrap();
                }
                assert_eq!(store.objects(), reached.len(), "what no snapshot reaches is gone");
                drop(store);
                let again = states.clean(&mut quiet()).unwrap().swept;
                assert_eq!((again.objects, again.bytes_before), (0, again.bytes_after), "nothing is there twice");
            }
            Step::Wait => std::thread::sleep(Duration::from_millis(120)),
        }
        for (facility, snapshots) in all.iter().zip(&model) {
            let mut listed: Vec<_> =
                states.history(facility).unwrap().all().unwrap().0.into_iter().map(|one| one.id).collect();
            let mut known: Vec<_> = snapshots.iter().map(|(one, _)| one.id.clone()).collect();
            listed.sort();
            known.sort();
            assert_eq!(listed, known);
        }
    }
    for (facility, snapshots) in all.iter().zip(&model) {
        for (one, expected) in snapshots {
            states.verify(facility, &one.id).unwrap();
            scene.restore(facility, &one.id, false).unwrap();
            assert_eq!(listing(facility.tree()), *expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_histories_give_every_state_back(steps in steps()) {
        play(steps);
    }
}

#[test]
fn only_what_changed_is_read_again_also_when_its_size_and_time_are_the_same() {
    let scene = Scene::new();
    let facility = scene.make("a");
    for number in 0..20 {
        fs::write(facility.tree().join(format!("f{number}")), format!("content {number:02}")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(150));
    let states = Snapshots::of(&scene.facilities);
    let take = || states.take(&facility, None, &mut quiet()).unwrap();
    assert_eq!(take().read, 20);
    let second = take();
    assert_eq!((second.read, second.new_bytes), (0, 0));
    let path = facility.tree().join("f7");
    let meta = fs::metadata(&path).unwrap();
    fs::write(&path, "CONTENT 07").unwrap();
    fs::File::open(&path).unwrap().set_modified(meta.modified().unwrap()).unwrap();
    let third = take();
    assert_eq!(third.read, 1);
    scene.restore(&facility, &third.snapshot.id, false).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "CONTENT 07");
    // A cache that was damaged, or is that of another tree, costs time alone.
    let cache = scene.objects().parent().unwrap().join("a/snapshots/cache");
    let mut bytes = fs::read(&cache).unwrap();
    bytes[40] ^= 1;
    fs::write(&cache, bytes).unwrap();
    let fourth = take();
    assert_eq!((fourth.read, fourth.snapshot.record.tree), (20, third.snapshot.record.tree));
}

#[test]
fn a_hostile_tree_leads_a_snapshot_and_a_restore_nowhere() {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::create_dir(outside.path().join("d")).unwrap();
    fs::write(outside.path().join("d/secret"), "outside-secret").unwrap();
    let scene = Scene::new();
    let facility = scene.make("a");
    let tree = facility.tree();
    symlink(outside.path(), tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, tree.join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    fs::create_dir(tree.join("d")).unwrap();
    fs::write(tree.join("d/secret"), "inside").unwrap();
    // Another process swaps a directory with a link to one outside all the time.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    symlink(outside.path().join("d"), tree.join("e")).unwrap();
    let swapper = {
        let (stop, tree) = (stop.clone(), tree.to_owned());
        std::thread::spawn(move || {
            let tree = fs::File::open(tree).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(&tree, "d", &tree, "e", rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
        })
    };
    let states = Snapshots::of(&scene.facilities);
    let mut taken = Vec::new();
    for _ in 0..200 {
        match states.take(&facility, None, &mut quiet()) {
            Ok(one) => taken.push(one.snapshot),
            Err(error) => assert_eq!(error.code(), "snapshot_changing", "{error}"),
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(taken.len() > 10, "{} snapshots", taken.len());
    let last = taken.last().unwrap();
    assert_eq!(last.record.left_out_count, 2, "{:?}", last.record.left_out);
    for one in &taken {
        scene.restore(&facility, &one.id, false).unwrap();
        let seen = listing(tree);
        assert!(seen.values().all(|seen| seen.content != b"outside-secret"), "{seen:?}");
        assert!(tree.join("link").is_symlink());
    }
    assert_eq!(fs::read_to_string(outside.path().join("d/secret")).unwrap(), "outside-secret");
}

#[test]
fn each_changed_byte_of_a_store_is_found_and_named() {
    let scene = Scene::new();
    let (facility, other) = (scene.make("a"), scene.make("b"));
    for number in 0..5 {
        fs::write(facility.tree().join(format!("f{number}")), format!("content of file {number}")).unwrap();
    }
    let first = scene.take(&facility);
    let packs = scene.packs();
    fs::write(other.tree().join("own"), "of the other facility").unwrap();
    let of_other = scene.take(&other);
    let states = Snapshots::of(&scene.facilities);
    let before = listing(facility.tree());
    for pack in &packs {
        let whole = fs::read(pack).unwrap();
        let file = pack.file_name().unwrap().to_str().unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(pack, &bytes).unwrap();
            let error = states.verify(&facility, &first.id).unwrap_err();
            assert_eq!(error.code(), "snapshot_damaged", "byte {at}: {error}");
            assert!(error.to_string().contains(file), "byte {at}: {error}");
            if at % 16 == 0 {
                assert_eq!(scene.restore(&facility, &first.id, false).unwrap_err().code(), "snapshot_damaged");
                let kept = scene.packs().len();
                // A cleaning that cannot know what is needed removes nothing. Of file contents it needs none.
                states.clean(&mut quiet()).map_or_else(
                    |error| assert_eq!(error.code(), "snapshot_damaged"),
                    |done| {
                        assert_eq!(done.swept.objects, 0);
                    },
                );
                assert_eq!(scene.packs().len(), kept);
                assert_eq!(listing(facility.tree()), before);
                states.verify(&other, &of_other.id).unwrap();
            }
        }
        for length in [0, 7, 60, whole.len() - 1] {
            fs::write(pack, &whole[..length]).unwrap();
            assert_eq!(states.verify(&facility, &first.id).unwrap_err().code(), "snapshot_damaged", "{length} bytes");
        }
        fs::write(pack, &whole).unwrap();
    }
    states.verify(&facility, &first.id).unwrap();
    let record = scene.objects().parent().unwrap().join("a/snapshots").join(&first.id);
    let whole = fs::read(&record).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&record, bytes).unwrap();
        let error = states.verify(&facility, &first.id).unwrap_err();
        assert!(error.code() == "snapshot_damaged" && error.to_string().contains(&first.id), "byte {at}: {error}");
    }
    assert_eq!(states.clean(&mut quiet()).unwrap_err().code(), "snapshot_damaged");
    states.verify(&other, &of_other.id).unwrap();
    fs::write(&record, whole).unwrap();
    assert_eq!(states.clean(&mut quiet()).unwrap().swept.objects, 0);
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let scene = Scene::new();
    let facility = scene.make("a");
    scene.take(&facility);
    fs::write(scene.objects().join("format"), "nexus snapshots 2\n").unwrap();
    let states = Snapshots::of(&scene.facilities);
    assert_eq!(states.take(&facility, None, &mut quiet()).unwrap_err().code(), "snapshot_newer");
    assert_eq!(states.clean(&mut quiet()).unwrap_err().code(), "snapshot_newer");
    assert_eq!(scene.packs().len(), 1);
}

#[test]
fn a_cleaning_and_a_use_of_the_store_exclude_each_other() {
    let scene = Scene::new();
    let facility = scene.make("a");
    scene.take(&facility);
    let states = Snapshots::of(&scene.facilities);
    let held = Store::open(&scene.objects(), Hold::Use).unwrap();
    assert_eq!(states.clean(&mut quiet()).unwrap_err().code(), "snapshot_busy");
    scene.take(&facility);
    drop(held);
    let held = Store::open(&scene.objects(), Hold::Clean).unwrap();
    assert_eq!(states.take(&facility, None, &mut quiet()).unwrap_err().code(), "snapshot_busy");
    drop(held);
    scene.take(&facility);
    // What a process left that was killed while it wrote goes.
    fs::write(scene.objects().join("packs/new-left"), "a part").unwrap();
    states.clean(&mut quiet()).unwrap();
    assert!(!scene.objects().join("packs/new-left").exists());
}

#[test]
fn a_fork_takes_no_name_that_is_there_and_outlives_what_it_came_from() {
    let scene = Scene::new();
    let facility = scene.make("a");
    fs::write(facility.tree().join("f"), "one").unwrap();
    let states = Snapshots::of(&scene.facilities);
    let bytes = |scene: &Scene| -> u64 { scene.packs().iter().map(|pack| pack.metadata().unwrap().len()).sum() };
    let first = scene.take(&facility);
    let before = bytes(&scene);
    let (fork, from) = states.fork(&facility, &name("b"), Some("1"), &mut quiet()).unwrap();
    assert_eq!((from.id.as_str(), bytes(&scene)), (first.id.as_str(), before), "a fork adds no object");
    let again = states.fork(&facility, &name("b"), Some("1"), &mut quiet()).unwrap_err();
    assert!(matches!(again, StateError::Facility(StoreError::Exists { .. })), "{again}");
    fs::write(fork.tree().join("f"), "two").unwrap();
    scene.facilities.remove(&name("a")).unwrap();
    states.clean(&mut quiet()).unwrap();
    scene.restore(&fork, "1", true).unwrap();
    assert_eq!(fs::read_to_string(fork.tree().join("f")).unwrap(), "one");
    scene.restore(&fork, "latest", false).unwrap();
    assert_eq!(fs::read_to_string(fork.tree().join("f")).unwrap(), "two");
}

#[test]
fn what_comes_while_a_restore_builds_is_a_snapshot_of_its_own() {
    let scene = Scene::new();
    let facility = scene.make("p");
    fs::write(facility.tree().join("x"), "old").unwrap();
    let old = scene.take(&facility);
    fs::write(facility.tree().join("x"), "present").unwrap();
    let own = facility.tree().parent().unwrap();
    let is_building =
        || fs::read_dir(own).unwrap().any(|one| one.unwrap().file_name().to_string_lossy().starts_with(".build-"));
    let states = Snapshots::of(&scene.facilities);
    let mut saved = false;
    let mut save = |_, _| {
        if !saved && is_building() {
            fs::write(facility.tree().join("x"), "saved meanwhile").unwrap();
            fs::write(facility.tree().join("late"), "new").unwrap();
            saved = true;
        }
    };
    let done = states.restore(&facility, &old.id, true, &mut save).unwrap();
    assert!(saved);
    assert_eq!(fs::read_to_string(facility.tree().join("x")).unwrap(), "old");
    let (before, meanwhile) = (done.before.unwrap().snapshot, done.meanwhile.unwrap());
    let again = |which: &str| scene.restore(&facility, which, true).unwrap();
    again(&meanwhile.id);
    assert_eq!(fs::read_to_string(facility.tree().join("x")).unwrap(), "saved meanwhile");
    assert_eq!(fs::read_to_string(facility.tree().join("late")).unwrap(), "new");
    again(&before.id);
    assert_eq!(fs::read_to_string(facility.tree().join("x")).unwrap(), "present");
}

/// A restore that was killed behind the exchange leaves the old tree, which the next command looks at before it removes it.
#[test]
fn a_replaced_tree_that_was_left_is_kept_by_a_snapshot_before_it_goes() {
    for by_cleaning in [false, true] {
        let scene = Scene::new();
        let facility = scene.make("p");
        fs::write(facility.tree().join("x"), "present").unwrap();
        let present = scene.take(&facility);
        let own = facility.tree().parent().unwrap();
        let number = |which: &str| own.join(format!(".tree-{which}"));
        for (which, text) in [("same", "present"), ("other", "edited")] {
            assert!(
                std::process::Command::new("cp")
                    .arg("-a")
                    .args([facility.tree(), &number(which)])
                    .status()
                    .unwrap()
                    .success()
            );
            fs::write(number(which).join("x"), text).unwrap();
        }
        let states = Snapshots::of(&scene.facilities);
        if by_cleaning {
            states.clean(&mut quiet()).unwrap();
        } else {
            states.restore(&facility, &present.id, true, &mut quiet()).unwrap();
        }
        assert!(!number("same").exists() && !number("other").exists());
        let (all, _) = states.history(&facility).unwrap().all().unwrap();
        let kept: Vec<_> =
            all.iter().filter(|one| one.record.label.as_deref() == Some("changed during a restore")).collect();
        states.restore(&facility, &kept.last().unwrap().id, true, &mut quiet()).unwrap();
        let texts: Vec<_> = kept
            .iter()
            .map(|one| {
                states.restore(&facility, &one.id, true, &mut quiet()).unwrap();
                fs::read_to_string(facility.tree().join("x")).unwrap()
            })
            .collect();
        assert!(texts.contains(&"edited".to_owned()), "{texts:?}");
    }
}
