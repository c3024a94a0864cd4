//! `--live` with the real program: what is kept, what is seen at once, and the way back.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Bench, benches, on_each_bench, stderr, stdout, wait_until};

/// Mode, owner, time of change, content or target, and the number of names.
type Entry = (u32, u32, i64, i64, Vec<u8>, u64);

/// Lists everything below a directory.
fn listing(tree: &Path) -> BTreeMap<PathBuf, Entry> {
    let (mut all, mut waiting) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if meta.is_symlink() {
            content = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
        } else if meta.is_file() {
            content = fs::read(&path).unwrap();
        }
        let names = if meta.is_file() { meta.nlink() } else { 0 };
        all.insert(path, (meta.mode(), meta.uid(), meta.mtime(), meta.mtime_nsec(), content, names));
    }
    all
}

/// A workspace with links, further names of files, a repository and some directories.
fn populate(bench: &Bench) {
    for at in 0..30 {
        bench.write(&format!("src/{}/f{at}", at % 3), format!("line 1\nline {at}\n"));
    }
    bench.write(".git/HEAD", "ref: refs/heads/main\n");
    bench.write("gone/deep/er", "old\n");
    symlink("src/0/f0", bench.workspace.join("link")).unwrap();
    fs::hard_link(bench.workspace.join("src/0/f3"), bench.workspace.join("again")).unwrap();
    let mut chown = std::process::Command::new("chown");
    chown.args(["-Rh", "--reference=.", "."]).current_dir(&bench.workspace);
    assert!(chown.status().unwrap().success());
}

/// A command that ruins the workspace.
const RUIN: &str = "rm -rf gone; mv src/1 moved; echo x > src/0/f0; rm link; ln -s /etc/passwd link; ln -sfn /etc src/2/out; \
     chmod 700 src/0/f6; echo more >> again; mkfifo src/0/fifo; mkdir -p new/deep; echo n > new/deep/n; rm src/2/f2; mkdir src/2/f2; \
     touch -d @1 src/0/f9; (echo x > .git/config) 2>/dev/null && echo LEAK; true";

#[test]
fn a_live_run_that_closed_the_workspace_to_its_owner_is_undone() {
    on_each_bench(|bench| {
        populate(&bench);
        let before = listing(&bench.workspace);
        let output = bench.run(["run", "--live", "--shell", "echo x > src/0/f0; rm src/1/f1; chmod 500 ."]);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let one = bench.run(["changes", "undo", "src/0/f0"]);
        assert!(one.status.success(), "{}: {}", bench.who(), stderr(&one));
        let between = listing(&bench.workspace);
        assert_eq!(between[&bench.workspace].0 & 0o777, 0o500, "the mode is another change");
        assert_eq!(between[&bench.workspace.join("src/0/f0")], before[&bench.workspace.join("src/0/f0")]);
        assert!(!bench.workspace.join("src/1/f1").exists());
        let all = bench.run(["changes", "undo"]);
        assert!(all.status.success(), "{}: {}", bench.who(), stderr(&all));
        assert_eq!(listing(&bench.workspace), before, "{}", bench.who());
    });
}

