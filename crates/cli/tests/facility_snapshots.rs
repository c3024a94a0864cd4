//! `nexus facility snapshot|restore|diff|fork|forget|gc` with the real program, also killed at random points.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Rounds of each kind of kill.
const ROUNDS: u32 = 25;

struct Scene {
    base: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { base: tempfile::tempdir_in("/var/tmp").unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn tree(&self, facility: &str) -> PathBuf {
        self.path("state-facilities").join(facility).join("tree")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state"));
        command.current_dir(self.base.path()).args(arguments).stdin(Stdio::null());
        command
    }

    fn nexus(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn good(&self, arguments: &[&str]) -> String {
        let done = self.nexus(arguments);
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.good(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn shell(&self, facility: &str, script: &str) {
        self.good(&["run", "--profile", "none", "--facility", facility, "--changes", "commit", "--shell", script]);
    }

    /// Runs a command and kills it at some time of its usual duration; reports whether it was killed.
    fn killed(&self, arguments: &[&str], usual: Duration, round: u32) -> bool {
        let mut child = self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Golden ratio: the times spread over the whole duration, another one in each round.
        let part = f64::from(round) * 0.618_034 % 1.0;
        std::thread::sleep(usual.mul_f64(part));
        child.kill().unwrap();
        child.wait().unwrap().signal() == Some(9)
    }
}

fn contents(tree: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut all, mut waiting) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(tree).unwrap().to_owned();
            if path.is_dir() {
                waiting.push(path);
                all.insert(name, Vec::new());
            } else {
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    all
}

fn fill(tree: &Path, text: &str) {
    for number in 0..120 {
        let dir = tree.join(format!("d{}", number % 10));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{number}")), format!("{text} {number}\n").repeat(50)).unwrap();
    }
}

/// A facility with the snapshots `old` and `new`, and what each holds.
fn two_states(scene: &Scene) -> [BTreeMap<PathBuf, Vec<u8>>; 2] {
    scene.shell("p", "true");
    let tree = scene.tree("p");
    fill(&tree, "old");
    let old = contents(&tree);
    scene.good(&["facility", "snapshot", "p", "--label", "old"]);
    fs::remove_dir_all(tree.join("d3")).unwrap();
    fill(&tree, "new");
    fs::write(tree.join("more"), "more").unwrap();
    scene.good(&["facility", "snapshot", "p", "--label", "new"]);
    [old, contents(&tree)]
}

#[test]
fn a_ruined_workspace_is_restored_and_forked_into_attempts() {
    let scene = Scene::new();
    scene.shell("project", "mkdir src; echo good > src/main; ln -s src/main link");
    let first = scene.json(&["facility", "snapshot", "project", "--label", "clean"]);
    assert_eq!((&first["number"], &first["label"], &first["entries"]), (&1.into(), &"clean".into(), &3.into()));
    scene.shell("project", "rm -r src link; echo ruined > other; mkfifo pipe; true");
    let diff = scene.good(&["facility", "diff", "project", "clean"]);
    let lines: Vec<_> = diff.lines().collect();
    assert_eq!(lines[0], "deleted     link", "{diff}");
    assert!(lines.contains(&"added       other") && lines.contains(&"deleted     src/main"), "{diff}");
    let restored = scene.json(&["facility", "restore", "project", "clean"]);
    assert_eq!((&restored["restored"]["number"], &restored["before"]["number"]), (&1.into(), &2.into()));
    assert_eq!(fs::read_to_string(scene.tree("project").join("link")).unwrap(), "good\n");
    assert_eq!(scene.good(&["facility", "diff", "project", "clean"]), "No differences.\n");
    // Nothing was lost.
    scene.good(&["facility", "restore", "project", "2", "--no-snapshot"]);
    assert_eq!(fs::read_to_string(scene.tree("project").join("other")).unwrap(), "ruined\n");
    for attempt in ["a1", "a2", "a3"] {
        scene.good(&["facility", "fork", "project", attempt, "--from", "clean"]);
        scene.shell(attempt, &format!("grep -q good src/main && echo {attempt} > src/main"));
    }
    assert_eq!(fs::read_to_string(scene.tree("a2").join("src/main")).unwrap(), "a2\n");
    // The present state is the beginning of a fork unless a snapshot is named.
    scene.good(&["facility", "fork", "a2", "b"]);
    assert_eq!(fs::read_to_string(scene.tree("b").join("src/main")).unwrap(), "a2\n");
    let listed = scene.json(&["facility", "snapshots", "project", "--verify"]);
    assert_eq!(listed["snapshots"].as_array().unwrap().len(), 2);
    scene.good(&["facility", "forget", "project", "2"]);
    let cleaned = scene.json(&["facility", "gc"]);
    assert!(cleaned["objects_removed"].as_u64().unwrap() > 0, "{cleaned}");
    scene.good(&["facility", "snapshots", "a3", "--verify"]);
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let scene = Scene::new();
    scene.shell("p", "echo one > f");
    scene.good(&["facility", "snapshot", "p"]);
    for (arguments, code, exit) in [
        (&["snapshot", "unknown"][..], "not_found", 125),
        (&["snapshot", "../p"], "facility", 2),
        (&["snapshot", "p", "--label", "latest"], "snapshot_label", 2),
        (&["snapshot", "p", "--label", "7"], "snapshot_label", 2),
        (&["restore", "p", "2"], "snapshot_unknown", 125),
        (&["diff", "p", "1", "zzzzzz"], "snapshot_unknown", 125),
        (&["fork", "p", "p", "--from", "1"], "exists", 125),
        (&["fork", "p", "a/b"], "facility", 2),
    ] {
        let refused = scene.nexus(&[&["facility"], arguments, &["--json"]].concat());
        assert_eq!(refused.status.code(), Some(exit), "{arguments:?}: {refused:?}");
        let text = String::from_utf8_lossy(&refused.stdout).into_owned() + &String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains(&format!("\"{code}\"")), "{arguments:?}: {text}");
    }
    assert_eq!(scene.json(&["facility", "snapshots", "p"])["snapshots"].as_array().unwrap().len(), 1);
    // A run that works in it keeps it.
    scene.good(&["run", "--profile", "none", "--facility", "p", "--detach", "--name", "long", "--shell", "sleep 60"]);
    for arguments in [&["snapshot", "p"][..], &["restore", "p", "1"], &["fork", "p", "q"], &["diff", "p", "1"]] {
        let refused = scene.nexus(&[&["facility"], arguments].concat());
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("a run works in it"), "{refused:?}");
    }
    // A snapshot that exists needs nothing of the present state.
    scene.good(&["facility", "fork", "p", "q", "--from", "1"]);
    scene.good(&["stop", "long"]);
}

#[test]
fn changes_that_wait_are_for_the_present_state_which_no_restore_replaces() {
    let scene = Scene::new();
    scene.shell("p", "echo one > f");
    scene.good(&["facility", "snapshot", "p"]);
    scene.good(&["run", "--profile", "none", "--facility", "p", "--changes", "review", "--shell", "echo two > f"]);
    let refused = scene.nexus(&["facility", "restore", "p", "1"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("wait for a decision"), "{refused:?}");
    let waiting: Value = serde_json::from_str(&scene.good(&["changes", "list", "--json"])).unwrap();
    scene.good(&["changes", "accept", "--run", waiting[0]["run_id"].as_str().unwrap()]);
    assert_eq!(fs::read_to_string(scene.tree("p").join("f")).unwrap(), "two\n");
    scene.good(&["facility", "restore", "p", "1"]);
    assert_eq!(fs::read_to_string(scene.tree("p").join("f")).unwrap(), "one\n");
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_tree_or_the_new_one() {
    let scene = Scene::new();
    let [old, new] = two_states(&scene);
    let start = Instant::now();
    scene.good(&["facility", "restore", "p", "new", "--no-snapshot"]);
    let usual = start.elapsed();
    let mut killed = 0;
    let mut is_old = false;
    for round in 0..ROUNDS {
        let wanted = if is_old { "new" } else { "old" };
        killed += u32::from(scene.killed(&["facility", "restore", "p", wanted, "--no-snapshot"], usual, round));
        let now = contents(&scene.tree("p"));
        assert!(now == old || now == new, "round {round}: a mix");
        is_old = now == old;
    }
    assert!(killed > ROUNDS / 3, "{killed} of {ROUNDS} were killed");
    scene.good(&["facility", "restore", "p", "old"]);
    assert_eq!(contents(&scene.tree("p")), old);
    let left: Vec<_> =
        fs::read_dir(scene.path("state-facilities/p")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".tree-")), "{left:?}");
}

#[test]
fn a_fork_that_is_killed_leaves_a_whole_facility_or_none() {
    let scene = Scene::new();
    let [old, _] = two_states(&scene);
    let start = Instant::now();
    scene.good(&["facility", "fork", "p", "first", "--from", "old"]);
    let usual = start.elapsed();
    let mut killed = 0;
    for round in 0..ROUNDS {
        let name = format!("fork-{round}");
        killed += u32::from(scene.killed(&["facility", "fork", "p", &name, "--from", "old"], usual, round));
        if scene.tree(&name).exists() {
            assert_eq!(contents(&scene.tree(&name)), old, "round {round}");
            scene.good(&["facility", "snapshots", &name, "--verify"]);
        }
    }
    assert!(killed > ROUNDS / 3, "{killed} of {ROUNDS} were killed");
    scene.good(&["facility", "gc"]);
    let left: Vec<_> =
        fs::read_dir(scene.path("state-facilities")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".fork-")), "{left:?}");
}

