//! Makes and stores the receipt of a run that has ended.
//!
//! ```text
//!  Issuer::open ─▶ key and folder are there, or the run does not start
//!       │              the sandbox begins as a copy of this process: the key is looked at and not kept
//!  the run …
//!       ▼
//!  issue(&Issuer, Finished) ─▶ reads the key, signs, stores ─▶ Issued | Failure
//! ```

use super::files::FolderError;
use super::keys::{KeyError, KeyFile, KeyFolder};
use super::store::{Store, StoreError};
use crate::failure::Failure;
use crate::places::Places;
use nexus_model::Digest;
use nexus_model::plan::PlanDraft;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, Guarantee, Plan};
use nexus_policy::receipt::{
    Bounded, ChainPlace, Changes, Driver, Egress, EnvEntry, Exit, KeyId, Network as NetworkInForce, Nexus, Output,
    ProfileRef, Receipt, Request, SCHEMA, Sealed, Seed, Timing, seal,
};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is needed to issue a receipt, made sure of before the run.
#[derive(Debug)]
pub struct Issuer {
    key: KeyFile,
    store: Store,
    started_unix_ms: u64,
}

/// Everything that a receipt says about a run.
pub struct Finished<'a> {
    /// What the driver got.
    pub plan: &'a Plan,
    /// Names of variables that hold credentials and were passed on.
    pub env_secrets: &'a [ByteText],
    /// Paths that were shown because the operator opened them.
    pub opened_binds: &'a [ByteText],
    /// Sockets of the host that the command could connect to.
    pub allowed_sockets: &'a [ByteText],
    /// `commit`, `review`, `discard`, `ask` or `direct`.
    pub wanted_changes: &'a str,
    /// Until SIGTERM.
    pub timeout: Option<Duration>,
    /// Profiles that took part.
    pub profiles: Vec<ProfileRef>,
    /// The driver's name.
    pub driver: &'a str,
    /// What was held.
    pub guarantees: &'a [Guarantee],
    /// What was tried before the command started.
    pub proof: &'a [ProofItem],
    /// The network in force.
    pub network: NetworkInForce,
    /// What went over the network.
    pub egress: Option<Egress>,
    /// What became of the changes.
    pub changes: Changes,
    /// Reports that the receipt must outlive a power cut: the run left changes on the disk that do, too. A run without
    /// any waits for no disk.
    pub durable: bool,
    /// What the command printed.
    pub output: Output,
    /// How it ended.
    pub exit: Exit,
    /// From the beginning until the sandbox was about to be made.
    pub prepared: Duration,
    /// From the beginning until the command ran.
    pub spawned: Option<Duration>,
    /// From the beginning until now.
    pub duration: Duration,
}

/// A receipt that is stored.
#[derive(Debug)]
pub struct Issued {
    /// Where.
    pub path: PathBuf,
    /// Its file, and its hash.
    pub sealed: Sealed,
    /// Who signed it.
    pub key_id: KeyId,
    /// Why it has no place in the chain, if it has none.
    pub unchained: Option<String>,
}

impl Issuer {
    /// Makes sure of the key and of the place for receipts. Call it before the sandbox is made.
    pub fn open(places: &Places) -> Result<Self, Failure> {
        let key = KeyFolder::open(&places.state).and_then(|folder| folder.current()).map_err(|error| key(&error))?;
        let store = Store::open(&places.state).map_err(|error| folder(&error))?;
        Ok(Self { key, store, started_unix_ms: now_unix_ms() })
    }
}

/// Signs and stores the receipt of a run.
pub fn issue(issuer: &Issuer, finished: Finished<'_>) -> Result<Issued, Failure> {
    let seed = issuer.key.seed().map_err(|error| not_issued(&error.to_string()))?;
    let pair = seed.signer();
    let key_id = pair.public().id();
    let run = finished.plan.run_id;
    let durable = finished.durable;
    let mut receipt =
        document(finished, &seed, key_id.clone(), issuer.started_unix_ms).map_err(|why| not_issued(&why))?;
    let make = |place: Option<ChainPlace>| -> Result<Sealed, StoreError> {
        receipt.chain = place;
        seal(&receipt, &pair).map_err(|error| StoreError::Sign(error.to_string()))
    };
    let stored = issuer.store.append(run, durable, make).map_err(|error| not_issued(&error.to_string()))?;
    Ok(Issued { path: stored.path, sealed: stored.sealed, key_id, unchained: stored.unchained })
}

