//! A sandbox that isolates nothing is seen as one, also where only the real column is played.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_escape::{Attacker, Depth, Kind, Options, Plan, SuiteError, Verdict, play};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SUITE: &str = env!("CARGO_BIN_EXE_nexus-escape");

fn plan(nexus: PathBuf) -> Plan {
    Plan {
        attacker: Attacker { program: SUITE.into(), words: Vec::new() },
        nexus: Some(nexus),
        as_self: true,
        as_user: None,
        depth: Depth::RealOnly,
        only: Some("A17".to_owned()),
        options: Options::default(),
        not_given: Vec::new(),
        stop: None,
    }
}

fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("nexus");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_sandbox_that_isolates_nothing_fails_and_one_that_starts_nothing_is_no_verdict() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let leaky = script(directory.path(), &format!("exec '{SUITE}' leaky \"$@\""));
    let outcome = play(&plan(leaky)).unwrap();
    assert!(!outcome.good());
    let failed =
        |kind| outcome.rows.iter().filter(move |row| row.case.kind == kind && matches!(row.verdict, Verdict::Fail(_)));
    assert_eq!(failed(Kind::Malicious).count(), 3, "{:?}", outcome.rows);
    assert_eq!(failed(Kind::Harmless).count(), 0, "{:?}", outcome.rows);

    let refuses = script(directory.path(), "echo 'no sandbox today' >&2; exit 125");
    match play(&plan(refuses)) {
        Err(SuiteError::NotPlayed { summary }) => assert!(summary.contains("no sandbox today"), "{summary}"),
        other => panic!("{other:?}"),
    }
}
