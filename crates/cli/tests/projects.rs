//! The newcomer's project table: projects of all kinds, fetched by the machine's own clients from the registries or as Debian's
//! source packages, pass their own tests inside with the counts of outside, as root and as an ordinary user, without a flag.
//!
//! ```text
//!  fetch (outside) ─▶ copy: build, test outside ─▶ count
//!                  └▶ copy: build, test inside  ─▶ the same count; then outside and inside in turn, timed
//! ```
//! Continuous integration plays the quick rows and measures nothing. With `NEXUS_SOAK_PROJECTS` all rows are played, and a
//! second run inside takes at most a tenth longer than outside (and 15 ms). The value `all` plays all; another is a part of the
//! names of the rows to play.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "projects/rows.rs"]
mod rows;
mod support;

use rows::{Count, ROWS, Row, full};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Bench, benches, is_root, stderr, stdout};

const FETCH: &str = include_str!("projects/fetch.sh");
/// Runs of each kind that are timed; the shortest counts, since this machine does other work too.
const TIMED: usize = 5;
/// Time by which a second run inside may be longer, besides a tenth.
const FLOOR: Duration = Duration::from_millis(15);

#[test]
fn every_project_passes_its_tests_inside_as_outside() {
    let asked = std::env::var("NEXUS_SOAK_PROJECTS").ok();
    let shared = directory();
    let mut failed = Vec::new();
    for row in ROWS {
        let is_asked = asked.as_ref().is_some_and(|part| part == "all" || row.name.contains(part.as_str()));
        let is_usual = asked.is_none() && row.is_quick;
        if !is_asked && !is_usual {
            continue;
        }
        if let Err(why) = play(row, shared.path(), asked.is_some()) {
            println!("{}: {why}", row.name);
            failed.push(format!("{}: {why}", row.name));
        }
    }
    assert!(failed.is_empty(), "{} rows failed:\n{}", failed.len(), failed.join("\n"));
}

