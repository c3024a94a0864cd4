//! A hostile process edits, saves by rename, deletes and swaps directories between the calls of commits, accepts and
//! recoveries. Every byte that it or the run wrote exists afterwards, unless the process itself destroyed it, and every
//! version that was moved aside is named.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "model/hostile.rs"]
mod hostile;

use common::{Op, Scene, b, settled_lease};
use hostile::{Act, Hostile, allow, tokens};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Comparison, Conflict, Faults, LayerMode, RecoverError, Recovered, Rules, Workspace, abandon};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

thread_local! {
    /// Events of the schedule that this thread plays, with the microseconds since its start.
    static STORY: RefCell<(Option<std::time::Instant>, Vec<String>)> = const { RefCell::new((None, Vec::new())) };
}

fn note(line: &str) {
    STORY.with_borrow_mut(|(start, lines)| {
        let since = start.get_or_insert_with(std::time::Instant::now).elapsed();
        lines.push(format!("{:>8} {line}", since.as_micros()));
    });
}

/// Takes a lease, and notes a refusal, which depends on the time as well.
fn noted_lease(file: BorrowedFd<'_>, take: bool) -> std::io::Result<()> {
    let done = settled_lease(file, take);
    if let Err(error) = &done {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
        note(&format!("lease on {path:?} (take: {take}): {error}"));
    }
    done
}

/// Adds all files of a scene to the story of a schedule that failed, before they are removed.
struct Witness(PathBuf);

impl Drop for Witness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        note("the entries: inode, links, mode, change of the content, change, path");
        let words = ["-printf", "%i %n %M %T+ %C+ %P\n"];
        let listed = Command::new("find").arg(&self.0).args(words).output().unwrap().stdout;
        note(&String::from_utf8_lossy(&listed));
        let texts = Command::new("grep").args(["-r", "-a", "-m", "200", ""]).arg(&self.0).output().unwrap().stdout;
        note(&String::from_utf8_lossy(&texts));
    }
}

/// Lets a directory be removed at the end of a test.
struct Mutable(PathBuf);

impl Drop for Mutable {
    fn drop(&mut self) {
        allow(&self.0);
    }
}

/// A small generator (xorshift), so that a seed repeats a schedule.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

fn base() -> Vec<Op> {
    let mut ops: Vec<Op> = ["d", "d/in", "e", "gone", "gone/sub", "home", "home/in", "ren", "swap"]
        .into_iter()
        .map(|dir| Op::Mkdir(b(dir)))
        .collect();
    let files =
        ["d/a", "d/b", "d/in/c", "e/x", "gone/p", "gone/sub/q", "ren/m", "ren/n", "swap/s", "top", "other", "l1"];
    ops.extend(files.iter().map(|file| Op::Write(b(file), format!("old {file}"))));
    ops.extend(OF_THE_USER.map(|(path, text)| Op::Write(b(path), text.into())));
    ops.push(Op::Link(b("l1"), b("l2")));
    ops.push(Op::Mkdir(b("store")));
    for number in 0..STORED {
        ops.push(Op::Mkdir(format!("store/{number}").into_bytes()));
        let stored = stored(number).into_iter();
        ops.extend(stored.map(|(path, text)| Op::Write(path.into_bytes(), text)));
    }
    ops
}

/// Directories of the user that the hostile process moves to the names of others.
const STORED: u64 = 2;

/// Paths and texts of the files of such a directory. The run makes files of the same names, except for the last one.
fn stored(number: u64) -> Vec<(String, String)> {
    let names = ["f", "there", "inside", "m", "own"];
    names.iter().enumerate().map(|(at, name)| (format!("store/{number}/{name}"), format!("T81{number}{at};"))).collect()
}

/// Texts of all such files.
fn all_stored() -> impl Iterator<Item = String> {
    (0..STORED).flat_map(|number| stored(number).into_iter().map(|(_, text)| text))
}

/// Files that the hostile process alone destroys: the run renames them, or the directories that they are in.
const OF_THE_USER: [(&str, &str); 6] = [
    ("ren/kept", "T801;"),
    ("home/f", "T802;"),
    ("home/in/g", "T803;"),
    ("here", "T804;"),
    ("there", "T805;"),
    ("gone/out", "T806;"),
];

