//! Layers in memory (`--disk`) keep what a layer on the disk keeps, and many changes take little memory of `nexus`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use support::{Bench, needs_root, stderr, stdout};

#[test]
fn a_file_with_several_names_keeps_its_new_content() {
    if !needs_root() {
        return;
    }
    for (disk, review) in [(None, false), (Some("--disk=20M"), false), (Some("--disk=20M"), true)] {
        let bench = Bench::new(None);
        let at = |name: &str| bench.workspace.join(name);
        for (first, second) in [("a", "b"), ("c", "d"), ("same", "other")] {
            bench.write(first, "old\n");
            fs::hard_link(at(first), at(second)).unwrap();
        }
        // Of a's file the layer holds no name at the end; of c's it holds two.
        let script = "echo new >> a; rm a; cat b; echo more >> c; ln c e; mkdir sub; ln d sub/f; rm other";
        let changes = if review { "--changes=review" } else { "--changes=commit" };
        let words = ["run", changes].into_iter().chain(disk).chain(["--shell", script]);
        let output = bench.run(words);
        assert_eq!(output.status.code(), Some(0), "{disk:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "old\nnew\n");
        if review {
            let diff = stdout(&bench.run(["changes", "diff"]));
            assert!(diff.contains("+new") && diff.contains("+more"), "{diff}");
            let output = bench.run(["changes", "accept"]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
        let text = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!(text("b"), "old\nnew\n", "{disk:?} {review}");
        assert!(!at("a").exists() && !at("other").exists());
        let inode = |name: &str| fs::metadata(at(name)).unwrap().ino();
        for name in ["c", "d", "e", "sub/f"] {
            assert_eq!(text(name), "old\nmore\n", "{disk:?} {review}: {name}");
            assert_eq!(inode(name), inode("c"), "{disk:?} {review}: {name}");
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// Runs its arguments and prints the most memory that the program or a child of it had, in KiB.
const MEASURE: &str = "import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)";

/// Files in a directory.
const WIDTH: usize = 500;

/// Memory in bytes of a run that commits, and of one that is reviewed with its accept, with so many directories of files
/// that are new in the first and replaced in the second.
fn peaks(directories: usize) -> [u64; 3] {
    let bench = Bench::new(None);
    let measured = |words: &[&str]| {
        let output = bench.command("python3").args(["-c", MEASURE]).arg(bench.program()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        stdout(&output).trim().parse::<u64>().unwrap() * 1024
    };
    let (last_directory, last_file) = (directories - 1, WIDTH - 1);
    let script = |text: &str| {
        format!(
            "for d in $(seq 0 {last_directory}); do mkdir -p d$d; for f in $(seq 0 {last_file}); do \
             echo {text} > d$d/some-file-$f; done; done"
        )
    };
    let committed = measured(&["run", "--changes=commit", "--shell", &script("first")]);
    let reviewed = measured(&["run", "--changes=review", "--shell", &script("second")]);
    let accepted = measured(&["changes", "accept"]);
    let last = bench.workspace.join(format!("d{last_directory}/some-file-{last_file}"));
    assert_eq!(fs::read_to_string(last).unwrap(), "second\n");
    [committed, reviewed, accepted]
}

#[test]
fn a_change_takes_little_memory_of_a_commit_or_review() {
    const FEW: usize = 2;
    const MANY: usize = 22;
    if !needs_root() {
        return;
    }
    let entries = ((MANY - FEW) * WIDTH) as u64;
    let peaks = peaks(FEW).into_iter().zip(peaks(MANY));
    for ((what, most), (few, many)) in [("new", 400), ("review", 600), ("accept", 600)].into_iter().zip(peaks) {
        let each = many.saturating_sub(few) / entries;
        assert!(each <= most, "{what}: {each} bytes for each entry, {few} and {many} in all");
    }
}

/// The work for a chain of directories grows with the square of its depth, and each program of the host reaches only so far
/// by a name.
#[test]
fn a_chain_of_directories_deeper_than_any_path_waits_unread() {
    const CHAIN: &str = "import os\nfor _ in range(1200): os.mkdir('a' * 250); os.chdir('a' * 250)";
    for bench in support::benches() {
        for (changes, code) in [("--changes=commit", 125), ("--changes=review", 125), ("--changes=discard", 0)] {
            let mut command = bench.command("/usr/bin/python3");
            command.args(["-c", MEASURE]).arg(bench.program()).args(["run", changes, "--", "python3", "-c", CHAIN]);
            let output = command.output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{} {changes}: {said}", bench.who());
            assert_eq!(said.contains("more than 4095 bytes"), code == 125, "{said}");
            let most: u64 = stdout(&output).trim().parse().unwrap();
            // 300 KB for each of 1,200 paths are 180 MB for the names alone.
            assert!(most < 100 * 1024, "{} {changes}: {most} KiB", bench.who());
            if code == 125 {
                let output = bench.run(["changes", "reject"]);
                assert_eq!(output.status.code(), Some(0), "{} {changes}: {}", bench.who(), stderr(&output));
            }
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

/// Names that only a program inside reaches, from directory to directory, cost no memory for each entry and never come into
/// the workspace. Paths that the host can use are committed.
#[test]
fn an_entry_with_an_unusable_path_waits_unread() {
    const WIDE: &str = "import os, sys\nfor _ in range(int(sys.argv[1])): os.mkdir('a' * 250); os.chdir('a' * 250)\n\
        for i in range(4000): os.close(os.open('b' * 244 + f'{i:06d}', os.O_CREAT | os.O_WRONLY))";
    for bench in support::benches() {
        for (levels, changes, code) in
            [("60", "--changes=discard", 0), ("60", "--changes=commit", 125), ("14", "--changes=commit", 0)]
        {
            let mut command = bench.command("/usr/bin/python3");
            command.args(["-c", MEASURE]).arg(bench.program()).args(["run", changes, "--"]);
            let output = command.args(["python3", "-c", WIDE, levels]).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{} {levels} {changes}: {said}", bench.who());
            assert_eq!(said.contains("more than 4095 bytes"), code == 125, "{said}");
            assert!(said.len() < 4000, "{said}");
            let most: u64 = stdout(&output).trim().parse().unwrap();
            // 15 KB for each of 4,000 paths are 60 MB for the names alone.
            assert!(most < 72 * 1024, "{} {levels} {changes}: {most} KiB", bench.who());
            if code == 125 {
                let output = bench.run(["changes", "reject"]);
                assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            }
        }
        assert!(bench.workspace.join("a".repeat(250)).is_dir(), "{}", bench.who());
    }
}
