//! Issues the receipt of a run, which states the same as its report.

use crate::net::network::RunNetwork;
use crate::plan::resolve::ResolvedRun;
use crate::run::error::ReceiptError;
use crate::run::report::RunReport;
use crate::settle::settled::{ChangesState, Settled};
use crate::state::directory::StateDir;
use nexus_model::canonical::Member;
use nexus_model::{ByteText, Digest, ExitStatus};
use nexus_policy::profile::ProfileName;
use nexus_receipt::{
    Exit, Issued, Issuer, Maker, Network as NetworkInForce, OpenError, Output, ProfileRef, Secret, Statement,
};
use serde::Serialize;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// Opens the issuer of receipts of this state directory, so that it is known before the sandbox is made that the run can
/// have a receipt.
pub fn open_issuer(places: &StateDir) -> Result<Issuer, OpenError> {
    let maker = Maker {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        identity: if rustix::process::geteuid().is_root() { "root" } else { "user" }.to_owned(),
    };
    // A clock before 1970 says 1970.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Issuer::open(&places.state, maker, now)
}

/// Issues the receipt of a run.
pub fn issue(issuer: &Issuer, run: &ResolvedRun, report: &RunReport, output: Output) -> Result<Issued, ReceiptError> {
    let signal = match report.status {
        Some(ExitStatus::Signal(signal)) => Some(signal),
        _ => None,
    };
    let egress = report.network.as_ref().map(|ended| ended.receipt().ok_or(ReceiptError::NetworkHash)).transpose()?;
    let provided = |secret: &nexus_secrets::Request| Secret {
        name: secret.name.clone(),
        provider: secret.reference.provider().to_owned(),
    };
    let secrets: Vec<_> = run.secrets.iter().map(provided).collect();
    let finished = Statement {
        plan: &run.plan,
        env_secrets: &run.env_secrets,
        secrets: &secrets,
        opened_binds: &run.opened_binds,
        auto_binds: &run.auto_binds,
        allowed_sockets: &run.allowed_sockets,
        wanted_changes: match (&report.checkpoint, &run.direct) {
            (Some(_), _) => "live",
            (None, Some(_)) => "direct",
            (None, None) => run.changes.name(),
        },
        timeout: run.timeout,
        profiles: run.profiles.iter().map(profile_ref).collect(),
        driver: &report.driver,
        guarantees: &report.guarantees,
        proof: &report.proof,
        network: run.network.as_ref().map_or_else(NetworkInForce::none, RunNetwork::for_receipt),
        egress,
        changes: nexus_receipt::Changes { checkpoint: report.checkpoint.clone(), ..changes(&report.settled)? },
        durable: !matches!(report.settled.state, ChangesState::None | ChangesState::Discarded),
        output,
        exit: Exit { code: report.exit, signal, reason: word(&report.reason) },
        prepared: report.prepared,
        spawned: report.spawned,
        duration: report.duration,
    };
    nexus_receipt::issue(issuer, finished).map_err(ReceiptError::Issue)
}

fn changes(settled: &Settled) -> Result<nexus_receipt::Changes, ReceiptError> {
    let Settled { state, changes, parked, conflicts, .. } = settled;
    let (added, modified, deleted) = changes.counts();
    Ok(nexus_receipt::Changes {
        state: word(state),
        added: added as u64,
        modified: modified as u64,
        deleted: deleted as u64,
        parked: parked.len() as u64,
        conflicts: conflicts.len() as u64,
        hash: Digest::of_members(vec![
            ("state", Member::Value(json!(state))),
            ("changes", elements(&changes.changes)),
            ("parked", elements(parked)),
            ("conflicts", elements(conflicts)),
        ])
        .ok_or(ReceiptError::ChangesHash)?,
        checkpoint: None,
    })
}

/// Returns the elements of a list, one by one, for the hash of the changes.
fn elements<T: Serialize>(list: &[T]) -> Member<'_> {
    Member::List(Box::new(list.iter().map(serde_json::to_value)))
}

/// Returns the profile of the run in the form of a receipt.
fn profile_ref(profile: &ProfileName) -> ProfileRef {
    ProfileRef { name: profile.name.clone(), source: ByteText::from(profile.source.as_str()), hash: profile.hash }
}

/// Returns the word that stands for a value in JSON.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        // Only for types that are not words.
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}
