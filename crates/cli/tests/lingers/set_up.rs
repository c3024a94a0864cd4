//! Sandboxes that are frozen before they report the start of their command.

use crate::held::{Frozen, freezer};
use crate::support::{Bench, benches, stderr, wait_for, wait_until};
use crate::{PATIENCE, ended, recorded};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The children of a process.
fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Reports whether a process is the first one of a pid namespace.
fn is_first(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
}

/// Starts a run whose set-up does not end, and freezes the first process of its sandbox where there is a freezer.
fn stopped(freezer: Option<&Path>, bench: &Bench, flags: &[&str]) -> (Child, Option<Frozen>) {
    let mut command = bench.nexus(["run", "--grace", "10ms"]);
    command
        .args(flags)
        .args(["--", "true"])
        .env("NEXUS_INJECT_STOP", "host_name")
        .env("NEXUS_INJECT_SET_UP_MS", "1500");
    // The frozen process still holds what nexus had at the clone: a pipe would not end.
    let said = std::fs::File::create(said(bench)).unwrap();
    let child = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
    let found = || children_of(child.id()).into_iter().find(|pid| is_first(*pid));
    let first = wait_for("the first process", PATIENCE, found);
    (child, freezer.map(|freezer| Frozen::freeze(freezer, first)))
}

fn said(bench: &Bench) -> PathBuf {
    bench.home.join("said")
}

/// Ends a run with these flags that is frozen in its set-up. Returns its exit code and what it said.
fn end(bench: &Bench, flags: &[&str], freezer: &Path) -> (Option<i32>, String) {
    let (child, frozen) = stopped(Some(freezer), bench, flags);
    let output = ended(child, bench);
    let run = recorded(bench);
    let next = bench.run(["ps"]);
    assert_eq!(next.status.code(), Some(0), "{}: {}", bench.who(), stderr(&next));
    assert_eq!(recorded(bench), run, "{}: taken for gone", bench.who());
    frozen.unwrap().thaw();
    wait_until("the end of the record", PATIENCE, || {
        bench.run(["ps"]).status.success() && bench.leftovers().is_empty()
    });
    (output.status.code(), std::fs::read_to_string(said(bench)).unwrap())
}

#[test]
fn a_set_up_that_does_not_end_ends_the_run_with_advice() {
    for bench in benches() {
        for flags in [["--changes", "commit"], ["--direct", "--net=none"], ["--disk", "4M"]] {
            let output = ended(stopped(None, &bench, &flags).0, &bench);
            let said = std::fs::read_to_string(said(&bench)).unwrap();
            assert_eq!(output.status.code(), Some(125), "{} {flags:?}: {said}", bench.who());
            assert!(said.contains("no start of the command within 1.5 s"), "{} {flags:?}: {said}", bench.who());
            assert!(said.contains("Run it again."), "{} {flags:?}: {said}", bench.who());
            assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
        }
    }
}

#[test]
fn a_sandbox_that_is_frozen_in_its_set_up_holds_up_no_end() {
    let Some(freezer) = freezer() else { return };
    for bench in benches() {
        for flags in [["--changes", "commit"], ["--direct", "--net=none"], ["--disk", "4M"]] {
            let (code, said) = end(&bench, &flags, &freezer);
            assert_eq!(code, Some(125), "{} {flags:?}: {said}", bench.who());
            assert!(said.contains("no start of the command within 1.5 s"), "{} {flags:?}: {said}", bench.who());
        }
        let (code, said) = end(&bench, &["--timeout", "500ms"], &freezer);
        assert_eq!(code, Some(124), "{}: {said}", bench.who());
    }
}
