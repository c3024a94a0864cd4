//! Makes and stores the receipt of a run that has ended.
//!
//! ```text
//!  Issuer::open ─▶ key and directory are there, or the run does not start
//!       │              the sandbox begins as a copy of this process: the key is looked at and not kept
//!  the run …
//!       ▼
//!  issue(&Issuer, Statement) ─▶ reads the key, signs, stores ─▶ Issued | IssueError
//! ```

use crate::form::{
    AutoBind, Bounded, ChainPlace, Changes, Driver, Egress, EnvEntry, Exit, Network as NetworkInForce, Nexus, Output,
    ProfileRef, Receipt, Request, SCHEMA, Sealed, Secret, Timing, seal,
};
use crate::keys::{KeyId, Seed};
use crate::store::{DirectoryError, KeyDirectory, KeyError, KeyFile, Store, StoreError};
use nexus_model::plan::PlanDraft;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, Digest, Guarantee, Plan};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything that is needed to issue a receipt, opened before the run.
#[derive(Debug)]
pub struct Issuer {
    key: KeyFile,
    store: Store,
    maker: Maker,
    started_unix_ms: u64,
}

/// The program and the machine that a receipt names as its maker.
#[derive(Debug, Clone)]
pub struct Maker {
    /// The version of the program. Drivers are part of the program and have the same.
    pub version: String,
    /// The release of the kernel, as uname(2) gives it.
    pub kernel: String,
    /// `root` or `user`: the identity that called the program.
    pub identity: String,
}

/// A run does not start, because it could not have a receipt.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The directory for receipts cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl OpenError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Key(inner) => inner.code(),
            Self::Directory(inner) => inner.code(),
        }
    }
}

/// Reason why a run that has ended has no receipt.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The key cannot be read any more.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The plan or the request cannot be written as JSON.
    #[error("its hashes could not be made")]
    Hash,
    /// The receipt was not stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IssueError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Key(_) | Self::Hash | Self::Store(_) => "receipt",
        }
    }
}

/// Everything that a receipt says about a run.
pub struct Statement<'a> {
    /// The plan that the driver got.
    pub plan: &'a Plan,
    /// Names of variables that hold credentials and were passed on.
    pub env_secrets: &'a [ByteText],
    /// Secrets that the command got as files.
    pub secrets: &'a [Secret],
    /// Paths that were shown because the operator opened them.
    pub opened_binds: &'a [ByteText],
    /// Paths that were shown because the caller's PATH or environment led to them.
    pub auto_binds: &'a [AutoBind],
    /// Sockets of the host that the command could connect to.
    pub allowed_sockets: &'a [ByteText],
    /// `commit`, `review`, `discard`, `ask`, `direct` or `live`.
    pub wanted_changes: &'a str,
    /// The time until SIGTERM.
    pub timeout: Option<Duration>,
    /// Profiles that took part.
    pub profiles: Vec<ProfileRef>,
    /// The driver's name.
    pub driver: &'a str,
    /// The guarantees that were held.
    pub guarantees: &'a [Guarantee],
    /// The attempts that were made before the command started.
    pub proof: &'a [ProofItem],
    /// The network in force.
    pub network: NetworkInForce,
    /// Totals of the network traffic; `None` for a run without a network.
    pub egress: Option<Egress>,
    /// The outcome of the changes.
    pub changes: Changes,
    /// True if the receipt must outlive a power cut, because the run left changes on the disk that do, too. The receipt
    /// of a run without such changes does not wait for the disk.
    pub durable: bool,
    /// Length and hash of the output of the command.
    pub output: Output,
    /// The end of the run.
    pub exit: Exit,
    /// The time from the beginning until the sandbox was about to be made.
    pub prepared: Duration,
    /// The time from the beginning until the command ran.
    pub spawned: Option<Duration>,
    /// The time from the beginning until now.
    pub duration: Duration,
}

/// A receipt that is stored.
#[derive(Debug)]
pub struct Issued {
    /// The path of the stored file.
    pub path: PathBuf,
    /// The signed file, and its hash.
    pub sealed: Sealed,
    /// The key that signed the receipt.
    pub key_id: KeyId,
    /// The reason why the receipt has no place in the chain, if it has none.
    pub unchained: Option<String>,
    /// The reason is that another run held the chain.
    pub is_busy: bool,
}

