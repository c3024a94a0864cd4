//! `nexus doctor`: what works here, which guarantees can be given, and the exact command for the rest.

#![forbid(unsafe_code)]

mod args;
pub mod attack;
mod commands;
mod trial;
mod verdict;

use nexus_caller::terminal::out;
use nexus_caller::{driver, failure, failures, host};
use nexus_driver::{Driver, ProbeReport};
use serde_json::json;
use trial::{Trial, trial};

pub use args::DoctorArgs;

/// Runs it and returns the exit code: 0 when commands can be run here.
pub fn command(args: &DoctorArgs) -> u8 {
    if args.attack {
        return attack::command(args);
    }
    let report = driver::local().probe();
    if args.commands {
        return match out::write_unless_closed(&mut std::io::stdout(), commands::script(&report).as_bytes()) {
            Ok(()) => 0,
            Err(error) => failures::print_failure(&failures::not_written("the answer", &error), false),
        };
    }
    let trial = trial();
    let works = report.missing.is_empty() && trial.is_ok();
    let text = if args.json { render_json(&report, &trial, works) } else { render_text(&report, &trial) };
    match out::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
        Ok(()) if works => 0,
        Ok(()) => nexus_model::exit::REFUSED,
        Err(error) => failures::print_failure(&failures::not_written("the answer", &error), false),
    }
}

fn render_json(report: &ProbeReport, trial: &Result<Trial, String>, works: bool) -> String {
    let trial = match trial {
        Ok(Trial { proof, except }) => json!({"passed": true, "proof": proof, "except": except}),
        Err(reason) => json!({"passed": false, "reason": reason}),
    };
    let document = json!({
        "schema": "nexus.doctor/1",
        "works": works,
        "landlock_abi": nexus_driver_namespace::landlock_abi(),
        "drivers": [report],
        "trial": trial,
    });
    format!("{document}\n")
}

fn render_text(report: &ProbeReport, trial: &Result<Trial, String>) -> String {
    let mut lines =
        vec![format!("driver {} (Landlock version {})", report.driver, nexus_driver_namespace::landlock_abi())];
    for missing in &report.missing {
        lines.push(format!("  MISSING  {}: {}", missing.what, missing.reason));
        lines.push(format!("           to get it: {}", missing.fix));
    }
    match trial {
        Ok(Trial { proof, except }) => {
            let checks = proof.as_array().map_or(0, Vec::len);
            lines.push(format!("  ok       a trial sandbox stood, {checks} checks of its confinement held"));
            lines.extend(except.iter().map(|reason| format!("  EXCEPT   in one directory: {reason}")));
        }
        Err(reason) => lines.push(format!("  FAILED   a trial sandbox: {reason}")),
    }
    lines.push("guarantees".to_owned());
    for finding in &report.findings {
        let status = if finding.given { "yes" } else { "no " };
        lines.push(format!("  {status}  {:<24} {}", finding.guarantee.name(), finding.reason));
        if let Some(fix) = &finding.fix {
            lines.push(format!("       to get it: {fix}"));
        }
    }
    let has_commands = report.missing.iter().any(|one| !one.commands.is_empty())
        || report.findings.iter().any(|one| !one.commands.is_empty());
    if has_commands {
        lines.push("nexus doctor --commands prints the commands for this machine, and runs none of them".to_owned());
    }
    lines.iter().map(|line| crate::failure::one_line(line) + "\n").collect()
}
