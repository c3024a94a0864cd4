//! A run renames files over one another and writes to all of them. An ordinary user accepts one and rejects the rest: the
//! layer stays where an entry of it may be the last copy of what the accepted one replaced, and goes after mere edits.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, at, b, has, leased, rename};
use nexus_layer::review::diff::{Choice, DiffOptions};
use nexus_layer::{Abandoned, Faults, Layer, LayerMode, Rules, abandon, recover};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A time that is later than that of every run.
const FUTURE: i64 = 4_000_000_000;

/// A licence that many files begin with.
const LICENCE: &str =
    "Permission is hereby granted, free of charge, to any person\nobtaining a copy of this software\n";

/// A file of 30 lines that no other file has.
fn text(name: &str) -> String {
    (0..30).fold(format!("text of {name}\n"), |text, line| format!("{text}line {line} of the file {name}\n"))
}

/// Writes a file with such a text.
fn file(name: &str) -> Op {
    Op::Write(b(name), text(name))
}

/// Writes a file that begins with a licence.
fn licensed(name: &str) -> Op {
    let text = format!("{}fn {name}() {{\n    // of {name} alone\n}}\n", LICENCE.repeat(4));
    Op::Write(b(name), text)
}

fn append(name: &str) -> Op {
    Op::Append(b(name), "more\n".into())
}

/// Renames each file over the next one, and the last over the first.
fn ring(names: &[&str]) -> Vec<Op> {
    let last = names.len() - 1;
    let mut ops = vec![rename(names[last], "aside")];
    ops.extend((0..last).rev().map(|at| rename(names[at], names[at + 1])));
    ops.push(rename("aside", names[0]));
    ops
}

fn accept(scene: &Scene, layer: &Layer, paths: &[&str]) {
    let chosen = Rules { only: Some(paths.iter().map(|path| b(path).into()).collect()), ..Rules::default() };
    let done = layer.commit(&leased(scene), &chosen).unwrap();
    assert!(done.conflicts.is_empty() && !done.changes.changes.is_empty(), "{done:?}");
}

fn reject(scene: &Scene) -> Abandoned {
    abandon(&scene.path("layers"), "run", || Ok(())).unwrap()
}

/// Fails unless the first line of each file is in the workspace or in what the reject kept.
fn check(scene: &Scene, names: &[&str], left: &Abandoned, what: &str) {
    for name in names {
        let text = format!("text of {name}");
        let kept = scene.path("layers");
        assert!(has(&scene.ws(), &text) || has(&kept, &text), "{what}: {text:?} is lost, {left:?}");
    }
}

/// The name of a story, the files of the user, the run, and the names.
type Story = (&'static str, Vec<Op>, Vec<Op>, &'static [&'static str]);

/// The runs that end with a file of the user at the name of another one, written to.
fn stories() -> Vec<Story> {
    let (two, three): (&[_], &[_]) = (&["a", "b"], &["a", "b", "c"]);
    let base = |names: &[&str]| names.iter().map(|name| file(name)).collect::<Vec<_>>();
    let then = |names: &[&'static str], op: fn(&str) -> Op| {
        let mut ops = ring(names);
        ops.extend(names.iter().map(|name| op(name)));
        ops
    };
    let touch = |name: &str| Op::Date(b(name), FUTURE);
    let dated = [base(two), two.iter().map(|name| touch(name)).collect()].concat();
    let renamed = vec![rename("a", "n"), rename("b", "a"), append("a"), append("n")];
    let old = [ring(two), vec![append("a"), Op::Touch(b("b"))]].concat();
    vec![
        ("a swap and edits", base(two), then(two, append), two),
        ("a ring and edits", base(three), then(three, append), three),
        ("a swap and new times", base(two), then(two, touch), two),
        ("a swap of files from the future", dated, ring(two), two),
        ("a swap, an edit and an old time", base(two), old, two),
        ("a new name and edits", base(two), renamed, two),
    ]
}

#[test]
fn a_swap_with_edits_loses_nothing_at_a_reject() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for (what, base, run, names) in stories() {
            for accepted in names {
                let scene = Scene::new(mode, &base);
                let layer = scene.layer(&run);
                accept(&scene, &layer, &[accepted]);
                drop(layer);
                let left = reject(&scene);
                check(&scene, names, &left, &format!("{what} {mode:?} {accepted}"));
            }
        }
    }
}

