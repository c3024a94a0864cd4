//! The diff of a layer: real git applies it and takes it back, and nothing hostile in a layer or a workspace leads it
//! astray.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, snapshot};
use nexus_layer::review::diff::{Binary, Content, Diff, DiffKind, DiffOptions, FileDiff, RenderOptions};
use nexus_layer::{Layer, LayerMode, Rules};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{CWD, Mode, RenameFlags};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

fn file(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn diff(scene: &Scene, layer: &Layer) -> Diff {
    layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).unwrap()
}

fn all_of(diff: &Diff) -> Vec<u8> {
    let rendered = diff.render(&RenderOptions { max_bytes: 64 << 20, ..RenderOptions::default() });
    assert!(!rendered.truncated);
    rendered.bytes
}

fn text_of(diff: &Diff) -> String {
    String::from_utf8_lossy(&all_of(diff)).into_owned()
}

/// Runs `git apply` in a plain directory, without any configuration.
fn git_apply(folder: &Path, patch: &[u8], flags: &[&str]) -> Output {
    let name = folder.with_extension("patch");
    std::fs::write(&name, patch).unwrap();
    let mut command = Command::new("git");
    command.current_dir(folder).args(["apply", "--whitespace=nowarn"]).args(flags).arg(&name);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent").env_remove("GIT_DIR");
    command.output().unwrap()
}

fn copy(scene: &Scene, from: &str, to: &str) -> PathBuf {
    let target = scene.path(to);
    let done = Command::new("cp").arg("-a").arg(scene.path(from)).arg(&target).status().unwrap();
    assert!(done.success());
    target
}

/// A tree as git records it: files and links, content, and whether the owner may execute.
fn as_git_sees(root: &Path) -> BTreeMap<Vec<u8>, (char, bool, Vec<u8>)> {
    let all = snapshot(root, false).into_iter().filter(|(_, entry)| matches!(entry.0, 'f' | 'l'));
    all.map(|(path, entry)| (path, (entry.0, entry.1 & 0o100 != 0, entry.2))).collect()
}

/// Applies the diff to a copy of the workspace and takes it back from a copy of the run's result. What the diff only
/// remarks on is left out of the comparison.
fn check_with_git(scene: &Scene, diff: &Diff) {
    let patch = all_of(diff);
    if !diff.files.iter().any(|file| file.applies) {
        return;
    }
    let mut left_out = Vec::new();
    let is_remark = |file: &&FileDiff| !file.applies || matches!(file.content, Content::Binary { .. });
    for file in diff.files.iter().filter(is_remark) {
        left_out.push(file.path.0.clone());
        left_out.extend(file.rename_from.as_ref().map(|from| from.0.clone()));
    }
    for (from, to, folder, flags) in [("ws", "plain", "forward", &[][..]), ("plain", "ws", "back", &["-R"])] {
        let folder = copy(scene, from, folder);
        let output = git_apply(&folder, &patch, flags);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{flags:?}: {errors}\n{}", String::from_utf8_lossy(&patch));
        let (mut found, mut wanted) = (as_git_sees(&folder), as_git_sees(&scene.path(to)));
        for path in &left_out {
            found.remove(path);
            wanted.remove(path);
        }
        // Git before 2.50 forgets the mode when it takes a deletion back, also of its own diffs.
        let forgotten = |file: &&FileDiff| flags == ["-R"] && file.kind == DiffKind::Deleted;
        for file in diff.files.iter().filter(forgotten) {
            for side in [&mut found, &mut wanted] {
                side.entry(file.path.0.clone()).and_modify(|entry| (entry.0, entry.1) = ('f', false));
            }
        }
        assert_eq!(found, wanted, "{flags:?}\n{}", String::from_utf8_lossy(&patch));
    }
}

fn run(base: &[Op], ops: &[Op]) -> (Scene, Diff) {
    run_as(LayerMode::Root, base, ops)
}

fn run_as(mode: LayerMode, base: &[Op], ops: &[Op]) -> (Scene, Diff) {
    let scene = Scene::one_of_many(mode, base);
    let layer = scene.layer(ops);
    let diff = diff(&scene, &layer);
    check_with_git(&scene, &diff);
    (scene, diff)
}

