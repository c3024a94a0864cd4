//! Hostile probes against every driver.
//!
//! `nexus-escape suite --nexus PATH` plays every case three times: without a sandbox (the probe must see the hole),
//! on a driver that isolates nothing (the suite must notice) and on the real driver, as root and as an ordinary user.
//! See `cases` for the table, `probes` for the attacks that run inside, `scenes` for those played from the host.

mod act;
mod answer;
mod cases;
mod context;
mod host;
mod isolate;
mod leaky;
mod probes;
mod report;
mod scenes;
mod skips;
mod suite;
mod sys;

use answer::Seen;
use cases::How;
use context::Context;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use suite::{Depth, Plan};

const USAGE: &str = "usage:
  nexus-escape suite --nexus PATH [--as root|user:UID|both] [--driver real|leaky|none] [--only ID] [--inject STEP,...] [--json]
  nexus-escape probe [--context FILE] ID[/CASE]...
  nexus-escape leaky [run FLAGS] -- COMMAND
  nexus-escape act PART MARKER SECONDS";

fn main() -> ExitCode {
    // Before anything is opened, so that what is found was inherited.
    let leaked = context::inherited_descriptors();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let code = match arguments.first().map(String::as_str) {
        Some("probe") => probe(rest, leaked),
        Some("leaky") => leaky::run(rest),
        Some("act") => act::play(rest),
        Some("suite") => match plan(rest) {
            Ok(plan) => match suite::play(&plan) {
                Ok(good) => i32::from(!good),
                Err(error) => complain(&error),
            },
            Err(problem) => {
                eprintln!("{problem}\n{USAGE}");
                2
            }
        },
        _ => {
            eprintln!("{USAGE}");
            2
        }
    };
    ExitCode::from(code as u8)
}

fn complain(error: &dyn std::error::Error) -> i32 {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    eprintln!("nexus-escape: {text}");
    1
}

/// Runs the selected probes, each in a child of its own, and prints one line for each.
fn probe(arguments: &[String], leaked: Vec<i32>) -> i32 {
    let mut context = Context::default();
    let mut wanted = arguments;
    if let [flag, file, rest @ ..] = arguments
        && flag == "--context"
    {
        let read = std::fs::read(file).map_err(|error| error.to_string());
        match read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
            Ok(found) => context = found,
            Err(problem) => {
                eprintln!("nexus-escape: {file}: {problem}");
                return 2;
            }
        }
        wanted = rest;
    }
    context.leaked = leaked;
    let mut found = false;
    for case in cases::all() {
        let named = format!("{}/{}", case.id, case.name);
        let How::Probe(_, run) = case.how else { continue };
        if !wanted.iter().any(|word| word == case.id || *word == named) {
            continue;
        }
        found = true;
        let seen = Seen::new(case.id, case.name, isolate::observe(run, &context, Duration::from_secs(30)));
        let line = serde_json::to_string(&seen).unwrap_or_default();
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return 1;
        }
    }
    if found { 0 } else { 2 }
}

fn plan(arguments: &[String]) -> Result<Plan, String> {
    let root = sys::uid() == 0;
    let mut plan = Plan {
        nexus: None,
        as_self: true,
        as_user: root.then_some(12345),
        depth: Depth::Real,
        only: None,
        json: false,
        options: scenes::Options::default(),
    };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        if flag == "--json" {
            plan.json = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match (flag.as_str(), value.as_str()) {
            ("--nexus", path) => plan.nexus = Some(PathBuf::from(path)),
            ("--as", "both") => {}
            ("--as", "root") => plan.as_user = None,
            ("--as", user) => {
                let uid = user.strip_prefix("user:").and_then(|uid| uid.parse().ok());
                plan.as_user = Some(uid.ok_or_else(|| format!("--as {user}"))?);
                plan.as_self = false;
            }
            ("--driver", "real") => plan.depth = Depth::Real,
            ("--driver", "leaky") => plan.depth = Depth::Leaky,
            ("--driver", "none") => plan.depth = Depth::Unsandboxed,
            ("--only", id) if cases::REQUIRED.contains(&id) => plan.only = Some(id.to_owned()),
            ("--inject", steps) => plan.options.inject = steps.split(',').map(str::to_owned).collect(),
            _ => return Err(format!("unknown: {flag} {value}")),
        }
    }
    if plan.depth == Depth::Real && plan.nexus.is_none() {
        return Err("--nexus is needed for the real driver".to_owned());
    }
    if plan.as_user.is_some() && !root {
        return Err("only root can play another user".to_owned());
    }
    Ok(plan)
}