/// The run's changes. Each text is a token of its own.
fn run(mode: LayerMode) -> (Vec<Op>, BTreeSet<String>) {
    let mut written = BTreeSet::new();
    let mut number = 0;
    let mut text = || {
        number += 1;
        let text = format!("T{number};");
        written.insert(text.clone());
        text
    };
    let mut ops = vec![
        Op::Rename(b("here"), b("d/in/here")),
        Op::Rename(b("gone/out"), b("e/out")),
        Op::Write(b("d/a"), text()),
        Op::Remove(b("d/b")),
        Op::Write(b("d/in/c"), text()),
        Op::Write(b("d/in/new"), text()),
        Op::Write(b("top.tmp"), text()),
        Op::Rename(b("top.tmp"), b("top")),
        Op::Remove(b("other")),
        Op::RemoveTree(b("gone")),
        Op::RemoveTree(b("swap")),
        Op::Write(b("swap"), text()),
        Op::Remove(b("e/x")),
        Op::Mkdir(b("e/x")),
        Op::Write(b("e/x/inside"), text()),
        Op::Mkdir(b("fresh")),
        Op::Write(b("fresh/f"), text()),
        Op::Rename(b("there"), b("fresh/there")),
        Op::Write(b("there"), text()),
        Op::Write(b("l1"), text()),
    ];
    if mode == LayerMode::Root {
        ops.extend([Op::Rename(b("ren"), b("moved")), Op::Write(b("moved/m"), text())]);
        ops.extend([Op::Rename(b("home"), b("e/guest")), Op::Write(b("e/guest/more"), text())]);
    }
    (ops, written)
}

const PLACES: [&str; 26] = [
    "here",
    "d/in/here",
    "there",
    "fresh/there",
    "e/out",
    "d/a",
    "d/b",
    "d/in/c",
    "d/in/new",
    "top",
    "other",
    "gone/p",
    "gone/sub/q",
    "swap/s",
    "swap",
    "e/x",
    "e/x/inside",
    "fresh/f",
    "l1",
    "l2",
    "ren/m",
    "moved/m",
    "moved",
    "e/guest",
    "e/guest/f",
    "home/in/g",
];
/// Schedules that found an error once.
const FOUND: [u64; 4] = [1537, 3393, 3667, 102_079];
/// The seeds from here on also take the places that the run made free, crash twice, and take commits back.
const WIDER: u64 = 100_000;
const TAKEN: [&str; 4] = ["moved", "fresh", "ren", "d/in/new"];
/// Names to which a stored directory moves: directories of the run, before and while they come.
const MOVED_TO: [&str; 6] = ["fresh", "fresh", "e/x", "moved", "e/guest", "swap"];
const DIRECTORIES: [&str; 10] = ["d", "d/in", "gone", "gone/sub", "swap", "e", "ren", "moved", "home", "e/guest"];

fn next_act(random: &mut Random, number: u64, wider: bool) -> Act {
    let path = (*random.pick(&PLACES)).to_owned();
    let text = format!("T9{number};");
    if wider && random.below(5) == 0 {
        return Act::Create { path: (*random.pick(&TAKEN)).to_owned(), text };
    }
    match random.below(15) {
        // A place that a step has just left or is about to take.
        12 => Act::MakeDirectory { path, file: "made".into(), text },
        13 => Act::Refuse { path: (*random.pick(&["", "e", "d", "d/in"])).to_owned() },
        14 => Act::Allow,
        0..4 => Act::SaveByRename { path, text },
        4..7 => Act::Append { path, text },
        7..9 => Act::Create { path, text },
        9 => Act::Delete { path },
        10 => {
            let file = path.rsplit('/').next().unwrap().to_owned();
            Act::SwapDirectory { path: (*random.pick(&DIRECTORIES)).to_owned(), file, text }
        }
        _ => Act::Chmod { path, mode: if random.below(2) == 0 { 0o600 } else { 0o640 } },
    }
}

/// Directories that move in, by a generator of their own: the other acts of a seed stay the same.
struct Moves {
    random: Random,
    left: u64,
}

impl Moves {
    fn of(seed: u64) -> Self {
        let left = if seed % 7 == 3 { STORED } else { 0 };
        Self { random: Random(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1), left }
    }

