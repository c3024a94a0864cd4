//! Variables of the caller that hold credentials are passed on only by the flag that says so.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::process::{Command, Output};
use support::{Bench, benches, stderr, stdout};

const VALUE: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";

fn with_token(mut command: Command) -> Output {
    command.env("GITHUB_TOKEN", VALUE).env("RELEASE", VALUE).output().unwrap()
}

#[track_caller]
fn refused(bench: &Bench, output: &Output, name: &str) {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{}: {told}{}", bench.who(), stdout(output));
    assert!(told.contains(&format!("Write --env-secret {name}")), "{}: {told}", bench.who());
    assert!(!told.contains(VALUE), "{}: a message holds the value: {told}", bench.who());
}

#[test]
fn a_credential_needs_the_flag_that_names_it() {
    for bench in benches() {
        for name in ["GITHUB_TOKEN", "RELEASE"] {
            refused(&bench, &with_token(bench.nexus(["run", "--env", name, "--", "touch", "ran"])), name);
            refused(&bench, &with_token(bench.nexus(["explain", "--env", name, "--", "true"])), name);
            assert!(!bench.workspace.join("ran").exists());
            let given = with_token(bench.nexus(["run", "--env-secret", name, "--", "printenv", name]));
            assert_eq!(stdout(&given), format!("{VALUE}\n"), "{}: {}", bench.who(), stderr(&given));
        }
        // Not there: nothing is passed on, and nothing refused.
        assert!(bench.run(["run", "--env", "GITHUB_TOKEN", "--", "true"]).status.success());
        // Written by the caller on the command line.
        assert!(bench.run(["run", "--env", &format!("GITHUB_TOKEN={VALUE}"), "--", "true"]).status.success());
        assert_eq!(bench.run(["run", "--env-secret", "A=b", "--", "true"]).status.code(), Some(2));
    }
}

#[test]
fn a_profile_passes_no_credential_on_by_itself() {
    for bench in benches() {
        let folder = bench.home.join(".config/nexus/profiles");
        assert!(bench.command("mkdir").arg("-p").arg(&folder).status().unwrap().success());
        fs::write(folder.join("ci.yaml"), "env: {pass: [GITHUB_TOKEN]}\n").unwrap();
        bench.give(&folder.join("ci.yaml"));
        let output = with_token(bench.nexus(["run", "--profile", "ci", "--", "true"]));
        refused(&bench, &output, "GITHUB_TOKEN");
        assert!(stderr(&output).contains("ci.yaml:1:14"), "{}", stderr(&output));
        let words = ["run", "--profile", "ci", "--env-secret", "GITHUB_TOKEN", "--", "printenv", "GITHUB_TOKEN"];
        assert_eq!(stdout(&with_token(bench.nexus(words))), format!("{VALUE}\n"));
    }
}

#[test]
fn the_receipt_names_the_secrets_and_holds_no_value() {
    for bench in benches() {
        let copy = bench.home.join("receipt");
        let path = copy.to_str().unwrap();
        let words = ["run", "--env-secret", "GITHUB_TOKEN", "--env", "PATH", "--receipt", path, "--", "true"];
        assert!(with_token(bench.nexus(words)).status.success());
        let shown = stdout(&bench.run(["receipt", "show", path]));
        assert!(shown.lines().any(|line| line.starts_with("secrets") && line.contains("GITHUB_TOKEN")), "{shown}");
        let json = stdout(&bench.run(["receipt", "show", "--json", path]));
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["request"]["env_secrets"], serde_json::json!([{"text": "GITHUB_TOKEN"}]), "{json}");
        assert!(!json.contains(VALUE));
    }
}

#[test]
fn one_version_may_only_warn_about_credentials() {
    for bench in benches() {
        let mut command = bench.nexus(["run", "--env", "GITHUB_TOKEN", "--", "printenv", "GITHUB_TOKEN"]);
        command.env("NEXUS_ENV_SECRET", "warn");
        let output = with_token(command);
        assert_eq!(stdout(&output), format!("{VALUE}\n"), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("--env-secret GITHUB_TOKEN"), "{}", stderr(&output));
        let mut command = bench.nexus(["run", "--env", "GITHUB_TOKEN", "--", "true"]);
        command.env("NEXUS_ENV_SECRET", "ok");
        refused(&bench, &with_token(command), "GITHUB_TOKEN");
    }
}

#[test]
fn exec_passes_a_credential_on_only_by_its_flag() {
    for bench in benches() {
        let started = bench.run(["run", "--detach", "--name", "held", "--changes", "discard", "--", "sleep", "60"]);
        assert!(started.status.success(), "{}", stderr(&started));
        let exec = |flags: &[&str]| {
            with_token(bench.nexus([&["exec"][..], flags, &["held", "--", "printenv", "GITHUB_TOKEN"]].concat()))
        };
        refused(&bench, &exec(&["--env", "GITHUB_TOKEN"]), "GITHUB_TOKEN");
        assert_eq!(stdout(&exec(&["--env-secret", "GITHUB_TOKEN"])), format!("{VALUE}\n"));
        bench.run(["rm", "-f", "held"]);
    }
}

/// Runs with all reports on, and returns what was reported.
fn log_of(bench: &Bench, words: &[&str]) -> String {
    let mut command = bench.nexus(words);
    command.env("NEXUS_LOG", "trace");
    stderr(&with_token(command))
}

#[test]
fn a_log_of_everything_holds_no_value_of_the_caller() {
    for bench in benches() {
        bench.write("file", VALUE);
        let argument =
            format!("printenv GITHUB_TOKEN; cat file; echo {VALUE} > new; curl 'http://web.test/?key={VALUE}'");
        let (on_line, url) =
            (format!("KEY={VALUE}"), format!("http_proxy=http://user:{VALUE}@127.0.0.1:1/?key={VALUE}"));
        let words = ["run", "--env-secret", "GITHUB_TOKEN", "--env", &on_line, "--env", &url];
        let network = ["--net", "allowlist", "--allow", "web.test:80"];
        for more in [&[][..], &network, &["--direct"], &["--changes", "discard"]] {
            let log = log_of(&bench, &[&words, more, &["--shell", &argument]].concat());
            // The reports of this program alone: what the command prints goes the same way.
            let reports: Vec<&str> = log.lines().filter(|line| line.contains("DEBUG nexus")).collect();
            for text in ["the run is prepared", "a sandbox was cloned", "the sandbox ended", "the changes are settled"]
            {
                assert!(reports.iter().any(|line| line.contains(text)), "{} {more:?}: {text}: {log}", bench.who());
            }
            assert!(!log.contains(VALUE), "{} {more:?}: {log}", bench.who());
        }
        // A run that fails after the plan was made reports its code, and nothing of the plan.
        let log = log_of(&bench, &[&words[..], &["--", VALUE]].concat());
        assert!(log.contains("DEBUG nexus"), "{log}");
        let reports = log.lines().filter(|line| line.contains("DEBUG nexus"));
        assert!(reports.into_iter().all(|line| !line.contains(VALUE)), "{log}");
    }
}

#[test]
fn a_log_is_off_by_default_and_a_wrong_filter_is_refused() {
    for bench in benches() {
        assert_eq!(stderr(&bench.run(["run", "--", "true"])), "", "{}", bench.who());
        for text in ["loud", "tokio=trace"] {
            let mut command = bench.nexus(["run", "--", "touch", "ran"]);
            let output = command.env("NEXUS_LOG", text).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
            assert!(stderr(&output).contains("NEXUS_LOG"), "{}", stderr(&output));
            assert!(!bench.workspace.join("ran").exists());
        }
    }
}
