//! `--cache`: what tools download and build is there for later runs of the same workspace, and for no other.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::process::Output;
use support::{Bench, benches, stderr, stdout};

const WRITE: &str =
    "mkdir -p $PIP_CACHE_DIR/deep && echo built > $PIP_CACHE_DIR/deep/one && chmod 500 $PIP_CACHE_DIR/deep";
const READ: &str = "cat $PIP_CACHE_DIR/deep/one 2>/dev/null || echo none";

/// Runs a script with flags.
fn run(bench: &Bench, flags: &[&str], script: &str) -> Output {
    bench.run([&["run"], flags, &["--shell", script]].concat())
}

/// Reads the cache of a run.
fn found(bench: &Bench, flags: &[&str]) -> String {
    let output = run(bench, &[&["--cache"], flags].concat(), READ);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).trim().to_owned()
}

/// Fills the cache by a run whose changes come.
fn fill(bench: &Bench) {
    let output = run(bench, &["--cache"], WRITE);
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    assert_eq!(found(bench, &[]), "built", "{}", bench.who());
}

#[test]
fn later_runs_of_the_same_workspace_find_what_was_built() {
    for bench in benches() {
        fill(&bench);
        // A command that fails keeps it, and a run without the flag has none.
        assert_eq!(run(&bench, &["--cache"], "echo x > made; exit 3").status.code(), Some(3));
        assert_eq!(found(&bench, &[]), "built", "{}", bench.who());
        assert_eq!(stdout(&run(&bench, &[], "echo ${PIP_CACHE_DIR-none}")), "none\n");
        assert_eq!(stdout(&run(&bench, &["--cache", "--env", "GOCACHE=/tmp/x"], "echo $GOCACHE")), "/tmp/x\n");
        // Nothing of it is in the workspace or among its changes.
        let changes = bench.json(["--cache", "--shell", WRITE.replace("one", "two").as_str()]).0["changes"].clone();
        assert_eq!(changes["state"], "none", "{changes}");
    }
}

#[test]
fn a_poisoned_cache_does_not_reach_another_project() {
    for bench in benches() {
        fill(&bench);
        let other = bench.base.path().join("other");
        fs::create_dir(&other).unwrap();
        bench.give(&other);
        let of_other = ["--workspace", other.to_str().unwrap()];
        assert_eq!(found(&bench, &of_other), "none", "{}", bench.who());
        // Also not one that takes the place of the project.
        fs::rename(&bench.workspace, bench.base.path().join("old")).unwrap();
        fs::rename(&other, &bench.workspace).unwrap();
        assert_eq!(found(&bench, &[]), "none", "{}", bench.who());
    }
}

#[test]
fn a_run_that_is_not_accepted_leaves_no_cache() {
    let protected = "mkdir -p .vscode && echo {} > .vscode/tasks.json && echo poison > $PIP_CACHE_DIR/poison";
    for bench in benches() {
        fill(&bench);
        let held = run(&bench, &["--cache"], protected);
        assert!(stderr(&held).contains("waiting for a decision"), "{}", stderr(&held));
        assert_eq!(found(&bench, &[]), "none", "{}: what was there before goes too", bench.who());
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
        fill(&bench);
        // A conflict.
        bench.write("f", "old");
        let edit = "sleep 0.6; echo mine > g && mv g f";
        let mut editor = bench.command("sh").args(["-c", edit]).spawn().unwrap();
        let conflict = run(&bench, &["--cache", "--changes", "commit"], "echo run > f; sleep 1.5");
        assert!(editor.wait().unwrap().success());
        assert_eq!(conflict.status.code(), Some(125), "{}", stderr(&conflict));
        assert_eq!(found(&bench, &[]), "none", "{}", bench.who());
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
        // A run that is reviewed or thrown away is shown none, so that it takes none along.
        fill(&bench);
        for how in ["review", "discard"] {
            assert_eq!(found(&bench, &["--changes", how]), "none", "{} {how}", bench.who());
            assert_eq!(found(&bench, &[]), "built", "{} {how}", bench.who());
        }
    }
}

#[test]
fn a_profile_keeps_the_cache_and_a_workspace_file_only_switches_it_off() {
    for bench in benches() {
        let directory = bench.write("../config/profiles/default.yaml", "extends: [default]\ncache: true\n");
        let config = directory.parent().unwrap().parent().unwrap().to_owned();
        let run = |script: &str| {
            let mut command = bench.nexus(["run", "--shell", script]);
            let output = command.env("NEXUS_CONFIG_DIR", &config).output().unwrap();
            (stdout(&output), stderr(&output))
        };
        assert_eq!(run(WRITE).1, "", "{}", bench.who());
        assert_eq!(run(READ).0, "built\n", "{}", bench.who());
        bench.write("nexus.yaml", "cache: false\n");
        assert_eq!(run(READ).0, "none\n", "{}", bench.who());
        bench.write("nexus.yaml", "cache: true\n");
        let alone = bench.run(["run", "--", "true"]);
        let why = "would keep the caches of build tools for later runs";
        assert!(stderr(&alone).contains("nexus.yaml:1:8"), "{why}: {}", stderr(&alone));
    }
}

