//! Layers in memory (`--disk`) keep what a layer on the disk keeps.

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