fn find<'a>(diff: &'a Diff, path: &str) -> &'a FileDiff {
    let mut found = diff.files.iter().filter(|file| file.path.0 == path.as_bytes());
    let first = found.next().unwrap_or_else(|| panic!("no {path} in {:?}", diff.files));
    assert!(found.next().is_none(), "{path} twice");
    first
}

fn cases() -> u32 {
    std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

fn config() -> Config {
    Config { cases: cases(), failure_persistence: None, max_shrink_iters: 300, ..Config::default() }
}

#[test]
fn each_kind_of_change_is_written_as_git_writes_it() {
    let base = [
        dir("d"),
        file("d/changed", "1\n2\n3\n"),
        file("d/mode", "x\n"),
        file("gone", "old"),
        file("type", "text\n"),
        file("empty_gone", ""),
        Op::Symlink(b("old"), b("link")),
    ];
    let ops = [
        file("d/changed", "1\ntwo\n3\n"),
        Op::Chmod(b("d/mode"), 0o755),
        Op::Remove(b("gone")),
        Op::Remove(b("type")),
        Op::Symlink(b("d/mode"), b("type")),
        Op::Remove(b("empty_gone")),
        Op::Remove(b("link")),
        Op::Symlink(b("new"), b("link")),
        file("empty", ""),
        file("script", "#!/bin/sh\n"),
        Op::Chmod(b("script"), 0o700),
    ];
    let (_scene, diff) = run(&base, &ops);
    let wanted = "\
diff --git a/d/changed b/d/changed
--- a/d/changed
+++ b/d/changed
@@ -1,3 +1,3 @@
 1
-2
+two
 3
diff --git a/d/mode b/d/mode
old mode 100644
new mode 100755
diff --git a/empty b/empty
new file mode 100644
diff --git a/empty_gone b/empty_gone
deleted file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-old
\\ No newline at end of file
diff --git a/link b/link
--- a/link
+++ b/link
@@ -1 +1 @@
-old
\\ No newline at end of file
+new
\\ No newline at end of file
diff --git a/script b/script
new file mode 100755
--- /dev/null
+++ b/script
@@ -0,0 +1 @@
+#!/bin/sh
diff --git a/type b/type
deleted file mode 100644
--- a/type
+++ /dev/null
@@ -1 +0,0 @@
-text
diff --git a/type b/type
new file mode 120000
--- /dev/null
+++ b/type
@@ -0,0 +1 @@
+d/mode
\\ No newline at end of file
";
    assert_eq!(text_of(&diff), wanted);
}

#[test]
fn a_renamed_directory_is_shown_as_renamed_files() {
    let base = [
        dir("a"),
        dir("a/sub"),
        file("a/one", "1\n"),
        file("a/two", "1\n2\n3\n4\n5\n6\n"),
        file("a/sub/three", "3\n"),
        Op::Sparse(b("a/binary")),
        file("single", "a line that stays\n"),
    ];
    let ops = [
        rename("a", "b"),
        Op::Append(b("b/two"), "7\n".into()),
        Op::Remove(b("b/sub/three")),
        file("b/four", "4\n"),
        rename("single", "alone"),
    ];
    let (_scene, diff) = run(&base, &ops);
    for (path, from, similarity) in
        [("b/one", "a/one", 100), ("b/two", "a/two", 85), ("b/binary", "a/binary", 100), ("alone", "single", 100)]
    {
        let file = find(&diff, path);
        assert_eq!((file.kind, file.applies), (DiffKind::Renamed, true), "{file:?}");
        assert_eq!(file.rename_from.as_ref().unwrap().0, from.as_bytes());
        assert_eq!(file.similarity, Some(similarity), "{path}");
    }
    assert_eq!(find(&diff, "a/sub/three").kind, DiffKind::Deleted);
    assert_eq!(find(&diff, "b/four").kind, DiffKind::Added);
    assert!(text_of(&diff).contains("similarity index 100%\nrename from a/one\nrename to b/one\n"));
}

#[test]
fn directories_that_changed_places_apply_and_go_back() {
    let base = [dir("a"), dir("b"), file("a/x", "of a\n"), file("b/x", "of b\n"), file("a/only", "a\n")];
    let ops = [rename("a", "t"), rename("b", "a"), rename("t", "b")];
    let (_scene, diff) = run(&base, &ops);
    assert_eq!(find(&diff, "a/x").kind, DiffKind::Modified);
    assert_eq!(find(&diff, "b/only").rename_from, Some("a/only".into()));
}

#[test]
fn a_directory_renamed_over_another_one_is_shown_as_changed_files() {
    let base = [dir("a"), dir("b"), file("a/x", "of a\n"), file("b/x", "of b\n"), file("a/y", "y\n")];
    let (_scene, diff) = run(&base, &[Op::RemoveTree(b("b")), rename("a", "b")]);
    let kinds: Vec<_> = diff.files.iter().map(|file| (file.path.as_path().to_str().unwrap(), file.kind)).collect();
    assert_eq!(kinds, [("a/x", DiffKind::Deleted), ("b/x", DiffKind::Modified), ("b/y", DiffKind::Renamed)]);
}

#[test]
fn of_two_new_names_of_one_file_one_is_the_renamed_one() {
    let (_scene, diff) = run(&[file("f", "1\n")], &[rename("f", "g"), Op::Link(b("g"), b("h"))]);
    assert_eq!((find(&diff, "g").kind, find(&diff, "h").kind), (DiffKind::Renamed, DiffKind::Added));
}

#[test]
fn a_link_in_place_of_a_directory_does_not_make_git_look_through_it() {
    // Through the link git finds a file where it is to make one, or runs in a circle.
    for target in ["real", "d"] {
        let base = [dir("d"), file("d/x", "1\n"), dir("real"), file("real/x", "1\n"), file("f", "1\n")];
        let ops = [Op::RemoveTree(b("d")), Op::Symlink(b(target), b("d")), file("f", "2\n")];
        let (_scene, diff) = run(&base, &ops);
        assert!(find(&diff, "f").applies && !find(&diff, "d").applies && !find(&diff, "d/x").applies);
        let base = [Op::Symlink(b(target), b("d")), dir("real"), file("real/x", "1\n"), file("f", "1\n")];
        run(&base, &[Op::Remove(b("d")), dir("d"), file("d/x", "2\n"), file("f", "2\n")]);
    }
}

#[test]
fn a_name_that_moves_along_shows_what_was_written_through_another_name() {
    let base = [dir("m"), file("m/one", "1\n2\n3\n"), Op::Link(b("m/one"), b("two"))];
    let (_scene, diff) = run(&base, &[Op::Append(b("two"), "4\n".into()), rename("m", "n")]);
    for path in ["n/one", "two"] {
        let Content::Text { hunks } = &find(&diff, path).content else { panic!("{diff:?}") };
        assert_eq!((hunks.len(), hunks[0].new_lines), (1, 4), "{path}");
    }
}

#[test]
fn odd_names_stay_on_their_line_and_reach_their_file() {
    let names: [&[u8]; 10] = [
        b"with space",
        b" leading",
        b"trailing ",
        b"new\nline",
        b"quo\"te",
        b"back\\slash",
        b"tab\there",
        b"\xff\xfe",
        "\u{202e}txt".as_bytes(),
        b"x\ndiff --git a/evil b/evil\nnew file mode 100755\n",
    ];
    // No slash in a name: the last one is a path through directories with odd names.
    let mut base = vec![Op::Mkdir(b("x\ndiff --git a")), Op::Mkdir(b("x\ndiff --git a/evil b"))];
    base.push(Op::Mkdir(b("x\ndiff --git a/evil b/evil\nnew file mode 100755\n")));
    let mut ops = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let name = if number == 9 { [name, &b"/f"[..]].concat() } else { name.to_vec() };
        match number % 3 {
            0 => base.push(Op::Write(name.clone(), "old\n".into())),
            1 => base.push(Op::Write(name.clone(), "mode\n".into())),
            _ => {}
        }
        ops.push(match number % 3 {
            1 => Op::Chmod(name, 0o755),
            _ => Op::Write(name, "new\n".into()),
        });
    }
    let (_scene, diff) = run(&base, &ops);
    assert_eq!(diff.files.len(), 10);
    assert!(diff.files.iter().all(|file| file.applies), "{:?}", diff.files);
    assert!(text_of(&diff).contains("--- a/with space\t\n+++ b/with space\t\n"));
    assert!(!text_of(&diff).lines().any(|line| line == "new file mode 100755" || line.ends_with("b/evil")));
}