    /// Returns the next one, once in so many calls.
    fn next(&mut self, calls: u64) -> Option<Act> {
        if self.left == 0 || self.random.below(calls) != 0 {
            return None;
        }
        self.left -= 1;
        let (from, path) = (format!("store/{}", self.left), (*self.random.pick(&MOVED_TO)).to_owned());
        Some(Act::MoveIn { from, path })
    }
}

/// A way to end a commit that a crash interrupted. Returns the conflicts that it names.
type LinkEnd<'a> = &'a dyn Fn(&Faults) -> Result<Vec<Conflict>, RecoverError>;

/// Plays one schedule, and notes the numbers of the calls before which the process acted. Returns how many calls there were.
/// A failure has the whole story: a part of it depends on the time, so that the seed alone may not repeat it.
fn play(seed: u64, hits: &mut BTreeMap<u64, u64>, left_out: &[Comparison]) -> u64 {
    STORY.take();
    let played = catch_unwind(AssertUnwindSafe(|| play_seed(seed, hits, left_out)));
    played.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("another panic");
        panic!("schedule {seed} failed: {text}\n{}\nend of schedule {seed}", STORY.take().1.join("\n"))
    })
}

fn play_seed(seed: u64, hits: &mut BTreeMap<u64, u64>, left_out: &[Comparison]) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mode = if seed.is_multiple_of(3) { LayerMode::User } else { LayerMode::Root };
    let scene = Scene::one_of_many(mode, &base());
    let (ops, mut wrote) = run(mode);
    wrote.extend(OF_THE_USER.map(|(_, text)| text.to_owned()).into_iter().chain(all_stored()));
    let _mutable = Mutable(scene.ws());
    let _witness = Witness(scene.dir.path().to_owned());
    note(&format!("seed {seed}, {mode:?}, in {}", scene.dir.path().display()));
    let mut layer = Some(scene.layer(&ops));
    let hostile = Arc::new(Mutex::new(Hostile::start(&scene)));
    let mut moves = Moves::of(seed);
    if let Some(next) = moves.next(2) {
        // Between the end of the run and its commit.
        hostile.lock().unwrap().act(0, &next);
    }
    let moves = Mutex::new(moves);
    let crash_at = if seed % 4 == 1 { 40 + random.below(160) } else { u64::MAX };
    let (crash_at, second_crash) = match seed {
        WIDER.. => {
            let first = 40 + random.below(160);
            (first, first + 1 + random.below(60))
        }
        _ => (crash_at, u64::MAX),
    };
    let calls = Arc::new(AtomicU64::new(0));
    let random = Arc::new(Mutex::new((random, BTreeSet::new())));
    let crashed = Arc::new(AtomicBool::new(false));
    let between = {
        let (hostile, calls, random, crashed) = (hostile.clone(), calls.clone(), random.clone(), crashed.clone());
        move |_: u64| {
            let at = calls.fetch_add(1, Ordering::SeqCst) + 1;
            {
                let (random, seen) = &mut *random.lock().unwrap();
                if random.below(14) == 0 {
                    seen.insert(at);
                    let next = next_act(random, at, seed >= WIDER);
                    hostile.lock().unwrap().act(at, &next);
                }
            }
            if let Some(next) = moves.lock().unwrap().next(30) {
                hostile.lock().unwrap().act(at, &next);
            }
            if at == crash_at && !crashed.swap(true, Ordering::SeqCst) {
                note(&format!("call {at}: crash"));
                std::panic::panic_any("crash");
            }
            if at == second_crash {
                note(&format!("call {at}: crash"));
                std::panic::panic_any("crash");
            }
        }
    };
    let mut faults = Faults::default().between(Arc::new(between)).without_comparisons(left_out);
    if seed % 5 == 2 || (seed >= WIDER && seed.is_multiple_of(2)) {
        note("without the flags of renameat2(2)");
        faults = faults.without_rename_flags();
    }
    layer.as_mut().unwrap().set_faults(faults.clone());
    let workspace = Workspace::open(&scene.ws()).unwrap().with_leases(noted_lease);
    let mut conflicts: Vec<Conflict> = Vec::new();
    let done = catch_unwind(AssertUnwindSafe(|| layer.as_ref().unwrap().commit(&workspace, &Rules::default())));
    note(&format!("the commit ended after {} calls: {done:?}", calls.load(Ordering::SeqCst)));
    match done {
        Ok(Ok(result)) => conflicts.extend(result.conflicts),
        Ok(Err(error)) if !hostile.lock().unwrap().refused => {
            panic!("the commit failed: {error:?}")
        }
        Ok(Err(_)) | Err(_) => {
            layer.take();
            let layers = scene.path("layers");
            let forward = |faults: &Faults| {
                let recovered = recover_with(&layers, "run", &workspace, faults)?;
                Ok(match recovered {
                    Recovered::RolledForward(done) => done.conflicts,
                    Recovered::TakenBack(conflicts) => conflicts,
                    _ => Vec::new(),
                })
            };
            let back = |faults: &Faults| match roll_back_with(&layers, "run", &workspace, faults) {
                Err(RecoverError::Applied { .. }) => forward(faults),
                other => other,
            };
            // Forward or back, and after a second crash forward or back.
            let ways: [LinkEnd<'_>; 2] = [&forward, &back];
            let way = |number: u64| {
                let way = if seed < WIDER { ways[0] } else { ways[(number % 2) as usize] };
                // What the hostile process refuses may stop it until that process allows it again.
                let ended = way(&faults).or_else(|error| {
                    let mut hostile = hostile.lock().unwrap();
                    assert!(hostile.refused, "the way of ending it failed: {error:?}");
                    hostile.act(0, &Act::Allow);
                    drop(hostile);
                    way(&Faults::default().without_comparisons(left_out))
                });
                ended.unwrap()
            };
            // A commit that was refused has met no crash yet, so that both may come here.
            for try_ in 1.. {
                let ended = catch_unwind(AssertUnwindSafe(|| way(seed >> try_)));
                note(&format!("try {try_} ended after {} calls: {ended:?}", calls.load(Ordering::SeqCst)));
                match ended {
                    Ok(more) => {
                        conflicts.extend(more);
                        break;
                    }
                    Err(payload) if payload.downcast_ref::<&str>() == Some(&"crash") => {}
                    Err(payload) => std::panic::resume_unwind(payload),
                }
            }
        }
    }
    let mut hostile = hostile.lock().unwrap();
    hostile.act(0, &Act::Allow);
    hostile.act(0, &Act::Finish);
    let mut found = Vec::new();
    tokens(&scene.ws(), &mut found);
    tokens(&scene.path("layers"), &mut found);
    let found: BTreeSet<String> = found.into_iter().collect();
    for text in hostile.written.iter().chain(&wrote).filter(|text| !hostile.destroyed.contains(*text)) {
        assert!(found.contains(text), "{text} is lost");
    }
    drop(layer);
    // What only the layer has of the run goes with a reject. What the user had stays.
    abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    let mut found = Vec::new();
    tokens(&scene.ws(), &mut found);
    tokens(&scene.path("layers"), &mut found);
    let of_others = hostile.written.iter().map(String::as_str).chain(OF_THE_USER.map(|(_, text)| text));
    let stored: Vec<String> = all_stored().collect();
    let of_others = of_others.chain(stored.iter().map(String::as_str));
    for text in of_others.filter(|text| !hostile.destroyed.contains(*text)) {
        assert!(found.iter().any(|one| one == text), "{text} is lost at a reject");
    }
    let mut beside = Vec::new();
    leftovers(&scene.ws(), &scene.ws(), &mut beside);
    let named: BTreeSet<PathBuf> =
        conflicts.iter().filter_map(|one| one.beside.as_ref()).map(|path| path.as_path().to_owned()).collect();
    for path in &beside {
        // A directory that was swapped meanwhile may have carried it elsewhere.
        let name = path.file_name().unwrap();
        assert!(named.iter().any(|one| one.file_name().unwrap() == name), "{} is not named", path.display());
    }
    let (_, seen) = &*random.lock().unwrap();
    for at in seen {
        *hits.entry(*at).or_default() += 1;
    }
    calls.load(Ordering::SeqCst)
}

