//! Remains of runs: there are none, however many there were and however they ended.
//!
//! The tests of this file take turns: one of them counts the descriptors of this process. Within a test, root and an ordinary user work
//! side by side: most of the time is spent on waiting for the disk and for the end of processes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use support::traces::{Lone, lone_benches};
use support::{stderr, stdout, wait_until};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `test` with each of the benches, side by side.
fn on_each_lone(benches: &[Lone], test: impl Fn(&Lone) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        let running: Vec<_> = benches.iter().map(|bench| scope.spawn(move || test(bench))).collect();
        let failed = running.into_iter().filter_map(|thread| thread.join().err()).count();
        assert_eq!(failed, 0, "see above");
    });
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Session keyrings of sandboxes that this bench's user can see.
fn keyrings(bench: &Lone) -> usize {
    let output = bench.command("cat").arg("/proc/keys").output().unwrap();
    stdout(&output).lines().filter(|line| line.contains("nexus-sandboxes")).count()
}

/// Keys are collected some time after their last user has ended. Root's may be in use by others on this machine.
fn assert_keyrings_go(bench: &Lone, before: usize) {
    let most = if bench.user.is_some() { 0 } else { before + 1 };
    wait_until("the end of the keyrings", Duration::from_secs(30), || keyrings(bench) <= most);
}

const MODES: [&[&str]; 3] = [&[], &["--direct"], &["--disk", "4M"]];

#[test]
fn a_thousand_runs_leave_nothing() {
    let _turn = turn();
    let benches = lone_benches();
    let before: Vec<_> = benches.iter().map(|bench| (bench.before(), keyrings(bench))).collect();
    let descriptors = open_descriptors();
    let began = Instant::now();
    on_each_lone(&benches, |bench| {
        for number in 0..1000 / benches.len() {
            let mode = MODES[number % MODES.len()];
            let output = bench.nexus(["run"]).args(mode).args(["--", "true"]).output().unwrap();
            let said = (output.status.code(), stdout(&output), stderr(&output));
            assert_eq!(said, (Some(0), String::new(), String::new()), "{}, run {number} {mode:?}", bench.who());
        }
    });
    println!("1000 runs took {:?}", began.elapsed());
    for (bench, (before, keys)) in benches.iter().zip(&before) {
        bench.assert_no_trace(before, "1000 runs");
        assert_keyrings_go(bench, *keys);
    }
    assert!(open_descriptors() <= descriptors, "{descriptors} descriptors grew to {}", open_descriptors());
}

#[test]
fn two_hundred_parallel_runs_all_commit_and_leave_nothing() {
    const THREADS: usize = 20;
    const EACH: usize = 10;
    let _turn = turn();
    let benches = lone_benches();
    for bench in &benches {
        for number in 0..THREADS {
            bench.write(&format!("own-{number}/keep"), "x");
        }
    }
    let before: Vec<_> = benches.iter().map(|bench| (bench.before(), keyrings(bench))).collect();
    let descriptors = open_descriptors();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let bench = &benches[thread % benches.len()];
            scope.spawn(move || {
                for number in 0..EACH {
                    // Half of them share the workspace, half have their own.
                    let folder = if number % 2 == 0 { PathBuf::new() } else { format!("own-{thread}").into() };
                    let script = format!("echo {number} > made-{thread}-{number}");
                    let mut command = bench.nexus(["run"]);
                    command.args(MODES[(thread + number) % MODES.len()]).args(["--shell", &script]);
                    let output = command.current_dir(bench.workspace.join(&folder)).output().unwrap();
                    assert_eq!(output.status.code(), Some(0), "{thread}-{number}: {}", stderr(&output));
                    let made = bench.workspace.join(&folder).join(format!("made-{thread}-{number}"));
                    assert_eq!(fs::read_to_string(&made).unwrap(), format!("{number}\n"), "{thread}-{number}");
                    fs::remove_file(made).unwrap();
                }
            });
        }
    });
    for (bench, (before, keys)) in benches.iter().zip(&before) {
        bench.assert_no_trace(before, "200 parallel runs");
        assert_keyrings_go(bench, *keys);
    }
    assert!(open_descriptors() <= descriptors, "{descriptors} descriptors grew to {}", open_descriptors());
}