#[test]
fn a_file_that_is_no_text_is_shown_by_size_and_hash() {
    let base = [file("bin", "old\0"), file("gone", "\0"), file("both", "\0a"), file("text", "1\n")];
    let ops = [
        file("bin", "new\0!"),
        Op::Remove(b("gone")),
        file("fresh", "\0\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n"),
        file("both", "\0b"),
        Op::Chmod(b("both"), 0o755),
        file("text", "2\n"),
    ];
    let (_scene, diff) = run(&base, &ops);
    let hash = |text: &[u8]| blake3::hash(text).to_hex().to_string();
    let (old, new) = (hash(b"old\0"), hash(b"new\0!"));
    let text = text_of(&diff);
    assert!(text.contains(&format!("Binary file bin: 4 bytes blake3 {old} -> 5 bytes blake3 {new}\n")), "{text}");
    assert!(text.contains(&format!("Binary file gone: gone, 1 bytes blake3 {}\n", hash(b"\0"))), "{text}");
    assert!(text.contains("Binary file fresh: new, 30 bytes blake3 "), "{text}");
    assert!(find(&diff, "both").applies && !find(&diff, "bin").applies);
    let omitted = diff.render(&RenderOptions { binary: Binary::Omit, ..RenderOptions::default() });
    assert!(!String::from_utf8_lossy(&omitted.bytes).contains("Binary"));
}

