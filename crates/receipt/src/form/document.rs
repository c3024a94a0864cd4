//! The content of a receipt. Times are whole microseconds, so that no reader rounds them.
//!
//! Values of environment variables are often secrets. They stand here as tags: hashes with a key that only the signer
//! has, so that equal values can be seen to be equal and none can be guessed from the receipt. The command line stands
//! in clear, as it does in `ps`.

use crate::keys::KeyId;
use nexus_model::plan::Bind;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, Digest, Limits, RunId};
use serde::{Deserialize, Serialize};

/// The form that this code writes.
pub const SCHEMA: &str = "nexus.receipt/2";
/// The forms that this code reads. A receipt of form 1 does not describe the network that was in force.
pub const SCHEMAS: [&str; 2] = ["nexus.receipt/1", SCHEMA];
/// Maximum size of each list in a receipt, in bytes. The hash of the whole list stands beside it.
pub const MAX_LISTED_BYTES: usize = 64 * 1024;

/// Everything that a receipt says about one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The form of the document: [`SCHEMA`], or an older one of [`SCHEMAS`].
    pub schema: String,
    /// The run that the receipt is about.
    pub run_id: RunId,
    /// The program that ran it.
    pub nexus: Nexus,
    /// The driver that isolated the run.
    pub driver: Driver,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// `root` or `user`: who called.
    pub identity: String,
    /// The request for the run.
    pub request: Request,
    /// Hash of the whole request, lists uncut. Equal for equal requests to the same signer.
    pub spec_hash: Digest,
    /// Hash of the plan that the driver got, with values of the environment as tags.
    pub plan_hash: Digest,
    /// Profiles that took part, in their order.
    pub profiles: Vec<ProfileRef>,
    /// Names of the guarantees that were held.
    pub guarantees: Vec<String>,
    /// The attempts that the confined process made before the command started.
    pub proof: Vec<ProofItem>,
    /// Totals of the network traffic; `None` for a run without a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// The outcome of the changes.
    pub changes: Changes,
    /// Length and hash of the output of the command.
    pub output: Output,
    /// The end of the run.
    pub exit: Exit,
    /// The times of the run.
    pub timing: Timing,
    /// The receipt's place among those of the same state directory; `None` if it could not get one.
    pub chain: Option<ChainPlace>,
    /// The key that signed it.
    pub key_id: KeyId,
}

/// A version of Nexus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nexus {
    /// The version, as `nexus --version` prints it.
    pub version: String,
}

/// The driver that isolated a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The name of the driver.
    pub name: String,
    /// The version of the driver.
    pub version: String,
}

/// A list of which only the beginning is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounded<T> {
    /// The beginning, at most [`MAX_LISTED_BYTES`] of it.
    pub items: Vec<T>,
    /// Items that were left out.
    pub omitted: usize,
}

impl<T> Bounded<T> {
    /// Takes a whole list.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, omitted: 0 }
    }

    /// Cuts the list to its beginning, as far as the sizes of the items fit.
    #[must_use]
    pub fn cut(mut self, size: impl Fn(&T) -> usize) -> Self {
        let mut used = 0usize;
        let fits = |item: &T| {
            used = used.saturating_add(size(item));
            used <= MAX_LISTED_BYTES
        };
        let count = self.items.len();
        let kept = self.items.iter().map(fits).take_while(|fits| *fits).count();
        self.items.truncate(kept);
        self.omitted += count - kept;
        self
    }
}

/// The request for a run, without ids and places of this one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The requested strength of the sandbox.
    pub sandbox: String,
    /// The command and its arguments.
    pub argv: Bounded<ByteText>,
    /// The workspace on the host.
    pub workspace: ByteText,
    /// The working directory inside.
    pub cwd: ByteText,
    /// `commit`, `review`, `discard`, `ask`, `direct` or `live`.
    pub changes: String,
    /// The environment inside.
    pub env: Bounded<EnvEntry>,
    /// Further host paths.
    pub binds: Bounded<Bind>,
    /// Paths that could not be read inside.
    pub hidden: Bounded<ByteText>,
    /// Digest of the image in place of the host's system. Left out when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The requested resource limits.
    pub limits: Limits,
    /// Milliseconds until SIGTERM.
    pub timeout_ms: Option<u64>,
    /// Names of guarantees without which the run was not to start.
    pub required: Vec<String>,
    /// True if processes inside could trace each other. Left out when they could not, as in older receipts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_ptrace: bool,
    /// Names of variables that held credentials. Left out when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_secrets: Vec<ByteText>,
    /// Secrets that the command got as files. Left out when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Paths of the host that were shown because the operator opened them. Left out when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened_binds: Vec<ByteText>,
    /// Paths that were shown because the caller's PATH or environment led to them. Left out when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auto_binds: Vec<AutoBind>,
    /// Sockets of the host that the command could connect to. Left out when there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_sockets: Vec<ByteText>,
    /// The network in force; nothing in a receipt of form 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// Secret that the command got as a file. Neither its value nor the place of that is in a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Name of the secret.
    pub name: String,
    /// Kind of the provider that had the value: `file`, `env` or `cmd`.
    pub provider: String,
}

/// Path that was shown because the caller's PATH or environment led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoBind {
    /// Path of it inside the sandbox.
    pub path: ByteText,
    /// Description of what it is, and the entry of PATH or the variable.
    pub reason: String,
}