#[test]
fn a_part_of_a_swap_with_edits_loses_nothing_at_a_reject() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let two_parts = |name: &str| format!("text of {name}\n{}end of {name}\n", "the same in both\n".repeat(20));
        let scene = Scene::new(mode, &["a", "b"].map(|name| Op::Write(b(name), two_parts(name))));
        let layer = scene.layer(&[ring(&["a", "b"]), vec![append("a"), append("b")]].concat());
        let path = b("a").into();
        let choice = Choice { path: &path, hunks: &[0], seen: None, options: &DiffOptions::default() };
        let done = layer.accept_hunks(&leased(&scene), &Rules::default(), &choice).unwrap();
        assert!(done.conflicts.is_empty() && !done.changes.changes.is_empty(), "{done:?}");
        drop(layer);
        let left = reject(&scene);
        check(&scene, &["a", "b"], &left, &format!("{mode:?}"));
    }
}

/// Accepts the edit of `a` and rejects the others.
fn edited(mode: LayerMode, base: &[Op], run: &[Op]) -> (Scene, Abandoned) {
    let scene = Scene::new(mode, base);
    let layer = scene.layer(run);
    accept(&scene, &layer, &["a"]);
    drop(layer);
    let left = reject(&scene);
    (scene, left)
}

/// Lines that begin and end alike: each 16 bytes of the old order are somewhere in the new one.
#[test]
fn the_order_of_lines_that_a_run_copied_is_kept() {
    let line = |at: u64| {
        let number: String = (1..9).map(|turn| (at * at * 7_919 * turn % 99_991).to_string()).collect();
        format!("{{\"time\":\"2026-11\",{number},\"name\":\"backend\"}}\n")
    };
    let mut lines: Vec<String> = (100..300).map(line).collect();
    let old = lines.concat();
    lines.sort();
    for mode in [LayerMode::Root, LayerMode::User] {
        let run = [Op::Write(b("b"), old.clone()), Op::Write(b("a"), lines.concat())];
        let (scene, left) = edited(mode, &[Op::Write(b("a"), old.clone())], &run);
        assert!(matches!(left, Abandoned::Removed(Some(_))), "{mode:?}: {left:?}");
        assert!(has(&scene.path("layers"), &old), "{mode:?}");
    }
}