#[test]
fn a_live_run_is_undone_exactly_and_its_receipt_names_the_checkpoint() {
    on_each_bench(|bench| {
        populate(&bench);
        let before = listing(&bench.workspace);
        let output = bench.run(["run", "--live", "--shell", RUIN]);
        let told = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{}: {told}", bench.who());
        assert!(told.contains("nexus changes undo takes it back"), "{told}");
        assert_ne!(listing(&bench.workspace), before);

        let shown = stdout(&bench.run(["changes", "show"]));
        for line in ["deleted    gone/deep/er", "added      moved/f1", "modified   src/0/f0", "type       src/2/f2/"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let diff = stdout(&bench.run(["changes", "diff", "src/0/f0"]));
        assert!(diff.contains("-line 0\n+x\n") || diff.contains("-line 1\n-line 0\n+x\n"), "{diff}");
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(listed.contains("[live: nexus changes undo]"), "{listed}");

        let shown: serde_json::Value =
            serde_json::from_str(&stdout(&bench.run(["changes", "show", "--json"]))).unwrap();
        let (run, checkpoint) = (shown["run_id"].as_str().unwrap(), shown["checkpoint"]["tree"].as_str().unwrap());
        let receipt = stdout(&bench.run(["receipt", "show", run]));
        assert!(receipt.contains(&format!("{checkpoint}, the workspace before this live run")), "{receipt}");

        let undone = bench.run(["changes", "undo"]);
        assert!(undone.status.success(), "{}: {}{}", bench.who(), stdout(&undone), stderr(&undone));
        assert_eq!(listing(&bench.workspace), before, "{}", bench.who());
        let text = stdout(&undone);
        let kept = text.split("--to ").nth(1).unwrap().split_whitespace().next().unwrap();
        let back = bench.run(["changes", "undo", "--to", kept]);
        // No state keeps a FIFO, and that is said.
        let told = stdout(&back);
        assert!(
            back.status.code() == Some(1) && told.contains("src/0/fifo is neither a file"),
            "{told}{}",
            stderr(&back)
        );
        assert_eq!(fs::read_to_string(bench.workspace.join("new/deep/n")).unwrap(), "n\n");

        let forgotten = bench.run(["changes", "forget", "--run", run]);
        assert!(forgotten.status.success(), "{}", stderr(&forgotten));
        let none = bench.run(["changes", "undo"]);
        assert_eq!(none.status.code(), Some(125), "{}", stderr(&none));
    });
}

#[test]
fn an_undo_that_is_killed_at_any_moment_is_finished_by_the_next_one() {
    on_each_bench(|bench| {
        populate(&bench);
        for at in 0..300 {
            bench.write(&format!("many/{at}"), format!("{at}\n"));
        }
        let before = listing(&bench.workspace);
        let mut cut_off = 0;
        for round in 0..4_u64 {
            let ruin = format!("{RUIN}; for f in many/*; do echo {round} > $f; done; rm -rf many/1*");
            let output = bench.run(["run", "--live", "--quiet", "--shell", &ruin]);
            assert!(output.status.success(), "{}", stderr(&output));
            let start = Instant::now();
            let mut killed = 0;
            loop {
                let mut child =
                    bench.nexus(["changes", "undo"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                std::thread::sleep(Duration::from_millis(20 + 37 * round + 60 * killed));
                child.kill().unwrap();
                let status = child.wait().unwrap();
                killed += 1;
                // A run in half of a workspace does not start.
                // A file that was being written has another name.
                let is_whole = |name: std::ffi::OsString| !name.to_string_lossy().starts_with('.');
                let is_cut_off = bench
                    .state
                    .join("checkpoints/undo")
                    .read_dir()
                    .is_ok_and(|mut undos| undos.any(|undo| is_whole(undo.unwrap().file_name())));
                cut_off += u32::from(is_cut_off);
                if is_cut_off {
                    let refused = bench.run(["run", "--", "true"]);
                    let told = stderr(&refused);
                    assert!(refused.status.code() == Some(125) && told.contains("goes on with it"), "{told}");
                }
                if status.success() || killed > 8 {
                    break;
                }
            }
            let done = bench.run(["changes", "undo"]);
            assert!(done.status.success(), "{}: {}{}", bench.who(), stdout(&done), stderr(&done));
            let now = listing(&bench.workspace);
            let all = now.keys().chain(before.keys());
            let other: Vec<_> = all.filter(|path| now.get(*path) != before.get(*path)).collect();
            let values: Vec<_> = other.iter().map(|path| (now.get(*path), before.get(*path))).collect();
            let report = format!("{} round {round}, killed {killed} times: {}", bench.who(), stdout(&done));
            assert_eq!(now, before, "{other:?} {values:?} {report}");
            assert!(start.elapsed() < Duration::from_mins(1));
        }
        assert!(cut_off > 0, "{}: no undo was killed half-way", bench.who());
    });
}

#[test]
fn a_live_run_sees_edits_of_the_host_at_once_and_moves_directories() {
    for bench in benches() {
        bench.write("dir/f", "old\n");
        bench.write("watched", "old\n");
        let script = "mv dir other && ln -s other/f l && echo ready > ready; \
             for i in $(seq 100); do grep -q new watched && break; sleep 0.1; done; cat watched";
        let child = bench
            .nexus(["run", "--live", "--shell", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the start of the command", Duration::from_mins(1), || bench.workspace.join("ready").exists());
        // An undo of a run that goes on is refused.
        let early = bench.run(["changes", "undo"]);
        assert!(early.status.code() == Some(125) && stderr(&early).contains("has not ended"), "{}", stderr(&early));
        bench.write("watched.new", "new\n");
        fs::rename(bench.workspace.join("watched.new"), bench.workspace.join("watched")).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), "new\n", "{}", stderr(&output));
        assert_eq!(fs::read_link(bench.workspace.join("l")).unwrap(), Path::new("other/f"));
    }
}

#[test]
fn what_a_person_edits_after_a_live_run_stays() {
    for bench in benches() {
        bench.write("f", "old\n");
        bench.write("g", "old\n");
        assert!(bench.run(["run", "--live", "--shell", "echo x > f; echo x > g; echo x > h"]).status.success());
        bench.write("f", "mine\n");
        bench.write("i", "mine\n");
        let shown = stdout(&bench.run(["changes", "show"]));
        assert!(shown.contains("f  [changed since the run]"), "{shown}");
        let undone = bench.run(["changes", "undo"]);
        let text = stdout(&undone);
        assert_eq!(undone.status.code(), Some(1), "{text}");
        assert!(text.contains("f is left as it is: it was changed since the run ended"), "{text}");
        let texts = ["f", "g", "h", "i"].map(|name| fs::read_to_string(bench.workspace.join(name)).unwrap_or_default());
        assert_eq!(texts, ["mine\n", "old\n", "", "mine\n"]);
        let undone = bench.run(["changes", "undo", "--overwrite", "f"]);
        assert!(undone.status.success(), "{}", stderr(&undone));
        let texts = ["f", "i"].map(|name| fs::read_to_string(bench.workspace.join(name)).unwrap_or_default());
        assert_eq!(texts, ["old\n", "mine\n"]);
    }
}

#[test]
fn a_live_run_whose_nexus_is_killed_is_undone() {
    for bench in benches() {
        bench.write("f", "old\n");
        let mut child = bench
            .nexus(["run", "--live", "--shell", "echo x > f; echo x > ready; sleep 600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the start of the command", Duration::from_mins(1), || bench.workspace.join("ready").exists());
        child.kill().unwrap();
        child.wait().unwrap();
        // What came since looks like a change of the run.
        let refused = bench.run(["changes", "undo"]);
        let told = stderr(&refused);
        assert!(refused.status.code() == Some(125) && told.contains("--overwrite takes all of it back"), "{told}");
        assert!(bench.workspace.join("ready").exists());
        let undone = bench.run(["changes", "undo", "--overwrite"]);
        assert!(undone.status.success(), "{}", stderr(&undone));
        assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "old\n");
        assert!(!bench.workspace.join("ready").exists());
    }
}

#[test]
fn a_large_sparse_file_keeps_a_live_run_from_ending_no_longer_than_its_data() {
    for bench in benches() {
        bench.write("f", "old\n");
        let before = listing(&bench.workspace);
        // To read it takes minutes.
        let output = bench.run(["run", "--live", "--shell", "truncate -s 60G large; echo x > f"]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("not kept"), "{}", stderr(&output));
        let start = Instant::now();
        let undone = bench.run(["changes", "undo"]);
        assert!(undone.status.success(), "{}{}", stdout(&undone), stderr(&undone));
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        let without = |all: BTreeMap<PathBuf, Entry>| all.into_iter().filter(|(path, _)| *path != bench.workspace);
        assert!(without(listing(&bench.workspace)).eq(without(before)), "{}", bench.who());
        // More than any state keeps: the run ends all the same, and names it.
        let output = bench.run(["run", "--live", "--shell", "for i in 1 2 3; do truncate -s 100G f$i; done"]);
        let told = stderr(&output);
        assert!(output.status.success() && told.contains("was not kept: at \"f3\" there are more than"), "{told}");
        for name in ["f1", "f2", "f3"] {
            fs::remove_file(bench.workspace.join(name)).unwrap();
        }
    }
}

#[test]
fn what_a_person_edits_after_a_run_whose_end_was_not_kept_stays() {
    for bench in benches() {
        bench.write("f", "old\n");
        bench.write("g", "old\n");
        // The last change is some time before the end.
        let output =
            bench.run(["run", "--live", "--shell", "truncate -s 300G large; echo x > f; echo x > g; sleep 0.2"]);
        assert!(output.status.success() && stderr(&output).contains("was not kept"), "{}", stderr(&output));
        fs::remove_file(bench.workspace.join("large")).unwrap();
        bench.write("g", "mine\n");
        bench.write("later", "mine\n");
        let shown = stdout(&bench.run(["changes", "show"]));
        assert!(shown.contains("g  [changed since the run]") && !shown.contains("f  [changed"), "{shown}");
        let undone = bench.run(["changes", "undo"]);
        let text = stdout(&undone);
        assert_eq!(undone.status.code(), Some(1), "{text}{}", stderr(&undone));
        for name in ["g", "later"] {
            assert!(text.contains(&format!("{name} is left as it is: it was changed since the run ended")), "{text}");
        }
        let texts = ["f", "g", "later"].map(|name| fs::read_to_string(bench.workspace.join(name)).unwrap_or_default());
        assert_eq!(texts, ["old\n", "mine\n", "mine\n"]);
    }
}

#[test]
fn a_signal_ends_the_state_that_is_kept_after_a_live_run() {
    use std::io::BufRead as _;
    for bench in benches() {
        // Some data between holes, which all have to be read.
        let script = "truncate -s 800M f; for i in $(seq 0 199); do printf x | dd of=f bs=1 seek=$((i * 4194304 + 9)) conv=notrunc 2>/dev/null; done";
        let mut run = bench.nexus(["run", "--live", "--shell", script]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let is_kept = lines.by_ref().any(|line| line.contains("after the run is being kept"));
        assert!(is_kept, "the state was kept too quickly");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let told: String = lines.collect();
        assert!(told.contains("was not kept: it was stopped by a signal"), "{told}");
        assert!(child.wait().unwrap().success(), "the command itself had ended well");
    }
}

#[test]
fn what_a_program_writes_to_an_open_file_outlives_an_undo() {
    use std::io::Write as _;
    for bench in benches() {
        bench.write("f", "old\n");
        bench.write("other", "old\n");
        let script = "echo x > f; echo x > other; mkdir made; echo x > made/log";
        assert!(bench.run(["run", "--live", "--shell", script]).status.success());
        let open = |name: &str| fs::OpenOptions::new().append(true).open(bench.workspace.join(name)).unwrap();
        let mut files = ["f", "made/log"].map(open);
        let undone = bench.run(["changes", "undo"]);
        let text = stdout(&undone);
        assert_eq!(undone.status.code(), Some(1), "{text}{}", stderr(&undone));
        for (file, path) in files.iter_mut().zip(["f", "made"]) {
            file.write_all(b"late\n").unwrap();
            let told = text.lines().find(|line| line.starts_with(&format!("{path} was written"))).unwrap_or_default();
            let beside = told.rsplit(' ').next().unwrap();
            let beside = bench.workspace.join(if path == "f" { beside.to_owned() } else { format!("{beside}/log") });
            assert_eq!(fs::read_to_string(beside).unwrap_or_default(), "x\nlate\n", "{text}");
        }
        assert_eq!(fs::read_to_string(bench.workspace.join("other")).unwrap(), "old\n");
        assert!(!bench.workspace.join("made").exists(), "{text}");
    }
}

#[test]
fn live_is_refused_beside_what_it_cannot_hold() {
    for bench in benches() {
        bench.write("f", "old\n");
        for flags in [
            &["--live", "--changes", "review"][..],
            &["--live", "--direct"],
            &["--live", "--disk", "1M"],
            &["--live-git"],
            &["--live-size", "1M"],
            &["--live", "--facility", "x"],
        ] {
            let output = bench.run(["run"].iter().chain(flags).chain(&["--", "true"]));
            assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", stderr(&output));
        }
        bench.write("large", vec![b'x'; 4096]);
        let output = bench.run(["run", "--live", "--live-size", "1K", "--", "touch", "made"]);
        let told = stderr(&output);
        assert!(output.status.code() == Some(125) && told.contains("--live-size"), "{told}");
        assert!(!bench.workspace.join("made").exists());
        assert!(bench.run(["run", "--live", "--live-size", "1M", "--", "touch", "made"]).status.success());
    }
}