/// Collects versions that were put beside a path. Names of an unfinished commit must not be left.
fn leftovers(root: &Path, at: &Path, beside: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.contains(".nexus-tmp") && !name.contains(".nexus-side"), "{name} is left");
        if name.contains(".nexus-conflict-") {
            beside.push(entry.path().strip_prefix(root).unwrap().to_owned());
        } else if entry.file_type().unwrap().is_dir() {
            leftovers(root, &entry.path(), beside);
        }
    }
}

/// Plays schedules in a few threads, which mostly wait for the hostile processes. Returns how often each call was hit, and the
/// calls of the shortest schedule.
fn play_all(seeds: &[u64]) -> (BTreeMap<u64, u64>, u64) {
    const THREADS: usize = 4;
    std::thread::scope(|scope| {
        let part = |first: usize| {
            move || {
                let mut hits = BTreeMap::new();
                let calls = seeds.iter().skip(first).step_by(THREADS).map(|seed| play(*seed, &mut hits, &[])).min();
                (hits, calls.unwrap_or(u64::MAX))
            }
        };
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(part(first))).collect();
        let mut all = (BTreeMap::new(), u64::MAX);
        for part in parts {
            let (hits, calls) = part.join().unwrap();
            all.1 = all.1.min(calls);
            for (at, times) in hits {
                *all.0.entry(at).or_default() += times;
            }
        }
        all
    })
}