#[test]
fn a_cleaning_that_is_killed_loses_nothing() {
    let scene = Scene::new();
    let [old, new] = two_states(&scene);
    let tree = scene.tree("p");
    let mut usual = Duration::from_millis(100);
    let mut killed = 0;
    for round in 0..ROUNDS {
        // Something to remove, in a pack that has something to keep, too.
        fs::write(tree.join("more"), format!("kept {round}")).unwrap();
        fs::write(tree.join("temporary"), format!("temporary {round}")).unwrap();
        scene.good(&["facility", "snapshot", "p", "--label", "temporary"]);
        scene.good(&["facility", "forget", "p", "temporary"]);
        if round == 0 {
            let start = Instant::now();
            scene.good(&["facility", "gc"]);
            usual = start.elapsed();
        } else {
            killed += u32::from(scene.killed(&["facility", "gc"], usual, round));
        }
        scene.good(&["facility", "snapshots", "p", "--verify"]);
    }
    assert!(killed > ROUNDS / 3, "{killed} of {ROUNDS} were killed");
    scene.good(&["facility", "gc"]);
    let again = scene.json(&["facility", "gc"]);
    assert_eq!(again["objects_removed"], 0, "{again}");
    for (label, state) in [("old", old), ("new", new)] {
        scene.good(&["facility", "restore", "p", label, "--no-snapshot"]);
        assert_eq!(contents(&tree), state);
    }
}