/// Of a large file that goes only a part of the pieces is in memory, and the one line is hardly among them.
#[test]
fn one_line_of_a_large_file_is_kept() {
    let line = |at: u64| format!("{:016x} is line {at} of the log\n", (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let log: String = (0..200_000).map(line).collect();
    let run = [Op::Write(b("b"), line(123_456)), Op::Remove(b("a"))];
    let (scene, left) = edited(LayerMode::User, &[Op::Write(b("a"), log)], &run);
    assert!(matches!(left, Abandoned::Removed(Some(_))), "{left:?}");
    assert!(has(&scene.path("layers"), &line(123_456)));
    let other = [Op::Write(b("b"), "another line of 40 bytes in another file\n".into()), Op::Remove(b("a"))];
    let (_, left) = edited(LayerMode::User, &[Op::Write(b("a"), (0..20_000).map(line).collect())], &other);
    assert_eq!(left, Abandoned::Removed(None));
}

/// A value of a tiny file is contained in the value of another one.
#[test]
fn a_tiny_value_that_two_files_swapped_is_kept() {
    let write = |name: &str, text: &str| Op::Write(b(name), text.into());
    for mode in [LayerMode::Root, LayerMode::User] {
        for (one, other, more) in [
            ("TIMEOUT=3\n", "TIMEOUT=30\n", ""),
            ("10\n", "100\n", "q\n"),
            ("A_LONGER_TIMEOUT=3\n", "A_LONGER_TIMEOUT=30\n", ""),
            ("on\n", "version=1\na long text of a file\n", ""),
        ] {
            let base = [write("a", one), write("b", other)];
            let run = [write("a", other), write("b", &format!("{one}{more}"))];
            let (_, left) = edited(mode, &base, &run);
            assert!(matches!(left, Abandoned::Removed(Some(_))), "{one:?} {mode:?}: {left:?}");
        }
    }
}

#[test]
fn an_accept_of_one_edit_of_several_keeps_no_layer() {
    let names = ["a", "b", "c"];
    let appends = || names.iter().map(|name| append(name)).collect::<Vec<_>>();
    let replaced = |name: &str| Op::Write(b(name), text(name).replace("line 7", "another line 7"));
    let short = |name: &str| Op::Write(b(name), format!("{name} 1.2.3\n"));
    for mode in [LayerMode::Root, LayerMode::User] {
        for (what, base, run) in [
            ("edits at the end", names.map(file).to_vec(), appends()),
            ("edits in the middle", names.map(file).to_vec(), names.map(replaced).to_vec()),
            ("files with a licence", names.map(licensed).to_vec(), appends()),
            ("short files", names.map(short).to_vec(), appends()),
            (
                "appends to one tiny file",
                vec![Op::Write(b("a"), "7\n".into())],
                vec![append("a"), Op::Write(b("n"), "7\n".into())],
            ),
            ("the same files", names.map(|name| Op::Write(b(name), text("x"))).to_vec(), appends()),
            (
                "whole new texts",
                names.map(file).to_vec(),
                names.map(|name| Op::Write(b(name), text(&name.repeat(9)).replace("file", "text"))).to_vec(),
            ),
            ("empty files", names.map(|name| Op::Write(b(name), String::new())).to_vec(), appends()),
            (
                "one number each",
                names.map(|name| Op::Write(b(name), format!("{name}1\n"))).to_vec(),
                names.map(|name| Op::Write(b(name), format!("{name}2\n"))).to_vec(),
            ),
            ("emptied files", names.map(file).to_vec(), names.map(|name| Op::Write(b(name), String::new())).to_vec()),
            ("new times", names.map(file).to_vec(), names.map(|name| Op::Date(b(name), FUTURE)).to_vec()),
            (
                "a file that is renamed and edited",
                names.map(file).to_vec(),
                vec![append("a"), append("b"), rename("c", "n"), append("n")],
            ),
            (
                "others that are swapped and edited",
                names.map(file).to_vec(),
                [vec![append("a")], ring(&["b", "c"]), vec![append("b"), append("c")]].concat(),
            ),
        ] {
            let (scene, left) = edited(mode, &base, &run);
            assert_eq!(left, Abandoned::Removed(None), "{what} {mode:?}");
            assert!(!scene.path("layers/run").exists() && !scene.path("layers/.kept").exists(), "{what} {mode:?}");
        }
    }
}

/// The parts of `a` that are not accepted do not count as a copy of the version that the accepted one replaced.
#[test]
fn a_part_of_an_edit_alone_keeps_no_layer() {
    let line = |at: u32| format!("line {at} of the file\n");
    let base: String = (0..60).map(line).collect();
    let new = base.replace("line 5 ", "a new line 5 ").replace("line 50 ", "another line 50 ");
    for mode in [LayerMode::Root, LayerMode::User] {
        let scene = Scene::new(mode, &[Op::Write(b("a"), base.clone()), file("b")]);
        let layer = scene.layer(&[Op::Write(b("a"), new.clone()), append("b")]);
        let path = b("a").into();
        let choice = Choice { path: &path, hunks: &[0], seen: None, options: &DiffOptions::default() };
        let done = layer.accept_hunks(&leased(&scene), &Rules::default(), &choice).unwrap();
        assert!(done.conflicts.is_empty() && !done.changes.changes.is_empty(), "{done:?}");
        drop(layer);
        assert_eq!(reject(&scene), Abandoned::Removed(None), "{mode:?}");
        assert_eq!(fs::read_to_string(scene.ws().join("a")).unwrap(), base.replace("line 5 ", "a new line 5 "));
    }
}

/// Another process writes to a file after the decision, so that its change is kept back.
fn kept_back(mode: LayerMode, base: &[Op], run: &[Op], kept: &str) -> (Scene, Abandoned) {
    let scene = Scene::new(mode, base);
    let mut layer = scene.layer(run);
    let (journal, path, done) = (scene.path("layers/run/journal"), scene.ws().join(kept), AtomicBool::new(false));
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() && !done.swap(true, Ordering::SeqCst) {
            fs::write(&path, "of another process").unwrap();
        }
    })));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert!(result.conflicts.iter().any(|one| one.path.0 == kept.as_bytes()), "{result:?}");
    drop(layer);
    let left = reject(&scene);
    (scene, left)
}

