//! `soak`: the long versions of tests that continuous integration runs bounded.
//!
//! Each is the same test with a larger number in its environment, built for release. Takes about an hour on two cores.

use crate::failure::Failure;
use crate::powerloss;
use crate::workspace::{Workspace, cargo};
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
        words: &["-p", "nexus-facility", "--features", "nexus-facility/inject", "--test", "random"],
    },
    Soak {
        name: "5,000 random diffs through git apply",
        variable: ("NEXUS_SOAK_CASES", "5000"),
        words: &["-p", "nexus-facility", "--features", "nexus-facility/inject", "--test", "diff"],
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
        name: "200 detached sandboxes at once and 1,000 clients killed at random, for root and for a user",
        variable: ("NEXUS_SOAK_ATTACHES", "1000"),
        words: &["-p", "nexus-cli", "--test", "sessions", "many_sandboxes"],
    },
];

/// Runs all of them, also when one fails.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for soak in SOAKS {
        println!("soak: {}", soak.name);
        let began = Instant::now();
        let (name, value) = soak.variable;
        let status = Command::new(cargo())
            .args(["test", "--release"])
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
    if let Err(failure) = by_commands(workspace) {
        eprintln!("{failure}");
        failed.push("the power goes in the middle of commits");
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("failed: {}", failed.join("; ")), "the seed above repeats it"))
}

/// The long versions of this program's own commands, against the release build of `nexus`.
fn by_commands(workspace: &Workspace) -> Result<(), Failure> {
    let built = Command::new(cargo())
        .args(["build", "--release", "-p", "nexus-cli"])
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), "look at PATH"))?;
    if !built.success() {
        return Err(Failure::new("the release build of nexus failed", "fix what the compiler names"));
    }
    powerloss::long(workspace, &workspace.target.join("release/nexus"))
}