/// Plays a row for each identity.
fn play(row: &Row, shared: &Path, is_measured: bool) -> Result<(), String> {
    if !is_there(row.needs) {
        return Err(format!("{} is not installed, and cargo xtask soak would install it", row.needs));
    }
    let fetched = directory();
    let (project, home) = (fetched.path().join("project"), fetched.path().join("home"));
    for place in [&project, &home] {
        fs::create_dir(place).unwrap();
    }
    let script = format!("{FETCH}\n{}", full(row.fetch));
    let mut client = Command::new("bash");
    client.args(["-c", &script]).current_dir(&project).env("SHARED", shared).env("HOME_OF_ROW", &home);
    let output = client.output().unwrap();
    if !output.status.success() {
        return Err(format!("it could not be fetched: {}{}", stdout(&output), stderr(&output)));
    }
    let mut failed = Vec::new();
    for bench in benches() {
        copy(&bench, &home, &bench.home);
        let path = path(&bench, row);
        if let Err(why) = compare(row, &bench, &project, &path, is_measured) {
            failed.push(format!("{}: {why}", bench.who()));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Runs the tests of a row outside and inside.
fn compare(row: &Row, bench: &Bench, project: &Path, path: &str, is_measured: bool) -> Result<(), String> {
    // Outside, /tmp may have what another user's tests left; inside it is the sandbox's own.
    let temporary = bench.base.path().join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    bench.give(&temporary);
    let outside = |script: &str| {
        let mut command = bench.command("sh");
        command.env("PATH", path).env("TMPDIR", &temporary).args(["-c", script]).output().unwrap()
    };
    let inside = |script: &str| {
        let mut command = bench.nexus(["run", "--quiet"]);
        command.env("PATH", path).args(row.flags).args(["--shell", script]).output().unwrap()
    };
    let (build, test) = (full(row.build), full(row.test));
    let tested = |runs: &dyn Fn(&str) -> Output| {
        let built = runs(&build);
        if !build.is_empty() && !built.status.success() {
            return Err(format!("it cannot be built: {}{}", tail(&stdout(&built)), tail(&stderr(&built))));
        }
        let output = runs(&test);
        Ok((output.status.code(), count(row.count, &stdout(&output)), output))
    };
    copy(bench, project, &bench.workspace);
    let (code, expected, output) = tested(&outside).map_err(|why| format!("outside: {why}"))?;
    check_outside(row, code, expected)
        .map_err(|why| format!("{why}: {}{}", tail(&stdout(&output)), tail(&stderr(&output))))?;
    empty(&bench.workspace);
    copy(bench, project, &bench.workspace);
    let (code_inside, passed, output) = tested(&inside).map_err(|why| format!("inside: {why}"))?;
    if (code, expected) != (code_inside, passed) {
        let said = format!("{}{}", tail(&stdout(&output)), tail(&stderr(&output)));
        return Err(format!(
            "{expected} passed outside with {code:?}, and {passed} inside with {code_inside:?}: {said}"
        ));
    }
    let parked = stdout(&bench.run(["changes", "list"]));
    if !parked.starts_with("No changes") {
        return Err(format!("held back: {parked}"));
    }
    // In turn: neither finds that the other one built with other paths.
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..if is_measured { TIMED } else { 1 } {
        for (at, run) in [&outside as &dyn Fn(&str) -> Output, &inside].into_iter().enumerate() {
            let began = Instant::now();
            let output = run(&test);
            shortest[at] = shortest[at].min(began.elapsed());
            if row.needs == "cargo" && stdout(&output).contains("Compiling") {
                return Err(format!("a second run compiled again: {}", tail(&stdout(&output))));
            }
        }
    }
    let [out, within] = shortest;
    let ratio = within.as_secs_f64() / out.as_secs_f64();
    println!("{} as {}: {passed} passed, {out:.2?} outside, {within:.2?} inside, {ratio:.2}", row.name, bench.who());
    if is_measured && within > out.mul_f64(1.1) + FLOOR {
        return Err(format!("a second run took {within:?} inside and {out:?} outside"));
    }
    Ok(())
}

/// Refuses a suite that did not run outside: the same nothing inside would say nothing.
fn check_outside(row: &Row, code: Option<i32>, passed: u64) -> Result<(), String> {
    if passed < row.at_least {
        return Err(format!("outside only {passed} passed"));
    }
    if code != Some(0) && !row.may_fail {
        return Err(format!("outside the runner ended with {code:?} after {passed} passed"));
    }
    Ok(())
}

/// PATH of the caller. A toolchain of Rust lies in a place of its manager in the caller's home.
fn path(bench: &Bench, row: &Row) -> String {
    let system = "/usr/local/bin:/usr/bin:/bin";
    if row.needs != "cargo" {
        return system.to_owned();
    }
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = stdout(&output).trim().to_owned();
    let place = bench.home.join(".rustup/toolchains/stable");
    let script = "mkdir -p \"$1/bin\" && for part in bin/cargo bin/rustc bin/rustdoc lib; do \
                  cp -rl -- \"$0/$part\" \"$1/$part\" 2>/dev/null || cp -r -- \"$0/$part\" \"$1/$part\"; done";
    let status = Command::new("sh").args(["-c", script, &sysroot]).arg(&place).status().unwrap();
    assert!(status.success());
    format!("{}:{system}", place.join("bin").display())
}

/// Copies what is in a directory, for the user who runs `nexus`.
fn copy(bench: &Bench, from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--"]).arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success());
    if let Some(user) = bench.user {
        let owner = format!("{user}:{user}");
        let given = Command::new("chown").args(["-R", "--no-dereference", &owner]).arg(to).status().unwrap();
        assert!(given.success());
    } else if is_root() {
        let given = Command::new("chown").args(["-R", "--no-dereference", "0:0"]).arg(to).status().unwrap();
        assert!(given.success());
    }
}

fn empty(directory: &Path) {
    let status = Command::new("find").arg(directory).args(["-mindepth", "1", "-delete"]).status().unwrap();
    assert!(status.success());
}

/// A new directory that everybody may read.
fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new().prefix("nexus-project-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$0\" > /dev/null", program]).status().unwrap().success()
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Reads how many tests passed.
fn count(how: Count, text: &str) -> u64 {
    let is_between = |letter: char| letter.is_whitespace() || matches!(letter, ',' | ';' | '.' | '=' | ':' | '(' | ')');
    let words: Vec<&str> = text.split(is_between).filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2);
    match how {
        Count::Before(word) => {
            pairs.filter(|pair| pair[1] == word).filter_map(|pair| pair[0].parse::<u64>().ok()).sum()
        }
        Count::Behind(word) => {
            pairs.filter(|pair| pair[0] == word).filter_map(|pair| pair[1].parse::<u64>().ok()).sum()
        }
        Count::Lines(start) => text.lines().filter(|line| line.starts_with(start)).count() as u64,
    }
}

#[test]
fn a_suite_that_stopped_early_outside_is_no_measure() {
    let row = |name: &str| ROWS.iter().find(|row| row.name == name).unwrap();
    let lz4 = row("lz4 (make)");
    assert!(check_outside(lz4, Some(0), 45).is_ok());
    // Without its program, `make` prints its first lines and ends with an error.
    assert!(check_outside(lz4, Some(2), 45).is_err());
    assert!(check_outside(lz4, Some(0), 2).is_err());
    assert!(check_outside(row("attrs 25.3.0 (hypothesis)"), Some(1), 1338).is_ok(), "by one test");
}

#[test]
fn counts_are_read_from_what_runners_print() {
    assert_eq!(count(Count::Before("passed"), "628 passed, 21 skipped in 1.5s"), 628);
    assert_eq!(count(Count::Before("passed"), "test result: ok. 4 passed; 0 failed;\ntest result: ok. 3 passed;"), 7);
    assert_eq!(count(Count::Behind("Tests"), "Files=52, Tests=26111, 25 wallclock secs"), 26_111);
    assert_eq!(count(Count::Behind("of"), "100% tests passed, 0 tests failed out of 22\n"), 22);
    assert_eq!(count(Count::Behind("OK"), "OK (2 tests)\n"), 2);
    assert_eq!(count(Count::Lines("ok"), "ok  \ta\t0.1s\n?   \tb\t[no test files]\nok  \tc\t0.2s\n"), 2);
}
