//! A trial sandbox: one that started says more than a probe.

use crate::failure::Failure;
use nexus_driver::ProbeReport;
use std::process::Command;

/// Refuses where no sandbox stands: there is nothing to attack then.
pub fn ready(report: &ProbeReport) -> Result<(), Failure> {
    if let Some(missing) = report.missing.first() {
        let message = format!("no sandbox can be made here: {}: {}", missing.what, missing.reason);
        return Err(Failure::refused("attack", message, missing.fix.clone()));
    }
    let hint = "nexus doctor says what this machine lacks";
    trial().map(drop).map_err(|reason| Failure::refused("attack", format!("a trial sandbox failed: {reason}"), hint))
}

/// Result of a trial sandbox.
pub struct Trial {
    /// The proof of the sandbox.
    pub proof: serde_json::Value,
    /// The reason why no sandbox started below the directory for temporary files, when one started elsewhere.
    pub except: Option<String>,
}

/// Starts a sandbox for real, in a directory of its own: what a probe says counts less than one that started.
///
/// A sandbox starts or not by the file system of the workspace, too (tmpfs takes no id-mapped mounts before
/// Linux 6.3). So if the directory for temporary files will not do, the parent of the state directory is tried.
pub fn trial() -> Result<Trial, String> {
    let first = match trial_below(&std::env::temp_dir()) {
        Ok(proof) => return Ok(Trial { proof, except: None }),
        Err(reason) => reason,
    };
    let other = crate::host::state_dir().ok().and_then(|places| places.state.parent().map(std::path::Path::to_owned));
    match other.filter(|directory| directory.is_dir()).map(|directory| trial_below(&directory)) {
        Some(Ok(proof)) => Ok(Trial { proof, except: Some(first) }),
        Some(Err(_)) | None => Err(first),
    }
}

fn trial_below(directory: &std::path::Path) -> Result<serde_json::Value, String> {
    let scratch = directory.join(format!("nexus-doctor-{}", nexus_model::RunId::new()));
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