#[test]
fn files_over_the_bounds_are_shown_by_size() {
    let scene = Scene::new(LayerMode::Root, &[file("large", "a\n"), file("small", "a\n")]);
    let layer = scene.layer(&[file("large", &"line\n".repeat(100)), file("small", "b\n")]);
    let ask = |options: DiffOptions| layer.diff(&scene.workspace(), &Rules::default(), &options).unwrap();
    let found = ask(DiffOptions { max_text: 100, ..DiffOptions::default() });
    let Content::Binary { old, new } = &find(&found, "large").content else { panic!("{found:?}") };
    assert_eq!((old.as_ref().unwrap().size, new.as_ref().unwrap().size), (2, 500));
    assert!(new.as_ref().unwrap().hash.is_some());
    assert!(matches!(find(&found, "small").content, Content::Text { .. }));
    let found = ask(DiffOptions { max_text: 100, max_hash: 400, ..DiffOptions::default() });
    let Content::Binary { new, .. } = &find(&found, "large").content else { panic!("{found:?}") };
    assert_eq!(new.as_ref().unwrap().hash, None);
    let found = ask(DiffOptions { max_text_total: 4, ..DiffOptions::default() });
    assert!(found.files.iter().all(|file| matches!(file.content, Content::Binary { .. })), "{found:?}");
    let found = ask(DiffOptions { max_lines: 99, ..DiffOptions::default() });
    assert!(matches!(find(&found, "large").content, Content::Binary { .. }));
    assert!(matches!(find(&found, "small").content, Content::Text { .. }));
    let found = ask(DiffOptions { max_lines_total: 2, ..DiffOptions::default() });
    assert!(found.files.iter().all(|file| matches!(file.content, Content::Binary { .. })), "{found:?}");
    let found = ask(DiffOptions { max_files: 1, ..DiffOptions::default() });
    assert!(found.incomplete);
    let rendered = found.render(&RenderOptions::default());
    assert!(rendered.truncated);
    assert!(!git_apply(&copy(&scene, "ws", "copy"), &rendered.bytes, &[]).status.success());
}

