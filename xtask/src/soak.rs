//! `soak`: the long versions of tests that continuous integration runs bounded.
//!
//! Each is the same test with a larger number in its environment, built with the profile `soak` (for release, with what the
//! feature `inject` asks for); the commands at the end play the release build of `nexus`. Takes some hours on two cores, most of them for the faults.

use crate::failure::Failure;
use crate::faults;
use crate::fuzz;
use crate::packages;
use crate::powerloss;
use crate::release;
use crate::workspace::{Workspace, cargo};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

struct Soak {
    name: &'static str,
    variable: (&'static str, &'static str),
    words: &'static [&'static str],
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "20,000 random trees, 10,000 for each kind of layer",
        variable: ("NEXUS_SOAK_CASES", "10000"),
        words: &["-p", "nexus-layer", "--features", "nexus-layer/inject", "--test", "random"],
    },
    Soak {
        name: "10,000 schedules of a hostile process during commits",
        variable: ("NEXUS_SOAK_SCHEDULES", "10000"),
        words: &["-p", "nexus-layer", "--features", "nexus-layer/inject", "--test", "model"],
    },
    Soak {
        name: "5,000 random diffs through git apply",
        variable: ("NEXUS_SOAK_CASES", "5000"),
        words: &["-p", "nexus-layer", "--features", "nexus-layer/inject", "--test", "diff"],
    },
    Soak {
        name: "200,000 random network policies and destinations for each property of the decision and the parsers",
        variable: ("NEXUS_SOAK_CASES", "200000"),
        words: &["-p", "nexus-policy", "--test", "properties"],
    },
    Soak {
        name: "500 kills of runs and 500 of accepts, for root and for a user",
        variable: ("NEXUS_SOAK_KILLS", "500"),
        words: &["-p", "nexus-cli", "--features", "nexus-cli/inject", "--test", "leftovers", "killed"],
    },
    Soak {
        name: "5,000 idle tunnels and 500 slow clients",
        variable: ("NEXUS_SOAK_TUNNELS", "5000"),
        words: &["-p", "nexus-egress", "--test", "soak"],
    },
    Soak {
        name: "10,000 connections by each way in, where 8,192 fit",
        variable: ("NEXUS_SOAK_CLIENTS", "10000"),
        words: &["-p", "nexus-egress", "--test", "bound"],
    },
    Soak {
        name: "every hostile state with every end of a run, in the foreground and detached, for root and for a user",
        variable: ("NEXUS_SOAK_HOLD", "1"),
        words: &["-p", "nexus-cli", "--test", "hold"],
    },
    Soak {
        name: "300 sandboxes of one ordinary user at one time",
        variable: ("NEXUS_CROWD", "300"),
        words: &["-p", "nexus-cli", "--test", "crowd"],
    },
    Soak {
        name: "all projects of the newcomer's table, and the time of their second runs",
        variable: ("NEXUS_SOAK_PROJECTS", "all"),
        words: &["-p", "nexus-cli", "--test", "projects"],
    },
    Soak {
        name: "the suites of all packages, each as root and as a user",
        variable: ("NEXUS_SOAK_SUITES", "1"),
        words: &["-p", "nexus-cli", "--test", "suites"],
    },
    Soak {
        name: "200 detached sandboxes at once and 1,000 clients killed at random, for root and for a user",
        variable: ("NEXUS_SOAK_ATTACHES", "1000"),
        words: &["-p", "nexus-cli", "--test", "sessions", "many_sandboxes"],
    },
    Soak {
        name: "500 directives on three territories, of which one is killed",
        variable: ("NEXUS_SOAK_DIRECTIVES", "500"),
        words: &["-p", "nexus-cli", "--test", "fleet_crowd"],
    },
    Soak {
        name: "500 directives on two control planes over TLS, of which one is killed, and three territories, one behind a bad network",
        variable: ("NEXUS_SOAK_DIRECTIVES", "500"),
        words: &["-p", "nexus-cli", "--test", "fleet_replicas"],
    },
    Soak {
        name: "the plans of a claim over 1,000,000 stored directives and 1,000 territories",
        variable: ("NEXUS_SOAK_STORED", "1000000"),
        words: &["-p", "nexus-mothership", "--lib", "the_cost_of_a_claim"],
    },
    Soak {
        name: "ten minutes of faults on a control plane and its daemons, and the invariants of a fleet",
        variable: ("NEXUS_SOAK_SECONDS", "600"),
        words: &["-p", "nexus-cli", "--features", "nexus-cli/inject", "--test", "fleet_history"],
    },
    Soak {
        name: "200 examples of schemathesis for each call of both APIs",
        variable: ("NEXUS_SOAK_CASES", "200"),
        words: &["-p", "nexus-mothership", "--test", "schemathesis"],
    },
];