#[test]
fn what_was_renamed_over_a_file_and_is_kept_back_is_not_lost() {
    let base = [file("a"), file("b"), Op::Mkdir(b("d")), file("d/b")];
    let over = || vec![rename("a", "b")];
    let out_of = || vec![rename("d/b", "b"), Op::RemoveTree(b("d"))];
    let swap = || ring(&["a", "b"]);
    for mode in [LayerMode::Root, LayerMode::User] {
        for (what, run, name) in [
            ("edited", [over(), vec![append("b")]].concat(), "a"),
            ("a new time", [over(), vec![Op::Date(b("b"), FUTURE)]].concat(), "a"),
            ("an old time", [over(), vec![Op::Touch(b("b"))]].concat(), "a"),
            ("a swap with edits", [swap(), vec![append("a"), append("b")]].concat(), "a"),
            ("a swap with an edit and an old time", [swap(), vec![append("a"), Op::Touch(b("b"))]].concat(), "a"),
            ("out of a directory", out_of(), "d/b"),
            ("out of a directory, edited", [out_of(), vec![append("b")]].concat(), "d/b"),
        ] {
            let (scene, left) = kept_back(mode, &base, &run, "b");
            check(&scene, &[name], &left, &format!("{what} {mode:?}"));
            assert_eq!(fs::read_to_string(scene.ws().join("b")).unwrap(), "of another process", "{what} {mode:?}");
        }
    }
}

/// The accept is killed before each of its calls, and another process writes to the file before the recovery.
#[test]
fn what_is_kept_back_after_a_kill_is_not_lost() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for nth in 1.. {
            let scene = Scene::new(mode, &[file("a"), file("b")]);
            let mut layer = scene.layer(&[rename("a", "b"), append("b")]);
            let (journal, calls) = (scene.path("layers/run/journal"), AtomicU64::new(0));
            layer.set_faults(Faults::default().between(Arc::new(move |_| {
                if journal.exists() && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                    std::panic::panic_any("killed");
                }
            })));
            let commit = || layer.commit(&leased(&scene), &Rules::default()).unwrap();
            let killed = catch_unwind(AssertUnwindSafe(commit)).is_err();
            drop(layer);
            if !killed {
                assert!(nth > 5);
                break;
            }
            if has(&at(&scene.ws(), b"b"), "text of a") {
                // It has arrived, and the other process would write over the run's own version.
                continue;
            }
            fs::write(scene.ws().join("b"), "of another process").unwrap();
            recover(&scene.path("layers"), "run", &leased(&scene)).unwrap();
            let left = reject(&scene);
            check(&scene, &["a"], &left, &format!("{mode:?} {nth}"));
        }
    }
}

#[test]
fn an_edit_that_is_kept_back_alone_keeps_no_layer() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let (scene, left) = kept_back(mode, &[file("b")], &[append("b"), Op::Write(b("n"), "new".into())], "b");
        assert_eq!(left, Abandoned::Removed(None), "{mode:?}");
        assert!(scene.ws().join("n").exists() && !scene.path("layers/.kept").exists(), "{mode:?}");
    }
}

