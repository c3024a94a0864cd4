//! `nexus doctor`: what works here, which guarantees can be given, and the exact command for the rest.

pub mod attack;
mod commands;
mod verdict;

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::run;
use nexus_driver::{Driver, ProbeReport};
use serde_json::json;
use std::process::Command;

/// Runs it and returns the exit code: 0 when commands can be run here.
pub fn command(args: &DoctorArgs) -> u8 {
    if args.attack {
        return attack::command(args);
    }
    let report = run::driver().probe();
    if args.commands {
        return match run::write_unless_closed(&mut std::io::stdout(), commands::script(&report).as_bytes()) {
            Ok(()) => 0,
            Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
        };
    }
    let trial = trial();
    let works = report.missing.is_empty() && trial.is_ok();
    let text = if args.json { machine(&report, &trial, works) } else { people(&report, &trial) };
    match run::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
        Ok(()) if works => 0,
        Ok(()) => nexus_model::exit::REFUSED,
        Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
    }
}

/// Refuses where no sandbox stands: there is nothing to attack then.
fn ready(report: &ProbeReport) -> Result<(), Failure> {
    if let Some(missing) = report.missing.first() {
        let message = format!("no sandbox can be made here: {}: {}", missing.what, missing.reason);
        return Err(Failure::refused("attack", message, missing.fix.clone()));
    }
    let hint = "nexus doctor says what this machine lacks";
    trial().map(drop).map_err(|reason| Failure::refused("attack", format!("a trial sandbox failed: {reason}"), hint))
}

/// Result of a trial sandbox.
struct Trial {
    proof: serde_json::Value,
    /// The reason why no sandbox started below the directory for temporary files, when one started elsewhere.
    except: Option<String>,
}

/// Starts a sandbox for real, in a directory of its own: what a probe says counts less than one that started.
///
/// A sandbox starts or not by the file system of the workspace, too (tmpfs takes no id-mapped mounts before
/// Linux 6.3). So if the directory for temporary files will not do, the parent of the state directory is tried.
fn trial() -> Result<Trial, String> {
    let first = match trial_below(&std::env::temp_dir()) {
        Ok(proof) => return Ok(Trial { proof, except: None }),
        Err(reason) => reason,
    };
    let other = crate::host::state_dir().ok().and_then(|places| places.state.parent().map(std::path::Path::to_owned));
    match other.filter(|folder| folder.is_dir()).map(|folder| trial_below(&folder)) {
        Some(Ok(proof)) => Ok(Trial { proof, except: Some(first) }),
        Some(Err(_)) | None => Err(first),
    }
}

fn trial_below(folder: &std::path::Path) -> Result<serde_json::Value, String> {
    let scratch = folder.join(format!("nexus-doctor-{}", nexus_model::RunId::new()));
    std::fs::create_dir(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let result = trial_in(&scratch);
    let removed = std::fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()));
    result.and_then(|value| removed.map(|()| value))
}

fn trial_in(scratch: &std::path::Path) -> Result<serde_json::Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["run", "--json", "--changes", "discard", "--workspace"])
        .arg(scratch)
        .args(["--", "/bin/true"])
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let document: serde_json::Value = serde_json::from_str(&text)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("nothing was said").to_owned())?;
    match (output.status.success(), document.pointer("/error/message").and_then(|message| message.as_str())) {
        (true, _) => Ok(document.pointer("/sandbox/proof").cloned().unwrap_or_default()),
        (false, Some(message)) => Err(message.to_owned()),
        (false, None) => Err(format!("exit {:?}", output.status.code())),
    }
}

fn machine(report: &ProbeReport, trial: &Result<Trial, String>, works: bool) -> String {
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

fn people(report: &ProbeReport, trial: &Result<Trial, String>) -> String {
    let mut lines =
        vec![format!("driver {} (Landlock version {})", report.driver, nexus_driver_namespace::landlock_abi())];
    for missing in &report.missing {
        lines.push(format!("  MISSING  {}: {}", missing.what, missing.reason));
        lines.push(format!("           to get it: {}", missing.fix));
    }
    match trial {
        Ok(Trial { proof, except }) => {
            let checks = proof.as_array().map_or(0, Vec::len);
            lines.push(format!("  ok       a trial sandbox stood, {checks} checks of its walls held"));
            lines.extend(except.iter().map(|reason| format!("  EXCEPT   in one folder: {reason}")));
        }
        Err(reason) => lines.push(format!("  FAILED   a trial sandbox: {reason}")),
    }
    lines.push("guarantees".to_owned());
    for finding in &report.findings {
        let mark = if finding.given { "yes" } else { "no " };
        lines.push(format!("  {mark}  {:<24} {}", finding.guarantee.name(), finding.reason));
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