/// A command of this program in its long version, played on a program that was built for release.
type Long = fn(&Workspace, &Path) -> Result<(), Failure>;

const COMMANDS: &[(&str, Long)] = &[
    ("2,000 images of disks after a power loss in a commit", powerloss::long),
    ("every system call of a commit fails in every way", faults::long),
    ("every row of the escape suite with each wall left out", left_out),
    ("the readers of hostile bytes under libFuzzer, five minutes each", fuzz_long),
];

/// Runs all of them, also when one fails.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    packages::ensure_for_projects()?;
    let mut failed = Vec::new();
    for soak in SOAKS {
        println!("soak: {}", soak.name);
        let began = Instant::now();
        let (name, value) = soak.variable;
        let status = Command::new(cargo())
            .args(["test", "--profile", "soak"])
            .args(soak.words)
            .args(["--", "--nocapture"])
            .env(name, value)
            .current_dir(&workspace.root)
            .status()
            .map_err(|error| Failure::new(format!("cargo did not start: {error}"), "look at PATH"))?;
        let word = if status.success() { "ok" } else { "FAILED" };
        println!("soak: {}: {word} after {:.0} s", soak.name, began.elapsed().as_secs_f64());
        if !status.success() {
            failed.push(soak.name);
        }
    }
    let program = workspace.target.join("release/nexus");
    for (name, command) in COMMANDS {
        println!("soak: {name}");
        if let Err(failure) = build(workspace).and_then(|()| command(workspace, &program)) {
            eprintln!("{failure}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("failed: {}", failed.join("; ")), "the seed above repeats it"))
}

/// Plays all rows with each wall left out, on a test build: a release build leaves no wall out.
fn left_out(workspace: &Workspace, _: &Path) -> Result<(), Failure> {
    let advice = "play one again: target/debug/nexus-escape walls --nexus target/debug/nexus --all --wall NAME";
    let failed = |error: std::io::Error| Failure::new(format!("a program did not start: {error}"), advice);
    let mut build = Command::new(cargo());
    build.args(["build", "-p", "nexus-cli", "-p", "nexus-escape", "--features", "nexus-cli/inject"]);
    let built = build.current_dir(&workspace.root).status().map_err(failed)?;
    let place = workspace.target.join("debug");
    let mut play = Command::new(place.join("nexus-escape"));
    play.args(["walls", "--all", "--nexus"]).arg(place.join("nexus")).current_dir(&workspace.root);
    if built.success() && play.status().map_err(failed)?.success() {
        return Ok(());
    }
    Err(Failure::new("a wall was left out and the rows of its table did not notice", advice))
}

/// Runs every fuzz target for longer than `cargo xtask fuzz` does; what it grew before is where it goes on.
fn fuzz_long(workspace: &Workspace, _: &Path) -> Result<(), Failure> {
    fuzz::run(workspace, &["--seconds".to_owned(), "300".to_owned()])
}

/// Builds the program that the commands play.
fn build(workspace: &Workspace) -> Result<(), Failure> {
    let built = Command::new(cargo())
        .args(["build", "--release", "-p", "nexus-cli"])
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), "look at PATH"))?;
    if built.success() {
        return release::check(&workspace.target.join("release/nexus"));
    }
    Err(Failure::new("the release build of nexus failed", "fix what the compiler names"))
}