/// The document, still without its place.
fn document(finished: Finished<'_>, seed: &Seed, key_id: KeyId, started_unix_ms: u64) -> Result<Receipt, String> {
    let plan = finished.plan;
    let env: Vec<EnvEntry> = plan
        .env
        .iter()
        .map(|(name, value)| EnvEntry { name: name.clone(), tag: seed.tag(&name.0, &value.0) })
        .collect();
    let plan_hash = plan_hash(plan, &env);
    let request = Request {
        sandbox: plan.profile.name().to_owned(),
        argv: Bounded::whole(plan.argv.clone()),
        workspace: plan.workspace.source.clone(),
        cwd: plan.cwd.clone(),
        changes: finished.wanted_changes.to_owned(),
        env: Bounded::whole(env),
        binds: Bounded::whole(plan.binds.clone()),
        hidden: Bounded::whole(plan.hidden.clone()),
        limits: plan.limits.clone(),
        timeout_ms: finished.timeout.map(|timeout| timeout.as_millis() as u64),
        required: plan.required.iter().map(|guarantee| guarantee.name().to_owned()).collect(),
        allow_ptrace: plan.allow_ptrace,
        env_secrets: finished.env_secrets.to_vec(),
        opened_binds: finished.opened_binds.to_vec(),
        allowed_sockets: finished.allowed_sockets.to_vec(),
        network: Some(finished.network),
    };
    let no_hash = || "its hashes could not be made".to_owned();
    let micros = |duration: Duration| duration.as_micros() as u64;
    Ok(Receipt {
        schema: SCHEMA.to_owned(),
        run_id: plan.run_id,
        nexus: Nexus { version: env!("CARGO_PKG_VERSION").to_owned() },
        // Drivers are part of this program and have its version.
        driver: Driver { name: finished.driver.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        identity: if rustix::process::geteuid().is_root() { "root" } else { "user" }.to_owned(),
        spec_hash: Digest::of_json(&request).ok_or_else(no_hash)?,
        plan_hash: plan_hash.ok_or_else(no_hash)?,
        request: request.cut(),
        profiles: finished.profiles,
        guarantees: finished.guarantees.iter().map(|guarantee| guarantee.name().to_owned()).collect(),
        proof: finished.proof.to_vec(),
        egress: finished.egress,
        changes: finished.changes,
        output: finished.output,
        exit: finished.exit,
        timing: Timing {
            started_unix_ms,
            prepared_us: micros(finished.prepared),
            spawned_us: finished.spawned.map(micros),
            duration_us: micros(finished.duration),
        },
        chain: None,
        key_id,
    })
}

/// With tags instead of values: a hash of a short secret can be guessed.
fn plan_hash(plan: &Plan, env: &[EnvEntry]) -> Option<Digest> {
    let mut draft = PlanDraft::clone(plan);
    for ((_, value), entry) in draft.env.iter_mut().zip(env) {
        *value = ByteText::from(entry.tag.as_str());
    }
    Digest::of_json(&draft)
}

/// By the machine's clock; a clock before 1970 says 1970.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Advice for a key that cannot be used.
pub fn key(error: &KeyError) -> Failure {
    let hint = match error {
        KeyError::Folder(inner) => return folder(inner),
        KeyError::Open { .. } => {
            "somebody else may have read or written it: move it away, and the next run makes a new one (its .pub file stays, so that older receipts can be verified)"
        }
        KeyError::Damaged { .. } => "move it away, and the next run makes a new one",
        KeyError::Io { .. } => "look at the state directory's disk and permissions, or set NEXUS_STATE_DIR",
        KeyError::Busy => "try again",
    };
    Failure::refused("receipt_key", error.to_string(), hint)
}

/// Advice for a folder that cannot be used.
pub fn folder(error: &FolderError) -> Failure {
    let hint = match error {
        FolderError::Open { .. } => "if nobody else can have written there: chmod 700 it; else move it away",
        FolderError::Io { .. } => "look at the state directory's disk and permissions, or set NEXUS_STATE_DIR",
    };
    Failure::refused("receipt_key", error.to_string(), hint)
}

fn not_issued(why: &str) -> Failure {
    let message = format!("the run has no receipt: {why}");
    let hint = "the command ran and its changes are as told; look at the state directory's disk and permissions";
    Failure::refused("receipt", message, hint)
}
