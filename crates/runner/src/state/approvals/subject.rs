//! Exactly what an approval on this machine is for.

use super::error::ApprovalError;
use crate::net::network::RunNetwork;
use crate::plan::direct::Direct;
use crate::plan::resolve::ResolvedRun;
use crate::state::container::machine_id;
use nexus_model::approval::ApprovalKind;
use nexus_model::{ByteText, Digest, RunId};
use nexus_receipt::store::files;
use nexus_secrets::Request;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Largest file that a command names and that is part of what is approved, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Everything that an approval is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Kind of act that is approved.
    pub kind: ApprovalKind,
    /// The part that a person is shown and that the file keeps.
    pub shown: Value,
    /// The part that only the hash holds: the environment with its values.
    pub(super) hidden: Value,
}

impl Subject {
    /// Describes a run that was resolved: command, directory, environment, rights, files and host. `around` is what the
    /// caller adds: its ports and its standard input.
    pub fn of_command(run: &ResolvedRun, around: &Value) -> Result<Self, ApprovalError> {
        let plan = &run.plan;
        let state = &run.site.places.state;
        let binds: Vec<Value> = plan
            .binds
            .iter()
            .map(|bind| {
                // What Nexus made for this run lies in its state directory, at another path each time.
                let source = (!bind.source.as_path().starts_with(state)).then_some(&bind.source);
                json!({"target": bind.target, "source": source, "access": bind.access})
            })
            .collect();
        let (mut network, mut policy) = (None, None);
        if let Some(asked) = &run.network {
            let in_force = asked.for_receipt();
            let recorded = policy_of(asked)?;
            network = Some(json!({
                "mode": in_force.mode, "rules": in_force.rules, "upstream": in_force.upstream, "ask": in_force.ask,
                "methods": recorded["methods"], "budget": recorded["budget"],
            }));
            policy = Some(recorded);
        }
        let mut profiles: Vec<String> =
            run.profiles.iter().map(|profile| format!("{} {}", profile.name, profile.hash)).collect();
        profiles.sort();
        let mut shown = json!({
            "argv": plan.argv,
            "cwd": plan.cwd,
            "workspace": plan.workspace.source,
            "sandbox": plan.profile,
            "binds": binds,
            "hidden": plan.hidden,
            "network": network,
            "host_ports": plan.host_ports,
            "limits": plan.limits,
            "grace_ms": u64::try_from(run.grace.as_millis()).unwrap_or(u64::MAX),
            "max_output": run.max_output,
            "timeout_ms": run.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            "allow_ptrace": plan.allow_ptrace,
            "changes": if run.direct.is_some() { "direct" } else { run.changes.name() },
            "direct_git": run.direct.as_ref().is_some_and(Direct::opens_git),
            "protect": run.protect,
            "sockets": run.allowed_sockets,
            "secrets": run.env_secrets,
            "variables": plan.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "documents": profiles,
            "files": files_of(run)?,
            "around": around,
            "host": host(),
        });
        // Only where there is one: what was approved before images were known still is.
        if let Some(image) = &plan.image {
            shown["image"] = image.digest.clone().into();
        }
        let mut hidden = json!({"env": plan.env, "policy": policy});
        // Without secrets the subject is that of earlier versions.
        if !run.secrets.is_empty() {
            let named = |secret: &Request| json!({"name": secret.name, "provider": secret.reference.provider()});
            shown["secret_files"] = run.secrets.iter().map(named).collect();
            // A reference may have words that only the caller is to see.
            hidden["secret_files"] = run.secrets.iter().map(|secret| format!("{:?}", secret.reference)).collect();
        }
        Ok(Self { kind: ApprovalKind::Exec, shown, hidden })
    }

    /// Describes connections of one run to `target`, which is a host with its port, and the program for which alone they are. Another
    /// run has another subject, so that no answer outlives the run that it was given for.
    pub fn of_connection(run: RunId, target: &str, command: &[ByteText], workspace: &ByteText) -> Self {
        let shown = json!({
            "connect": target,
            "run": run,
            "argv": command,
            "workspace": workspace,
            "host": host(),
        });
        Self { kind: ApprovalKind::Egress, shown, hidden: Value::Null }
    }

    pub(super) fn digest(&self, salt: Digest) -> Result<Digest, ApprovalError> {
        let all = json!({"salt": salt, "shown": self.shown, "hidden": self.hidden});
        Digest::of_json(&all).ok_or_else(|| ApprovalError::Broken { path: PathBuf::new(), why: "no hash".to_owned() })
    }
}

/// Names this machine and the user of this process.
fn host() -> Value {
    json!({
        "machine": machine_id(),
        "name": rustix::system::uname().nodename().to_string_lossy(),
        "uid": rustix::process::geteuid().as_raw(),
    })
}

/// Returns the whole policy of a network without what differs from run to run: all that decides is part of what is approved.
fn policy_of(network: &RunNetwork) -> Result<Value, ApprovalError> {
    let broken =
        || ApprovalError::Broken { path: PathBuf::new(), why: "the network cannot be written down".to_owned() };
    let (_, mut policy) = network.policy.recorded().ok_or_else(broken)?;
    let fields = policy.as_object_mut().ok_or_else(broken)?;
    for of_this_run in ["generation", "own_addresses", "own_listeners"] {
        fields.remove(of_this_run);
    }
    fields.insert("upstream".to_owned(), json!(network.upstream.as_ref().map(nexus_egress::UpstreamProxy::identity)));
    // A time from now on is another one in each run.
    let ends = fields.remove("expires").is_some_and(|expires| !expires.is_null());
    fields.insert("ends".to_owned(), json!(ends));
    Ok(policy)
}

/// Returns the files of the workspace that the words of the command name, with their hashes: a script that is changed
/// after the answer is another script.
fn files_of(run: &ResolvedRun) -> Result<Vec<Value>, ApprovalError> {
    let workspace = run.plan.workspace.source.as_path();
    // The workspace may appear at another place inside.
    let inside = run.plan.workspace.target.as_path();
    let cwd = run.plan.cwd.as_path();
    let mut found = Vec::new();
    for word in &run.plan.argv {
        let named = cwd.join(word.as_path());
        let Ok(below) = named.strip_prefix(inside) else { continue };
        let Ok(path) = std::fs::canonicalize(workspace.join(below)) else { continue };
        if !path.starts_with(workspace) || !path.is_file() {
            continue;
        }
        let failed = |why: &dyn std::fmt::Display| ApprovalError::File { path: path.clone(), why: why.to_string() };
        let length = std::fs::metadata(&path).map_err(|error| failed(&error))?.len();
        if length > MAX_FILE {
            return Err(failed(&format!("it has more than {MAX_FILE} bytes")));
        }
        let digest = files::digest(&path).map_err(|error| failed(&error))?;
        found.push(json!({"path": ByteText::from(path.as_path()), "hash": digest.hash}));
    }
    Ok(found)
}