#[test]
fn hostile_text_costs_bounded_time_and_memory() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
    // Empty lines are the ones that cost the most; a hole is larger than any disk.
    for number in 0..20 {
        std::fs::write(layer.upper().join(number.to_string()), vec![b'\n'; 8 << 20]).unwrap();
        std::fs::write(layer.upper().join(format!("less{number}")), vec![b'\n'; 199_999]).unwrap();
    }
    std::fs::File::create(layer.upper().join("hole")).unwrap().set_len(1 << 40).unwrap();
    let started = std::time::Instant::now();
    let found = diff(&scene, &layer);
    assert!(started.elapsed() < std::time::Duration::from_secs(60), "{:?}", started.elapsed());
    let lines = found.files.iter().map(|file| match &file.content {
        Content::Text { hunks } => hunks.iter().map(|hunk| hunk.lines.len()).sum(),
        _ => 0,
    });
    assert_eq!(lines.sum::<usize>(), 5 * 199_999);
    assert_eq!(found.files.len(), 41);
}

#[test]
fn a_cut_diff_says_so_and_does_not_apply() {
    // Files of one line: a cut may fall exactly between two patches.
    let files: Vec<Op> = (0..200).map(|number| file(&format!("f{number:03}"), "line\n")).collect();
    let (scene, diff) = run(&[], &files);
    let whole = diff.render(&RenderOptions::default());
    assert!(!whole.truncated);
    let length = whole.bytes.len();
    let exact = diff.render(&RenderOptions { max_bytes: length, ..RenderOptions::default() });
    assert_eq!((exact.truncated, exact.bytes.len()), (false, length));
    for max_bytes in [length - 1, length / 2, length / 2 - 7, 1000, 100, 1, 0] {
        let cut = diff.render(&RenderOptions { max_bytes, ..RenderOptions::default() });
        assert!(cut.truncated);
        assert!(cut.bytes.len() < max_bytes + 300);
        let text = String::from_utf8(cut.bytes.clone()).unwrap();
        assert!(text.contains("bytes were left out here"), "{text}");
        let folder = copy(&scene, "ws", &format!("copy{max_bytes}"));
        assert!(!git_apply(&folder, &cut.bytes, &[]).status.success(), "{max_bytes}: {text}");
        assert!(as_git_sees(&folder).is_empty(), "{max_bytes}");
    }
    let cut = diff.render(&RenderOptions { max_bytes: 1000, ..RenderOptions::default() });
    let text = String::from_utf8(cut.bytes).unwrap();
    assert!(text.starts_with("diff --git a/f000") && text.ends_with("+line\n"), "{text}");
}

#[test]
fn what_git_refuses_is_shown_but_does_not_stop_the_rest() {
    let base = [dir(".git"), dir(".git/hooks"), file(".git/HEAD", "ref: refs/heads/a\n"), file("f", "1\n")];
    let ops = [
        file(".git/hooks/post-checkout", "#!/bin/sh\nevil\n"),
        file(".git/HEAD", "ref: refs/heads/b\n"),
        file("f", "2\n"),
    ];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&ops);
    let diff = diff(&scene, &layer);
    let text = text_of(&diff);
    assert!(text.contains("# .git/hooks/post-checkout needs an explicit accept: git hook\n"), "{text}");
    assert!(text.contains("# +++ b/.git/hooks/post-checkout\n# @@ -0,0 +1,2 @@\n# +#!/bin/sh\n# +evil\n"), "{text}");
    assert!(text.contains("# -ref: refs/heads/a\n# +ref: refs/heads/b\n"), "{text}");
    // A repository in the directory would make git look for its index.
    let folder = copy(&scene, "ws", "copy");
    std::fs::remove_dir_all(folder.join(".git")).unwrap();
    let output = git_apply(&folder, text.as_bytes(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(folder.join("f")).unwrap(), b"2\n");
    assert!(!folder.join(".git").exists());
}

#[test]
fn what_depends_on_something_that_git_cannot_do_is_left_to_it() {
    let base = [dir("d"), file("d/binary", "\0"), file("d/text", "t\n"), file("f", "\0"), file("g", "g\n")];
    let ops = [
        Op::RemoveTree(b("d")),
        file("d", "a file now\n"),
        Op::Remove(b("f")),
        dir("f"),
        file("f/x", "x\n"),
        Op::Remove(b("g")),
        Op::Fifo(b("g")),
        file("free", "1\n"),
    ];
    let (_scene, diff) = run(&base, &ops);
    for (path, applies) in [("d/text", false), ("free", true), ("d/binary", false), ("d", false), ("f/x", false)] {
        assert_eq!(find(&diff, path).applies, applies, "{path}");
    }
    assert!(diff.files.iter().filter(|file| file.path.0 == b"g").all(|file| !file.applies));
    assert!(text_of(&diff).contains("# new named pipe: g\n"));
}