#[test]
fn two_runs_at_once_do_not_share_a_cache() {
    for bench in benches() {
        fill(&bench);
        let mut first = bench.nexus(["run", "--cache", "--shell", "touch started; sleep 2"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(found(&bench, &[]), "none", "{}", bench.who());
        assert!(first.wait().unwrap().success());
        assert_eq!(found(&bench, &[]), "built", "{}", bench.who());
    }
}

#[test]
fn go_and_npm_keep_their_caches_where_they_are_pointed() {
    for bench in benches() {
        bench.write("package.json", "{\"private\": true}");
        let cache = run(
            &bench,
            &["--cache", "--allow", "a.invalid"],
            "npm config get cache; case $GOMODCACHE in */go/pkg/mod|/home/nexus/.project-cache/go-mod) echo go;; esac; \
             ls -d ${CARGO_HOME:-~/.cargo}/registry | sed 's,.*/[.]cargo/,,'",
        );
        assert_eq!(
            stdout(&cache),
            "/home/nexus/.project-cache/npm\ngo\nregistry\n",
            "{}: {}",
            bench.who(),
            stderr(&cache)
        );
        let explained = |how: &str| stdout(&bench.run(["explain", "--cache", "--changes", how, "--", "true"]));
        assert!(explained("commit").contains("write /home/nexus/.project-cache (caches of this workspace)"));
        assert!(!explained("discard").contains("(caches of this workspace)"), "{}", explained("discard"));
        for flag in [&["--disk", "1G"][..], &["--direct"], &["--detach"]] {
            assert_eq!(run(&bench, &[&["--cache"], flag].concat(), "true").status.code(), Some(2), "{flag:?}");
        }
    }
}

#[test]
fn the_homes_of_tools_have_inside_the_paths_that_they_have_outside() {
    for bench in benches() {
        bench.at_home("sdk/go1.25/bin/go", "#!/bin/sh\n");
        bench.at_home(".cargo/bin/cargo", "#!/bin/sh\n");
        bench.at_home(".cargo/registry/cache/x.crate", "crate\n");
        bench.at_home("go/pkg/mod/cache/m", "module\n");
        bench.at_home(".cargo/credentials.toml", "token = \"HUNTER2\"\n");
        let path = |bench: &Bench| format!("{0}/.cargo/bin:{0}/sdk/go1.25/bin:/usr/bin:/bin", bench.home.display());
        let run = |flags: &[&str], script: &str| {
            let words = [&["run"], flags, &["--shell", script]].concat();
            let output = bench.nexus(words).env("PATH", path(&bench)).output().unwrap();
            format!("{}{}", stdout(&output), stderr(&output))
        };
        let (cargo, go) = (bench.home.join(".cargo"), bench.home.join("go/pkg/mod"));
        let (cargo, go) = (cargo.display(), go.display());
        let names = "echo $CARGO_HOME $GOMODCACHE";
        let network = ["--allow", "a.invalid"];
        let cached = ["--allow", "a.invalid", "--cache"];
        for flags in [&[][..], &network, &["--cache"], &cached, &["--direct"], &["--changes", "discard"]] {
            assert_eq!(run(flags, names), format!("{cargo} {go}\n"), "{}: {flags:?}", bench.who());
        }
        // Without a network the downloads of the caller are there and cannot be written; the rest is private.
        let look = "mkdir -p $CARGO_HOME/bin && touch $CARGO_HOME/bin/x; cat $CARGO_HOME/registry/cache/x.crate $GOMODCACHE/cache/m; touch $CARGO_HOME/new && echo private";
        assert_eq!(run(&[], look), "crate\nmodule\nprivate\n", "{}", bench.who());
        for written in ["$CARGO_HOME/registry/x", "$GOMODCACHE/x"] {
            let said = run(&[], &format!("touch {written} 2>&1 | grep -c 'Read-only\\|Permission\\|No such'"));
            assert!(said.starts_with("1\n"), "{}: {written}: {said}", bench.who());
        }
        assert_eq!(run(&[], "cat $CARGO_HOME/credentials.toml 2>&1 | grep -c 'No such'"), "1\n", "{}", bench.who());
        // With one they are empty, and what is downloaded is kept by --cache alone.
        let fill = "mkdir -p $CARGO_HOME/registry && echo got > $CARGO_HOME/registry/y && echo got > $GOMODCACHE/y && \
                    ls $CARGO_HOME/registry $GOMODCACHE | grep -cv :";
        assert_eq!(run(&network, fill).lines().next(), Some("3"), "{}", bench.who());
        let left = "cat $CARGO_HOME/registry/y $GOMODCACHE/y 2>/dev/null | wc -l";
        assert_eq!(run(&network, left), "0\n", "{}", bench.who());
        run(&cached, fill);
        assert_eq!(run(&cached, left), "2\n", "{}", bench.who());
        assert_eq!(run(&[], left), "0\n", "{}", bench.who());
        let names: Vec<_> =
            ["registry/y", "new", "bin/x"].iter().map(|name| bench.home.join(".cargo").join(name)).collect();
        assert!(names.iter().all(|name| !name.exists()), "{}: something of the caller was written", bench.who());
        // What a person shows there counts, and a tool that has to write has its directory elsewhere then.
        let registry = bench.home.join(".cargo/registry").display().to_string();
        let shown = ["--ro", registry.as_str()];
        let read = "cat $CARGO_HOME/registry/cache/x.crate";
        assert_eq!(run(&shown, read), "crate\n", "{}", bench.who());
        assert_eq!(run(&[&shown[..], &cached].concat(), read), "crate\n", "{}", bench.who());
    }
}