/// Makes, changes, deletes, renames and closes files: a commit of many actions.
const WORK: &str = "mkdir -p new/deep; rm delete-*; mv rename-* new; i=0; while [ $i -lt 20 ]; do \
    echo changed > change-$i; echo $i > new/deep/$i; i=$((i+1)); done; \
    ln -s target new/link; chmod 600 change-0; rm -r folder; mkdir folder; echo inside > folder/other; mkfifo new/fifo; echo DONE";

/// A workspace of its own for one try.
fn fresh(bench: &Lone, name: &str) -> PathBuf {
    let workspace = bench.base.path().join(name);
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(workspace.join("folder")).unwrap();
    let mut files = vec![workspace.join("folder/file")];
    files.extend(
        ["change", "delete", "rename"]
            .iter()
            .flat_map(|kind| (0..20).map(move |i| format!("{kind}-{i}")))
            .map(|name| workspace.join(name)),
    );
    for file in &files {
        fs::write(file, file.file_name().unwrap().as_encoded_bytes()).unwrap();
        bench.give(file);
    }
    bench.give(&workspace.join("folder"));
    bench.give(&workspace);
    workspace
}

/// Every path with its kind, mode and content.
type Version = BTreeMap<String, (u32, Vec<u8>)>;

fn version(workspace: &Path) -> Version {
    let mut all = Version::new();
    let mut waiting = vec![workspace.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            all.insert(
                path.strip_prefix(workspace).unwrap().display().to_string(),
                (meta.permissions().mode(), content),
            );
            if meta.is_dir() {
                waiting.push(path);
            }
        }
    }
    all
}

#[test]
fn the_layer_of_a_run_that_still_goes_is_neither_listed_nor_rejected() {
    let _turn = turn();
    for bench in lone_benches() {
        let before = bench.before();
        let mut command = bench.nexus(["run", "--stdin", "--shell", "echo x > made; echo DONE; read line; exit 0"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_for_done(&mut child);
        assert_eq!(stdout(&bench.run(["changes", "list"])), "No changes wait for a decision.\n");
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(125));
        // Nor does another run in the same workspace clear it away.
        assert_eq!(bench.run(["run", "--", "true"]).status.code(), Some(0));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(fs::read_to_string(bench.workspace.join("made")).unwrap(), "x\n");
        fs::remove_file(bench.workspace.join("made")).unwrap();
        bench.assert_no_trace(&before, "a run beside another");
    }
}

/// Numbers that differ from test to test; the first is printed, so that a failure can be tried again.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = RandomState::new().hash_one(0);
        println!("seed {seed}");
        Self(seed)
    }

    /// Returns the next number, from 0 to below 1.
    fn next(&mut self) -> f64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

fn work(bench: &Lone, workspace: &Path, mode: &[&str]) -> Child {
    let mut command = bench.nexus(["run"]);
    command.args(mode).args(["--shell", WORK]).current_dir(workspace).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits until the script has done its work: what comes then is the end of the sandbox and the commit.
fn wait_for_done(child: &mut Child) {
    let mut said = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"DONE\n");
}

/// When a run is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    AfterStart(Duration),
    AfterWork(Duration),
}