/// The network in force when the command started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// `none`, `allowlist` or `unrestricted`.
    pub mode: String,
    /// Each rule as `allow HOST:PORTS`, `allow-private …`, `allow-host-port PORT`, `deny …`.
    pub rules: Bounded<String>,
    /// Hash of the policy as the record of the network begins with it; nothing without a network.
    pub policy: Option<Digest>,
    /// True if everything went through the operator's proxy.
    pub upstream: bool,
    /// True if a person could be asked about other destinations.
    pub ask: bool,
}

impl Network {
    /// Returns the network of a run that has none.
    #[must_use]
    pub fn none() -> Self {
        Self { mode: "none".to_owned(), rules: Bounded::whole(Vec::new()), policy: None, upstream: false, ask: false }
    }
}

impl Request {
    /// Returns the request with lists that fit into a receipt.
    #[must_use]
    pub fn cut(self) -> Self {
        // Bytes that JSON adds to each item.
        const FRAME: usize = 32;
        Self {
            argv: self.argv.cut(|word| word.0.len() + FRAME),
            env: self.env.cut(|entry| entry.name.0.len() + 2 * FRAME),
            binds: self.binds.cut(|bind| bind.source.0.len() + bind.target.0.len() + 2 * FRAME),
            hidden: self.hidden.cut(|path| path.0.len() + FRAME),
            network: self
                .network
                .map(|network| Network { rules: network.rules.cut(|rule| rule.len() + FRAME), ..network }),
            ..self
        }
    }
}

/// One environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvEntry {
    /// The name of the variable.
    pub name: ByteText,
    /// A keyed hash of its value ([`crate::keys::Seed::tag`]).
    pub tag: String,
}

/// A profile that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRef {
    /// The name of the profile.
    pub name: String,
    /// The origin of the profile: `built-in profile NAME` or a path.
    pub source: ByteText,
    /// Hash of its text.
    pub hash: Digest,
}

/// Totals of what a run sent and received over the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// Connections that were let through.
    pub allowed: u64,
    /// Connections that were refused.
    pub denied: u64,
    /// Bytes from outside.
    pub bytes_in: u64,
    /// Bytes to the outside.
    pub bytes_out: u64,
    /// Hash of the report's `egress`.
    pub hash: Digest,
    /// The record of the network when it was closed, empty where nothing was tried; nothing in a receipt of form 1, and
    /// where the record could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<StreamDigest>,
    /// Destinations that a person let through while the run went on; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<Bounded<Approved>>,
}

/// A destination that a person let through while the run went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// The host and port, and the program for which alone it was opened.
    pub to: String,
    /// The user and session that let it through.
    pub by: String,
    /// The approval, where the answer came from another session than the run's own.
    pub approval: Option<RunId>,
    /// Connections that were let through by it; `None` for any number of them to the end of the run.
    pub connections: Option<u64>,
}

/// Outcome of the changes that a run made to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// `none`, `committed`, `parked`, `discarded`, or `failed` with the reason on the terminal.
    pub state: String,
    /// The number of entries added.
    pub added: u64,
    /// The number of entries modified.
    pub modified: u64,
    /// The number of entries deleted.
    pub deleted: u64,
    /// Entries that wait for a decision.
    pub parked: u64,
    /// Entries that changed outside meanwhile.
    pub conflicts: u64,
    /// Hash of the lists: path, kind, type, size and mode of each entry. Contents are not part of it.
    pub hash: Digest,
    /// The state of the workspace before a live run, by the hash of its tree. Left out of other receipts, as in older ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Length and hash of each output stream of the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The stream of descriptor 1.
    pub stdout: StreamDigest,
    /// The stream of descriptor 2.
    pub stderr: StreamDigest,
}

/// Length and hash of a whole stream, including output that a limit kept from being shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDigest {
    /// The length of the stream in bytes.
    pub bytes: u64,
    /// The hash of the stream.
    pub hash: Digest,
}

/// End of a run: exit code, signal and reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code that `nexus` returned.
    pub code: u8,
    /// The signal that killed the command.
    pub signal: Option<u8>,
    /// The typed reason.
    pub reason: String,
}

/// Start and durations of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Milliseconds since 1970 in UTC when `nexus` began, by the machine's clock.
    pub started_unix_ms: u64,
    /// Microseconds from the beginning until the sandbox was about to be made.
    pub prepared_us: u64,
    /// Microseconds from the beginning until the command ran; `None` if it never did.
    pub spawned_us: Option<u64>,
    /// Microseconds from the beginning until the end.
    pub duration_us: u64,
}

/// A receipt's place among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPlace {
    /// The chain, named by the run that began it.
    pub chain: RunId,
    /// The number of the receipt, from 0.
    pub seq: u64,
    /// The hash of the receipt before; `None` for the first.
    pub previous: Option<Digest>,
    /// The lowest number that is kept; older ones were pruned.
    pub floor: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_beginning_and_counts_the_rest() {
        let small = Bounded::whole(vec![1, 2]).cut(|_| 10);
        assert_eq!((small.items.len(), small.omitted), (2, 0));
        let large = Bounded::whole(vec![MAX_LISTED_BYTES - 1, 1, 1, 0]).cut(|size| *size);
        assert_eq!((large.items, large.omitted), (vec![MAX_LISTED_BYTES - 1, 1], 2));
    }
}