#[test]
fn things_without_content_are_named() {
    let base = [dir("e"), dir("m"), file("m/x", "1\n"), Op::Fifo(b("p")), file("tight", "1\n"), file("a", "1\n")];
    let ops = [
        Op::Remove(b("e")),
        dir("n"),
        dir("n/deep"),
        Op::Chmod(b("m"), 0o700),
        Op::Remove(b("p")),
        Op::Chmod(b("tight"), 0o600),
        Op::SetXattr(b("a"), "v".into()),
        Op::Fifo(b("new\nfifo")),
    ];
    let (_scene, diff) = run(&base, &ops);
    let wanted = "\
# owner, time or attributes of file: a
# gone directory: e
# mode of m: 0755 -> 0700
# new directory: n/deep
# new named pipe: \"new\\nfifo\"
# gone named pipe: p
# mode of tight: 0644 -> 0600
";
    assert_eq!(text_of(&diff).replace("# new directory: n\n", ""), wanted);
}

#[test]
fn a_file_with_several_names_says_that_they_change_with_it() {
    let base = [file("one", "1\n"), Op::Link(b("one"), b("two")), Op::Link(b("one"), b("three"))];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[Op::Append(b("one"), "2\n".into())]);
    let found = diff(&scene, &layer);
    assert_eq!(find(&found, "one").other_names, 2);
    assert!(text_of(&found).contains("# one has 2 more names in the workspace, which change with it\n"));
    drop(layer);
    // Changed through a name that is gone: only overlay's index has the new version.
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[Op::Append(b("one"), "2\n".into()), Op::Remove(b("one"))]);
    let found = diff(&scene, &layer);
    let kinds: Vec<_> = found.files.iter().map(|file| (&file.path, file.kind, file.applies)).collect();
    let one = "one".into();
    assert_eq!(kinds, [(&one, DiffKind::Deleted, true), (&one, DiffKind::Modified, false)]);
    let text = text_of(&found);
    assert!(text.contains("# one has 2 more names in the workspace, which change with it\n"), "{text}");
    assert!(text.contains("# @@ -1 +1,2 @@\n#  1\n# +2\n"), "{text}");
}

#[test]
fn the_paths_can_be_narrowed() {
    let scene = Scene::new(LayerMode::Root, &[dir("d")]);
    let layer = scene.layer(&[file("d/a", "1\n"), file("b", "1\n")]);
    let rules = Rules { only: Some(vec!["d".into()]), ..Rules::default() };
    let found = layer.diff(&scene.workspace(), &rules, &DiffOptions::default()).unwrap();
    assert_eq!(found.files.iter().map(|file| &file.path).collect::<Vec<_>>(), [&"d/a".into()]);
}

#[test]
fn a_diff_survives_json() {
    let (_scene, diff) = run(&[file("f", "1\n")], &[file("f", "2"), Op::Write(vec![0xff], "\u{0}".into())]);
    let json = serde_json::to_string(&diff).unwrap();
    assert_eq!(serde_json::from_str::<Diff>(&json).unwrap(), diff);
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![b("a"), b("b"), b("c d"), b("new\nline"), vec![b'x', 0xff]])
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

fn lines() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec!["a\n", "b\n", "\n", "c", "-- \n", "\t\r\n"]);
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

fn op(links: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (path(), lines()).prop_map(|(path, text)| Op::Write(path, text)),
        3 => (path(), lines()).prop_map(|(path, text)| Op::Append(path, text)),
        1 => path().prop_map(Op::Sparse),
        5 => path().prop_map(Op::Mkdir),
        3 => path().prop_map(Op::Remove),
        1 => path().prop_map(Op::RemoveTree),
        6 => (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (path(), path()).prop_map(move |(a, b)| if links { Op::Link(a, b) } else { Op::Mkdir(b) }),
        2 => (path(), path()).prop_map(|(target, path)| Op::Symlink(target, path)),
        1 => path().prop_map(Op::Fifo),
        2 => (path(), prop::sample::select(vec![0o755, 0o700, 0o644, 0o600])).prop_map(|(path, mode)| Op::Chmod(path, mode)),
    ]
}