/// Starts, kills at the moment, lets the next command clear up; returns whether the workspace is the new version.
fn killed_at(bench: &Lone, number: u32, moment: Moment, versions: &[Version; 2]) -> bool {
    let mode: &[&str] = if number % 8 < 6 { &[] } else { &["--disk", "4M"] };
    let what = format!("{}, try {number}, {mode:?} killed {moment:?}", bench.who());
    let workspace = fresh(bench, &format!("try-{number}"));
    let before = bench.before();
    let mut child = work(bench, &workspace, mode);
    // No condition to wait for: the moment is what is tried here.
    match moment {
        Moment::AfterStart(delay) => thread::sleep(delay),
        Moment::AfterWork(delay) => {
            wait_for_done(&mut child);
            thread::sleep(delay);
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    bench.assert_no_process(Duration::from_secs(2), &what);
    let next: &[&str] = if number % 4 < 2 { &["changes", "list"] } else { &["run", "--", "true"] };
    let output = bench.run(next);
    assert_eq!(output.status.code(), Some(0), "{what}: {next:?}: {}", stderr(&output));
    // One killed while it wrote its record has made nothing yet; its file is left alone for a minute, since it cannot
    // be distinguished from one of a run that just begins.
    for hidden in
        bench.leftovers().iter().filter(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b".new-"))
    {
        println!("{what}: while it wrote its record");
        let touched = Command::new("touch").args(["-d", "2 minutes ago"]).arg(hidden).status().unwrap();
        assert!(touched.success());
        assert_eq!(bench.run(["changes", "list"]).status.code(), Some(0), "{what}");
    }
    let waits = ends(bench, &what);
    let now = version(&workspace);
    let place = versions.iter().position(|version| *version == now);
    let Some(place) = place else {
        let mixed: Vec<_> = now.keys().filter(|path| now.get(*path) != versions[0].get(*path)).collect();
        panic!("{what}: the workspace is neither the old nor the new version; not as in the old one: {mixed:?}");
    };
    assert!(!waits || place == 0, "{what}: what waits is in the workspace");
    fs::remove_dir_all(&workspace).unwrap();
    bench.assert_no_trace(&before, &what);
    place == 1
}

/// Runs that wait, with their states.
fn waiting(bench: &Lone) -> Vec<(String, String)> {
    let listed = support::report(&bench.run(["changes", "list", "--json"]));
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(|row| (text(row, "run_id"), text(row, "state"))).collect()
}

/// Ends what a kill left: finishes the interrupted commit, throws away what waits. Returns whether something waited.
fn ends(bench: &Lone, what: &str) -> bool {
    let all = waiting(bench);
    assert!(all.len() <= 1, "{what}: {all:?}");
    let mut waits = false;
    for (run, state) in all {
        let arguments: &[&[&str]] = match state.as_str() {
            "interrupted" => &[&["changes", "recover"]],
            "waiting" => &[&["changes", "show"], &["changes", "reject"]],
            other => panic!("{what}: {other}"),
        };
        waits |= state == "waiting";
        for words in arguments {
            let output = bench.run(words.iter().chain(&["--run", &run]));
            assert_eq!(output.status.code(), Some(0), "{what}: {words:?}: {}", stderr(&output));
        }
    }
    assert!(waiting(bench).is_empty(), "{what}");
    waits
}

/// Number of kills: a bounded number here, more in a soak.
fn tries(usual: u32) -> u32 {
    std::env::var("NEXUS_SOAK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_killed_run_leaves_the_old_version_or_the_new_one_and_nothing_else() {
    let tries = tries(100);
    let _turn = turn();
    on_each_lone(&lone_benches(), |bench| {
        let mut random = Random::new();
        let workspace = fresh(bench, "whole");
        let old = version(&workspace);
        assert!(work(bench, &workspace, &[]).wait().unwrap().success());
        let new = version(&workspace);
        assert!(old != new && new.len() > 60, "{} entries", new.len());
        let (mut wholes, mut ends) = (Vec::new(), Vec::new());
        for number in 0..7 {
            let workspace = fresh(bench, &format!("measured-{number}"));
            let began = Instant::now();
            let mut child = work(bench, &workspace, &[]);
            wait_for_done(&mut child);
            let done = Instant::now();
            assert!(child.wait().unwrap().success());
            wholes.push(began.elapsed());
            ends.push(done.elapsed());
            assert_eq!(version(&workspace), new, "{}", bench.who());
        }
        let middle = |mut all: Vec<Duration>| {
            all.sort();
            all[all.len() / 2]
        };
        let (whole, end) = (middle(wholes), middle(ends));
        let versions = [old, new];
        let mut ended = [0, 0];
        for number in 0..tries {
            // One half evenly over the whole run, the other over its end; each at a random place in its part.
            let part = (f64::from(number / 2) + random.next()) / f64::from(tries / 2) * 1.1;
            let moment = if number % 2 == 0 {
                Moment::AfterStart(whole.mul_f64(part))
            } else {
                Moment::AfterWork(end.mul_f64(part))
            };
            ended[usize::from(killed_at(bench, number, moment, &versions))] += 1;
        }
        println!(
            "{}: a run takes {whole:?}, its end {end:?}; of {tries} kills {} left the old version, {} the new one",
            bench.who(),
            ended[0],
            ended[1]
        );
        assert!(ended[0] > 0, "no kill came before the commit");
    });
}

#[test]
fn a_killed_accept_leaves_the_old_version_or_the_new_one_and_can_be_repeated() {
    let tries = tries(50);
    let _turn = turn();
    on_each_lone(&lone_benches(), |bench| {
        let mut random = Random::new();
        let waiting = |name: &str| {
            let workspace = fresh(bench, name);
            let status = bench
                .nexus(["run", "--changes", "review", "--shell", WORK])
                .current_dir(&workspace)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            assert!(status.unwrap().success());
            workspace
        };
        let accept = |workspace: &Path| {
            let mut command = bench.nexus(["changes", "accept", "--protected"]);
            command.current_dir(workspace).stdout(Stdio::null());
            command.spawn().unwrap()
        };
        let workspace = waiting("accepted");
        let old = version(&workspace);
        let began = Instant::now();
        assert!(accept(&workspace).wait().unwrap().success());
        let whole = began.elapsed();
        let new = version(&workspace);
        assert!(old != new);
        let mut ended = [0, 0];
        for number in 0..tries {
            let workspace = waiting(&format!("accept-{number}"));
            let mut child = accept(&workspace);
            std::thread::sleep(whole.mul_f64((f64::from(number) + random.next()) / f64::from(tries) * 1.1));
            child.kill().unwrap();
            child.wait().unwrap();
            // The next command finishes what was decided.
            let recovered = bench.nexus(["changes", "recover"]).current_dir(&workspace).output().unwrap();
            assert!(recovered.status.success(), "{}", support::stderr(&recovered));
            let now = version(&workspace);
            assert!(now == old || now == new, "{}, try {number}: neither the old nor the new version", bench.who());
            ended[usize::from(now == new)] += 1;
            if now == old {
                let again = accept(&workspace).wait().unwrap();
                assert!(again.success(), "{}, try {number}: it cannot be accepted any more", bench.who());
                assert!(version(&workspace) == new);
            }
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
            fs::remove_dir_all(&workspace).unwrap();
        }
        println!(
            "{}: an accept takes {whole:?}; of {tries} kills {} left the old version, {} the new one",
            bench.who(),
            ended[0],
            ended[1]
        );
        assert!(ended[0] > 0, "no kill came before the commit");
    });
}

/// A layer whose commit was decided and not finished, and its workspace: killed again and again until a kill came there.
fn interrupted_commit(bench: &Lone) -> (PathBuf, PathBuf) {
    loop {
        let workspace = fresh(bench, "moved");
        let mut child = work(bench, &workspace, &[]);
        wait_for_done(&mut child);
        let layers = bench.state.join("layers");
        let decided = || {
            let layer = fs::read_dir(&layers).ok()?.next()?.ok()?.path();
            layer.join("journal").exists().then_some(layer)
        };
        let end = Instant::now() + Duration::from_secs(5);
        let mut found = None;
        while found.is_none() && child.try_wait().unwrap().is_none() && Instant::now() < end {
            found = decided();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let (Some(layer), Some(_)) = (found, decided()) {
            return (layer, workspace);
        }
        ends(bench, "no kill in the commit");
        fs::remove_dir_all(&workspace).unwrap();
    }
}

/// The records of runs.
fn records(bench: &Lone) -> Vec<PathBuf> {
    let entries = fs::read_dir(bench.state.join("runs")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_record_that_cannot_be_read_refuses_no_run_elsewhere() {
    let _turn = turn();
    for bench in lone_benches() {
        let elsewhere = fresh(&bench, "elsewhere");
        let run = || {
            bench.nexus(["run", "--changes", "discard", "--workspace"]).arg(&elsewhere).args(["--", "true"]).output()
        };
        // Killed while its command ran: nothing of it was applied anywhere.
        for nonsense in ["", "{}", "{\"handle\":"] {
            let workspace = fresh(&bench, "killed");
            let mut child = bench
                .nexus(["run", "--workspace"])
                .arg(&workspace)
                .args(["--", "sleep", "60"])
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            support::wait_until("its record", Duration::from_secs(20), || records(&bench).len() == 1);
            child.kill().unwrap();
            child.wait().unwrap();
            fs::write(&records(&bench)[0], nonsense).unwrap();
            support::wait_until("a run elsewhere", Duration::from_secs(20), || run().unwrap().status.success());
            assert!(bench.leftovers().is_empty(), "{nonsense:?}: {:?}", bench.leftovers());
            fs::remove_dir_all(&workspace).unwrap();
        }
        // In the middle of a commit: named everywhere, finished by a run in its own directory, which the journal names.
        let (layer, workspace) = interrupted_commit(&bench);
        let record = records(&bench).remove(0);
        let good = fs::read(&record).unwrap();
        fs::write(&record, &good[..good.len() / 2]).unwrap();
        let id = layer.file_name().unwrap().to_str().unwrap();
        let passed = run().unwrap();
        assert_eq!(passed.status.code(), Some(0), "{}", support::stderr(&passed));
        assert!(support::stderr(&passed).contains(&format!("nexus changes recover --run {id}")), "{}", stderr(&passed));
        assert!(!workspace.join("new/deep/19").exists() || layer.exists());
        fs::write(&record, [0xff, 0x00]).unwrap();
        let here = bench.nexus(["run", "--", "true"]).current_dir(&workspace).output().unwrap();
        assert_eq!(here.status.code(), Some(0), "{}", support::stderr(&here));
        assert!(support::stderr(&here).contains("is finished now"), "{}", support::stderr(&here));
        assert!(workspace.join("new/deep/19").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        for folder in [&workspace, &elsewhere] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn an_interrupted_commit_is_never_finished_in_a_directory_that_took_the_name() {
    let _turn = turn();
    for bench in lone_benches() {
        let away = bench.workspace.with_extension("away");
        let (layer, workspace) = interrupted_commit(&bench);
        fs::rename(&workspace, &away).unwrap();
        let id = layer.file_name().unwrap().to_str().unwrap().to_owned();
        let changes = |arguments: &[&str]| bench.nexus(["changes"]).args(arguments).current_dir("/").output().unwrap();
        // The directory is gone, then another one has its name.
        let told = changes(&["list"]);
        assert!(support::stderr(&told).contains("was interrupted"), "{}", support::stderr(&told));
        assert!(support::stdout(&told).contains(&id));
        assert_eq!(changes(&["recover"]).status.code(), Some(125));
        fs::create_dir(&workspace).unwrap();
        bench.give(&workspace);
        fs::write(workspace.join("mine"), "mine").unwrap();
        for arguments in [&["list"][..], &["accept", "--run", &id], &["recover"], &["show", "--run", &id]] {
            let output = changes(arguments);
            assert_eq!(output.status.success(), arguments[0] == "list", "{}", support::stderr(&output));
        }
        let here = bench.nexus(["run", "--", "true"]).current_dir(&workspace).output().unwrap();
        assert_eq!(here.status.code(), Some(0), "another directory of the name: {}", support::stderr(&here));
        assert_eq!(fs::read_dir(&workspace).unwrap().count(), 1, "nothing was put into a folder that is not the run's");
        assert!(layer.exists() && records(&bench).len() == 1, "the record and the layer stay");
        // Back in its place it is finished.
        fs::remove_dir_all(&workspace).unwrap();
        fs::rename(&away, &workspace).unwrap();
        let output = changes(&["accept", "--run", &id]);
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        assert!(support::stdout(&output).contains("is finished now"), "{}", support::stdout(&output));
        assert!(workspace.join("new/deep").exists());
        fs::remove_dir_all(&workspace).unwrap();
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}