impl Issued {
    /// Reports whether the receipt has no sure place in the chain for a reason that the next run meets as well.
    #[must_use]
    pub fn has_lost_its_place(&self) -> bool {
        self.unchained.is_some() && !self.is_busy
    }
}

impl Issuer {
    /// Makes sure of the key and of the place for receipts below `state`. Call it before the sandbox is made.
    pub fn open(state: &Path, maker: Maker, now_unix_ms: u64) -> Result<Self, OpenError> {
        let key = KeyDirectory::open(state).and_then(|keys| keys.current())?;
        let store = Store::open(state)?;
        Ok(Self { key, store, maker, started_unix_ms: now_unix_ms })
    }
}

/// Signs and stores the receipt of a run.
pub fn issue(issuer: &Issuer, finished: Statement<'_>) -> Result<Issued, IssueError> {
    let seed = issuer.key.seed()?;
    let pair = seed.signer();
    let key_id = pair.public().id();
    let run = finished.plan.run_id;
    let durable = finished.durable;
    let mut receipt = document(issuer, finished, &seed, key_id.clone()).ok_or(IssueError::Hash)?;
    let make = |place: Option<ChainPlace>| -> Result<Sealed, StoreError> {
        receipt.chain = place;
        seal(&receipt, &pair).map_err(StoreError::Sign)
    };
    let stored = issuer.store.append(run, durable, make)?;
    let (unchained, is_busy) = (stored.unchained, stored.is_busy);
    Ok(Issued { path: stored.path, sealed: stored.sealed, key_id, unchained, is_busy })
}

/// Makes the document, still without its place. `None` when a hash could not be made.
fn document(issuer: &Issuer, finished: Statement<'_>, seed: &Seed, key_id: KeyId) -> Option<Receipt> {
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
        image: plan.image.as_ref().map(|image| image.digest.clone()),
        limits: plan.limits.clone(),
        timeout_ms: finished.timeout.map(|timeout| timeout.as_millis() as u64),
        required: plan.required.iter().map(|guarantee| guarantee.name().to_owned()).collect(),
        allow_ptrace: plan.allow_ptrace,
        env_secrets: finished.env_secrets.to_vec(),
        secrets: finished.secrets.to_vec(),
        opened_binds: finished.opened_binds.to_vec(),
        auto_binds: finished.auto_binds.to_vec(),
        allowed_sockets: finished.allowed_sockets.to_vec(),
        network: Some(finished.network),
    };
    let Maker { version, kernel, identity } = issuer.maker.clone();
    let micros = |duration: Duration| duration.as_micros() as u64;
    Some(Receipt {
        schema: SCHEMA.to_owned(),
        run_id: plan.run_id,
        nexus: Nexus { version: version.clone() },
        driver: Driver { name: finished.driver.to_owned(), version },
        kernel,
        identity,
        spec_hash: Digest::of_json(&request)?,
        plan_hash: plan_hash?,
        request: request.cut(),
        profiles: finished.profiles,
        guarantees: finished.guarantees.iter().map(|guarantee| guarantee.name().to_owned()).collect(),
        proof: finished.proof.to_vec(),
        egress: finished.egress,
        changes: finished.changes,
        output: finished.output,
        exit: finished.exit,
        timing: Timing {
            started_unix_ms: issuer.started_unix_ms,
            prepared_us: micros(finished.prepared),
            spawned_us: finished.spawned.map(micros),
            duration_us: micros(finished.duration),
        },
        chain: None,
        key_id,
    })
}

/// Returns the hash of the plan with tags instead of values: a hash of a short secret can be guessed.
fn plan_hash(plan: &Plan, env: &[EnvEntry]) -> Option<Digest> {
    let mut draft = PlanDraft::clone(plan);
    for ((_, value), entry) in draft.env.iter_mut().zip(env) {
        *value = ByteText::from(entry.tag.as_str());
    }
    Digest::of_json(&draft)
}