/// The test's own process has the file open, as an editor or a server of the user's would.
#[test]
fn a_replaced_tree_stays_while_a_file_of_it_is_open_for_writing() {
    let scene = Scene::new();
    scene.shell("p", "mkdir -p deep; echo one > deep/x; echo other > y");
    scene.good(&["facility", "snapshot", "p", "--label", "one"]);
    let mut writer = fs::File::options().append(true).open(scene.tree("p").join("deep/x")).unwrap();
    writer.write_all(b"early\n").unwrap();
    let restored = scene.json(&["facility", "restore", "p", "one"]);
    let in_use = restored["in_use"].as_array().unwrap();
    assert_eq!((in_use.len(), &in_use[0]["file"]["text"]), (1, &"deep/x".into()), "{restored}");
    let kept = PathBuf::from(in_use[0]["tree"].as_str().unwrap());
    writer.write_all(b"late\n").unwrap();
    assert_eq!(fs::read_to_string(kept.join("deep/x")).unwrap(), "one\nearly\nlate\n");
    assert_eq!(fs::read_to_string(scene.tree("p").join("deep/x")).unwrap(), "one\n");
    let cleaned = scene.nexus(&["facility", "gc"]);
    let told = String::from_utf8_lossy(&cleaned.stderr);
    assert!(cleaned.status.success() && told.contains("deep/x") && kept.exists(), "{told}");
    drop(writer);
    assert_eq!(scene.json(&["facility", "gc"])["in_use"], serde_json::json!([]));
    assert!(!kept.exists(), "nothing uses it any more");
    let all = scene.json(&["facility", "snapshots", "p"]);
    let last = all["snapshots"].as_array().unwrap().last().unwrap();
    assert_eq!(last["label"], "changed during a restore", "{all}");
    let restored = scene.json(&["facility", "restore", "p", last["id"].as_str().unwrap()]);
    assert_eq!(restored["in_use"], serde_json::json!([]));
    assert_eq!(fs::read_to_string(scene.tree("p").join("deep/x")).unwrap(), "one\nearly\nlate\n");
}

/// Mounts in a namespace of one `sh`. A directory of the user's that is mounted there does not belong to the facility, and stays whole.
#[test]
fn a_restore_touches_nothing_that_is_mounted_in_a_facility() {
    if !rustix::process::geteuid().is_root() {
        println!("in part: test a_restore_touches_nothing_that_is_mounted_in_a_facility: only root can mount");
        return;
    }
    let scene = Scene::new();
    scene.shell("p", "mkdir data; echo one > x");
    scene.good(&["facility", "snapshot", "p", "--label", "one"]);
    let own = scene.path("own");
    fs::create_dir_all(own.join("deep")).unwrap();
    fs::write(own.join("deep/file"), "the user's").unwrap();
    for words in ["restore p one", "restore p one --no-snapshot"] {
        let nexus = scene.command(&[]);
        let line = format!(
            "mount --bind '{}' '{}' && exec '{}' facility {words}",
            own.display(),
            scene.tree("p").join("data").display(),
            nexus.get_program().to_string_lossy()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line]).env_clear().current_dir(scene.base.path());
        command.envs(nexus.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = command.output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && told.contains("is mounted in the facility p"), "{words}: {told}");
        assert_eq!(fs::read_to_string(own.join("deep/file")).unwrap(), "the user's", "{words}");
    }
    scene.good(&["facility", "restore", "p", "one"]);
}
