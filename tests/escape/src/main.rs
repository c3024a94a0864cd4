//! `nexus-escape suite --nexus PATH` plays every case three times: without a sandbox (the probe must see the hole),
//! on a driver that isolates nothing (the suite must notice) and on the real driver, as root and as an ordinary user.

#[path = "../../support/free_user.rs"]
mod free_user;

use nexus_escape::{
    Attacker, Depth, Ground, Noticed, Options, Outcome, Plan, is_vector, leaky, part, play, play_confinement, report,
};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage:
  nexus-escape suite --nexus PATH [--as root|user:UID|both] [--driver real|leaky|none] [--only ID] [--inject STEP,...] [--json]
  nexus-escape walls --nexus PATH [--as root|user:UID|both] [--wall NAME] [--all]
  nexus-escape probe [--context FILE] ID[/CASE]...
  nexus-escape leaky [run FLAGS] -- COMMAND
  nexus-escape act PART MARKER SECONDS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let code = match arguments.first().map(String::as_str) {
        Some("probe" | "act") => part(&arguments, Ground::Anywhere),
        Some("leaky") => leaky::run(rest),
        Some("walls") => match confinement_plan(rest) {
            Ok((plan, only, all_rows)) => confinement(&plan, only.as_deref(), all_rows),
            Err(problem) => {
                eprintln!("{problem}\n{USAGE}");
                2
            }
        },
        Some("suite") => match plan(rest) {
            Ok((plan, json)) => suite(&plan, json),
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
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn suite(plan: &Plan, json: bool) -> i32 {
    let result = play(plan);
    match result.map(|outcome| (outcome.good(), print(&outcome, json))) {
        Ok((good, Ok(()))) => i32::from(!good),
        Ok((_, Err(error))) => complain(&error),
        Err(error) => complain(&error),
    }
}

/// `--all` and `--wall NAME` are of this command alone.
fn confinement_plan(arguments: &[String]) -> Result<(Plan, Option<String>, bool), String> {
    let (mut rest, mut only, mut all_rows) = (Vec::new(), None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--all" => all_rows = true,
            "--wall" => only = Some(words.next().ok_or("--wall needs a value")?.clone()),
            _ => rest.push(word.clone()),
        }
    }
    let (plan, _) = plan(&rest)?;
    Ok((plan, only, all_rows))
}

/// Prints each wall with the rows that noticed its loss.
fn confinement(plan: &Plan, only: Option<&str>, all_rows: bool) -> i32 {
    let found = match play_confinement(plan, only, all_rows) {
        Ok(found) => found,
        Err(error) => return complain(&error),
    };
    let mut failed = 0;
    for Noticed { entry, column, by, problems } in &found {
        let rows: Vec<String> = by.iter().map(|(id, name)| format!("{id}/{name}")).collect();
        let beside = if entry.beside.is_empty() { "-".to_owned() } else { entry.beside.join(",") };
        println!("{:<22} {:<22} {column:?}: {}", entry.wall, beside, rows.join(" "));
        for problem in problems {
            println!("{:<22} {:<22} {column:?}: FAIL: {problem}", entry.wall, beside);
        }
        failed += usize::from(!problems.is_empty() || by.is_empty());
    }
    println!("{} passed, {failed} failed, 0 skipped", found.len() - failed);
    i32::from(failed > 0 || found.is_empty())
}

fn print(outcome: &Outcome, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for row in &outcome.rows {
        writeln!(out, "{}", if json { report::json_line(row) } else { report::line(row) })?;
    }
    for note in &outcome.notes {
        eprintln!("nexus-escape: {note}");
    }
    let (passed, failed, skipped) = outcome.counts();
    if json {
        writeln!(out, "{}", serde_json::json!({ "passed": passed, "failed": failed, "skipped": skipped }))
    } else {
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
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

fn plan(arguments: &[String]) -> Result<(Plan, bool), String> {
    let root = nexus_escape::is_root();
    let program = std::env::current_exe().map_err(|error| format!("the suite's own path: {error}"))?;
    let mut plan = Plan {
        attacker: Attacker { program, words: Vec::new() },
        nexus: None,
        as_self: true,
        as_user: if root { Some(free_user::ordinary_user()?) } else { None },
        depth: Depth::Real,
        only: None,
        options: Options::default(),
        not_given: Vec::new(),
        stop: None,
    };
    let mut json = false;
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        if flag == "--json" {
            json = true;
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
            ("--only", id) if is_vector(id) => plan.only = Some(id.to_owned()),
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
    Ok((plan, json))
}