#[test]
fn no_byte_is_lost_whatever_another_process_does_meanwhile() {
    let (first, count) = match std::env::var("NEXUS_MODEL_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (1, std::env::var("NEXUS_SOAK_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)),
    };
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<&str>() != Some(&"crash") {
            eprintln!("{info}");
        }
    }));
    let (hits, fewest) = play_all(&(first..first + count).collect::<Vec<_>>());
    if first == 1 {
        play_all(&FOUND.into_iter().chain(WIDER..WIDER + count / 3).collect::<Vec<_>>());
    }
    if count >= 300 {
        // The calls that every schedule has.
        let missed: Vec<u64> = (1..=fewest).filter(|at| !hits.contains_key(at)).collect();
        assert!(missed.is_empty(), "the process never acted before the calls {missed:?} of {fewest}");
    }
}

/// Comparisons that are left out together, and schedules that notice it. Those that no schedule notices alone:
///
/// * `BeforePut`, `BeforeTake`: what came out is looked at again, so that they only make a conflict cheaper.
/// * `Parent`, `InsideRemoval`, and those of other files: the tests in `comparisons.rs` notice.
const LEFT_OUT: &[(&[Comparison], &[u64])] = &[
    (&[Comparison::AfterPut], &[16, 21, 112]),
    (&[Comparison::AfterTake], &[8, 14, 21]),
    (&[Comparison::BeforeRemoval], &[96, 552, 869, 907]),
    (&[Comparison::BeforePut, Comparison::AfterPut, Comparison::BeforeRemoval], &[2, 8, 11]),
    (&[Comparison::BeforeTake, Comparison::AfterTake, Comparison::BeforeRemoval], &[8, 14, 21]),
];

/// A model that cannot notice what is missing says nothing about what is there.
#[test]
fn the_model_notices_each_comparison_that_is_left_out() {
    for (left_out, seeds) in LEFT_OUT {
        let found = seeds.iter().find(|seed| notices(**seed, left_out));
        println!("without {left_out:?}: schedule {found:?}");
        assert!(found.is_some(), "no schedule of {seeds:?} notices that {left_out:?} is left out");
    }
}

/// Reports whether a schedule loses a byte, or leaves a conflict unnamed, without these comparisons.
fn notices(seed: u64, left_out: &[Comparison]) -> bool {
    let played = catch_unwind(AssertUnwindSafe(|| play(seed, &mut BTreeMap::new(), left_out)));
    let Err(payload) = played else { return false };
    let text = payload.downcast_ref::<String>().map_or("", String::as_str);
    text.contains(" is lost") || text.contains(" is not named")
}

/// Prints for each row which of the schedules from NEXUS_MODEL_SEED on notice it.
#[test]
#[ignore = "finds schedules for the table"]
fn explore_comparisons() {
    let first = std::env::var("NEXUS_MODEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for (left_out, _) in LEFT_OUT {
            scope.spawn(move || {
                let found = (first..first + 120).filter(|seed| notices(*seed, left_out)).take(3);
                println!("{left_out:?}: {:?}", found.collect::<Vec<_>>());
            });
        }
    });
}