/// An entry of which nothing is known counts as a copy, and a tail that was appended to a large file is soon compared.
#[test]
fn a_file_that_is_too_large_to_compare_keeps_the_layer() {
    for (what, run, is_kept) in [
        ("edits at the end", vec![append("a"), append("b")], false),
        ("a deletion", vec![append("a"), Op::Remove(b("b")), Op::Write(b("n"), "new".into())], true),
    ] {
        let scene = Scene::new(LayerMode::User, &[file("a"), Op::Sparse(b("b")), file("b")]);
        fs::File::options().write(true).open(at(&scene.ws(), b"b")).unwrap().set_len(300 << 20).unwrap();
        common::wait_for_tick(scene.dir.path());
        let layer = scene.layer(&run);
        accept(&scene, &layer, &["b"]);
        drop(layer);
        match reject(&scene) {
            Abandoned::Removed(Some(left)) if is_kept => assert!(left.why.contains("only copy"), "{what}: {left:?}"),
            left => assert!(!is_kept && left == Abandoned::Removed(None), "{what}: {left:?}"),
        }
    }
}

/// The files `a` and `b` of each story are swapped and then written to, and the change of `a` is accepted.
#[test]
fn a_swap_of_contents_that_say_little_loses_nothing() {
    let all = |lines: Vec<String>| lines.concat();
    let lines = |numbers: &[u8]| all(numbers.iter().map(|number| format!("GET /page{number} 200\n")).collect());
    let labels = |seed: u32| all((0..500_u32).map(|at| format!("{}\n", (at * at * seed / 7) % 2)).collect());
    let header = all((0..40).map(|line| format!("// line {line} of a licence\n")).collect());
    let add = |name: &str, text: &str| Op::Append(b(name), text.into());
    for (what, a, other, edits) in [
        (
            "lines in another order",
            lines(&[3, 1, 2, 2, 1, 3, 1, 1, 2]),
            lines(&[1, 2, 3, 1, 2, 3]) + "rotated\n",
            vec![add("a", "rotated\n"), add("b", "rotated\n")],
        ),
        ("labels", labels(3), labels(5) + "total\n", vec![add("a", "total\n"), add("b", "total\n")]),
        ("one letter", "a".repeat(37) + "b\n", "a".repeat(17) + "b\nq\n", vec![add("a", "q\n"), add("b", "q\n")]),
        ("zeros", "\0".repeat(5000) + "x", "\0".repeat(9000) + "y", vec![add("a", "y"), add("b", "y")]),
        (
            "settings",
            "KEY=abc\n".into(),
            "KEY=xyz\nDEBUG=1\nMODE=2\n".into(),
            vec![add("a", "x"), add("b", "DEBUG=1\nMODE=2\n")],
        ),
        (
            "a header",
            "a secret\n".into(),
            format!("{header}b"),
            vec![add("a", "q\n"), Op::Write(b("b"), format!("{header}a secret\n"))],
        ),
        // The other file has the size and, in the end, the time of a third one.
        (
            "the time of a third file",
            text("a"),
            text("b"),
            vec![Op::Date(b("b"), 1_000_000_000), add("a", "q\n"), add("c", "q\n")],
        ),
    ] {
        for mode in [LayerMode::Root, LayerMode::User] {
            let base =
                [("a", &a), ("b", &other), ("c", &text("c"))].map(|(name, text)| Op::Write(b(name), text.clone()));
            let old = Op::Date(b("c"), 1_000_000_000);
            let (scene, left) =
                edited(mode, &[&base[..], &[old]].concat(), &[ring(&["a", "b"]), edits.clone()].concat());
            assert!(has(&scene.ws(), &a) || has(&scene.path("layers"), &a), "{what} {mode:?}: a is lost, {left:?}");
        }
    }
}