/// Names of one file in the workspace are left out: git changes one of them, the layer all.
fn random_runs(mode: LayerMode, cases: u32) {
    let ops = |links| prop::collection::vec(op(links), 1..24);
    let (patches, remarks) = (Cell::new(0), Cell::new(0));
    TestRunner::new(Config { cases, ..config() })
        .run(&(ops(false), ops(true)), |(base, ops)| {
            let (_scene, diff) = run_as(mode, &base, &ops);
            let applying = diff.files.iter().filter(|file| file.applies).count();
            patches.set(patches.get() + applying);
            remarks.set(remarks.get() + diff.files.len() - applying);
            Ok(())
        })
        .unwrap();
    // A diff of nothing but remarks would pass too.
    assert!(patches.get() * 5 > remarks.get(), "{patches:?} patches, {remarks:?} remarks");
}

#[test]
fn git_makes_the_same_of_the_diff_as_the_run_did_and_takes_it_back() {
    random_runs(LayerMode::Root, cases());
}

#[test]
fn git_makes_the_same_of_the_diff_of_an_ordinary_users_run() {
    random_runs(LayerMode::User, cases() / 2);
}

#[test]
fn a_layer_that_is_only_a_descriptor_has_the_same_diff() {
    let scene = Scene::new(LayerMode::Root, &[file("f", "1\n")]);
    let layer = scene.layer(&[file("f", "2\n"), file("n", "1\n")]);
    let wanted = diff(&scene, &layer);
    let elsewhere = copy(&scene, "layers/run/upper", "elsewhere");
    std::fs::write(layer.upper().join("f"), "not this\n").unwrap();
    let layer = layer.with_upper(std::fs::File::open(elsewhere).unwrap().into());
    assert_eq!(diff(&scene, &layer), wanted);
}

/// A text and an edit of it.
fn edit() -> impl Strategy<Value = (String, String)> {
    let line = prop::sample::select(vec!["a\n", "b\n", "c\n", "\n", " \n", "+x\n", "-x\n", "@@ -1 +1 @@\n", "\\ x\n"]);
    let change = (any::<prop::sample::Index>(), 0..4_usize, prop::collection::vec(line.clone(), 0..4));
    let (old, changes) = (prop::collection::vec(line, 0..50), prop::collection::vec(change, 1..6));
    (old, changes, any::<bool>(), any::<bool>()).prop_map(|(old, changes, cut_old, cut_new)| {
        let mut new = old.clone();
        for (at, gone, come) in changes {
            let at = at.index(new.len() + 1);
            let end = (at + gone).min(new.len());
            new.splice(at..end, come);
        }
        let text = |lines: Vec<&str>, cut: bool| {
            let mut text = lines.concat();
            if cut {
                text.pop();
            }
            text
        };
        (text(old, cut_old), text(new, cut_new))
    })
}

#[test]
fn git_makes_the_new_text_of_the_old_one() {
    // One overlay for many files would hide which one fails; a layer made by hand is as good and much faster.
    TestRunner::new(config())
        .run(&prop::collection::vec(edit(), 1..4), |edits| {
            let scene = Scene::new(LayerMode::Root, &[]);
            for (number, (old, new)) in edits.iter().enumerate() {
                std::fs::write(scene.ws().join(number.to_string()), old).unwrap();
                std::fs::write(scene.path("plain").join(number.to_string()), new).unwrap();
            }
            let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
            for (number, (_, new)) in edits.iter().enumerate() {
                std::fs::write(layer.upper().join(number.to_string()), new).unwrap();
            }
            let diff = diff(&scene, &layer);
            check_with_git(&scene, &diff);
            let changed = edits.iter().filter(|(old, new)| old != new).count();
            let shown = diff.files.iter().filter(|file| file.applies).count();
            prop_assert_eq!(shown, changed);
            Ok(())
        })
        .unwrap();
}

