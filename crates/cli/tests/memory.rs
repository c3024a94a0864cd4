//! Layers in memory (`--disk`) keep what a layer on the disk keeps, and many changes take little memory of `nexus`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use support::{Bench, is_root, stderr, stdout};

#[test]
fn a_file_with_several_names_keeps_its_new_content() {
    if !is_root() {
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

/// The peaks of a commit, of a run that is reviewed and of its accept, in bytes, with so many directories of files that
/// are new or replaced.
fn peaks(replaced: bool, directories: usize) -> [u64; 3] {
    let bench = Bench::new(None);
    let measured = |words: &[&str]| {
        let output = bench.command("python3").args(["-c", MEASURE]).arg(bench.program()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        stdout(&output).trim().parse::<u64>().unwrap() * 1024
    };
    let prepare = |name: &str| {
        for directory in 0..directories {
            for file in 0..if replaced { WIDTH } else { 0 } {
                bench.write(&format!("{name}{directory}/some-file-{file}"), "old");
            }
        }
    };
    let script = |name: &str| {
        format!(
            "for d in $(seq 0 {}); do mkdir -p {name}$d; for f in $(seq 0 {}); do echo new > {name}$d/some-file-$f; done; done",
            directories - 1,
            WIDTH - 1
        )
    };
    prepare("a");
    let committed = measured(&["run", "--changes=commit", "--shell", &script("a")]);
    prepare("b");
    let reviewed = measured(&["run", "--changes=review", "--shell", &script("b")]);
    let accepted = measured(&["changes", "accept"]);
    let last = bench.workspace.join(format!("b{}/some-file-{}", directories - 1, WIDTH - 1));
    assert_eq!(fs::read_to_string(last).unwrap(), "new\n");
    [committed, reviewed, accepted]
}

/// With 200,000 files these bounds are some 64 MiB for new and 84 MiB for replaced ones.
#[test]
fn a_change_takes_little_memory_of_a_commit_or_review() {
    if !is_root() {
        return;
    }
    const FEW: usize = 4;
    const MANY: usize = 44;
    let entries = ((MANY - FEW) * WIDTH) as u64;
    for (replaced, most) in [(false, 300), (true, 400)] {
        let (few, many) = (peaks(replaced, FEW), peaks(replaced, MANY));
        for (what, (few, many)) in ["commit", "review", "accept"].iter().zip(few.into_iter().zip(many)) {
            let each = many.saturating_sub(few) / entries;
            assert!(each <= most, "{what}, replaced: {replaced}: {each} bytes for each entry, {few} and {many} in all");
        }
    }
}
