//! The units in `dist/systemd`, by systemd itself where it is installed, and by the program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Command;

const UNITS: [&str; 2] = ["nexus-mothership.service", "nexusd.service"];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd").join(name)
}

/// The arguments of a unit are ones that the program knows.
#[test]
fn the_program_knows_the_arguments_of_its_units() {
    for name in UNITS {
        let text = std::fs::read_to_string(unit(name)).unwrap();
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/nexus ")).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_nexus")).args(start.split(' ')).arg("--help").output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        for flag in start.split(' ').filter(|word| word.starts_with("--")) {
            assert!(String::from_utf8_lossy(&output.stdout).contains(flag), "{name}: {flag}");
        }
    }
}

/// Every sandbox inherits the settings of the daemon's unit: it must not have these.
#[test]
fn the_unit_of_the_daemon_takes_nothing_from_its_sandboxes() {
    let text = std::fs::read_to_string(unit("nexusd.service")).unwrap();
    let keys: Vec<&str> = text.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key).collect();
    for bad in [
        "SystemCallFilter",
        "SystemCallArchitectures",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "ProcSubset",
        "PrivateUsers",
    ] {
        assert!(!keys.contains(&bad), "{bad}");
    }
    for needed in ["Delegate=yes", "KillMode=mixed", "NoNewPrivileges=yes", "ProtectSystem=strict"] {
        assert!(text.lines().any(|line| line == needed), "{needed}");
    }
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let dir = tempfile::tempdir().unwrap();
    for name in UNITS {
        // The program of the test stands for the installed one.
        let text = std::fs::read_to_string(unit(name)).unwrap();
        let text = text.replace("/usr/bin/nexus ", concat!(env!("CARGO_BIN_EXE_nexus"), " "));
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains(name), "{name}: {said}");
    }
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=yes", "--threshold=20"]).arg(dir.path().join(UNITS[0]));
    let output = security.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