/// F02, F05: a link is shown as a link, and a thing that is not a file is not opened.
#[test]
fn fifos_and_links_in_place_of_files_are_named_and_never_read() {
    let scene = Scene::new(LayerMode::Root, &[file("fifo", "1\n"), file("link", "1\n")]);
    let outside = scene.path("secret");
    std::fs::write(&outside, "SECRET\n").unwrap();
    let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
    rustix::fs::mkfifoat(CWD, layer.upper().join("fifo"), Mode::from_raw_mode(0o644)).unwrap();
    std::os::unix::net::UnixListener::bind(layer.upper().join("socket")).unwrap();
    symlink(&outside, layer.upper().join("link")).unwrap();
    let found = diff(&scene, &layer);
    let text = text_of(&found);
    assert!(text.contains("# new named pipe: fifo\n") && text.contains("# new socket (never committed): socket\n"));
    let target = format!("+{}\n", outside.display());
    assert!(text.contains(&target) && !text.contains("SECRET"), "{text}");
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Swaps `path` with `other` while `work` is done, as fast as a thread can.
fn while_swapped(path: &Path, other: &Path, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let (started, swaps) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let started = started;
            while !stop.load(Ordering::Relaxed) {
                let swapped = rustix::fs::renameat_with(CWD, path, CWD, other, RenameFlags::EXCHANGE);
                started.send(swapped.is_ok()).ok();
            }
        });
        assert!(swaps.recv_timeout(std::time::Duration::from_secs(10)).unwrap());
        // Also after a failed assertion, or the scope would wait for the swaps for ever.
        let _stop = StopAtEnd(&stop);
        work();
    });
}

/// F02, while it moves.
#[test]
fn a_directory_or_file_that_is_swapped_meanwhile_never_leads_outside() {
    let base = [dir("d"), file("d/f", "1\n"), file("e", "1\n")];
    for (in_layer, what, is_dir) in [(false, "d", true), (true, "d", true), (false, "e", false), (true, "e", false)] {
        let scene = Scene::new(LayerMode::Root, &base);
        let layer = scene.layer(&[file("d/f", "2\n"), file("e", "2\n")]);
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(outside.path().join("f"), "SECRET\n").unwrap();
        let root = if in_layer { layer.upper() } else { scene.ws() };
        let pool = scene.path("spare");
        let target = if is_dir { outside.path().to_owned() } else { outside.path().join("f") };
        symlink(target, &pool).unwrap();
        while_swapped(&root.join(what), &pool, || {
            let (mut compared, end) = (0, std::time::Instant::now() + std::time::Duration::from_secs(60));
            while compared < 300 {
                // While things move, a failure is fine; the content of the outside is not.
                if let Ok(found) = layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()) {
                    assert!(!text_of(&found).contains("SECRET"));
                    compared += 1;
                }
                assert!(std::time::Instant::now() < end, "{what}: only {compared} comparisons came to a result");
            }
        });
        if root.join(what).is_symlink() {
            rustix::fs::renameat_with(CWD, root.join(what), CWD, &pool, RenameFlags::EXCHANGE).unwrap();
        }
        let found = layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).unwrap();
        assert!(text_of(&found).contains("+2"), "{what}: once nothing moves, the change is shown");
    }
}

/// F05, while it moves.
#[test]
fn a_file_swapped_for_a_fifo_does_not_stop_the_diff() {
    let scene = Scene::new(LayerMode::Root, &[file("e", "1\n")]);
    let layer = scene.layer(&[file("e", "2\n")]);
    let pool = scene.path("spare");
    rustix::fs::mkfifoat(CWD, &pool, Mode::from_raw_mode(0o644)).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let done = done;
            while_swapped(&scene.ws().join("e"), &pool, || {
                for _ in 0..300 {
                    layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).ok();
                }
            });
            done.send(()).unwrap();
        });
        let in_time = ended.recv_timeout(std::time::Duration::from_secs(60));
        if in_time.is_err() {
            // A reader that hangs would hang the test too.
            std::process::exit(101);
        }
    });
}
