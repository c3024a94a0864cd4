//! Values that go into the store and come out of it.

use nexus_api::Labels;
use nexus_api::audit::{AuditEvent, AuditHead};
use nexus_api::conduits::{Capacity, ClaimApproval, Progress, Stream, TerritoryKind, Verdict};
use nexus_api::mothership::Role;
use nexus_model::approval::{Approval, ApprovalRefusal, ApprovalState};
use nexus_model::digest::Digest;
use nexus_model::directive::{Fence, FinishStatus, Refusal, State};
use nexus_model::ids::{AccountId, ApprovalId, DirectiveId, TerritoryId};
use nexus_model::spec::DirectiveSpec;
use nexus_model::subject::ConnectionSubject;
use serde::{Deserialize, Serialize};

pub use super::queries::{
    AnnouncedArtifact, Artifact, ArtifactBounds, ChunkBytes, ChunkQuery, Compaction, DirectiveLine, IndexEntry,
    LiveDirectives, LogBlob, NewArtifact, Page, Retention, Snapshot, StoredChunk, Swept,
};

/// Secrets and numbers of a store, read when it is opened.
#[derive(Clone)]
pub struct Secrets {
    /// Upper part of fences.
    pub epoch: u64,
    /// Key of the directive tokens.
    pub token_key: Vec<u8>,
    /// Certificate of the authority for territories.
    pub ca_cert: String,
    /// Private key of the authority.
    pub ca_key: String,
}

/// A caller with an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Account that every object must belong to.
    pub id: AccountId,
    /// Id of the key.
    pub key: [u8; 16],
    /// Role of the key.
    pub role: Role,
}

/// A daemon whose identity was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Territory {
    /// Territory that the daemon runs.
    pub id: TerritoryId,
    /// Account of the territory.
    pub account: AccountId,
}

/// A client certificate that is not revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificate {
    /// Territory that it proves.
    pub territory: Territory,
    /// Hash of its public key.
    pub key: SecretHash,
    /// Key that ends when this certificate is used.
    pub replaces: Option<SecretHash>,
}

/// A session of the console.
#[derive(Debug, Clone)]
pub struct ConsoleSession {
    /// Id of the session, which is not its secret.
    pub id: String,
    pub created_at: i64,
    /// Time of its last use, to the minute.
    pub seen_at: i64,
    /// Role of its key.
    pub role: Role,
    /// Name of its key.
    pub key_name: Option<String>,
    /// Hash of its secret.
    pub hash: SecretHash,
}

/// Hash of a secret; the secret itself is not stored.
pub type SecretHash = [u8; 32];

/// Times of leases, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Life of a lease after a heartbeat.
    pub ttl_ms: i64,
    /// Time after which a claim that was not started is taken back, for daemons that know this rule.
    pub start_ms: i64,
    /// Time after which a territory that was not heard of counts as offline.
    pub offline_ms: i64,
    /// Time that the preparation of a directive may take.
    pub prepare_ms: i64,
}

/// Demands of a directive, equal for all directives of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRequirements {
    pub profile: String,
    /// Guarantees, in order.
    pub guarantees: Vec<String>,
    pub labels: Labels,
}

/// A directive to be stored.
#[derive(Debug, Clone)]
pub struct NewDirective {
    /// Specification, as a daemon will get it.
    pub spec: DirectiveSpec,
    /// Demands on the territory.
    pub class: ClassRequirements,
    /// Hash of the policy documents under which it was accepted.
    pub policies: Option<Digest>,
    /// Reasons for which a person had to approve it.
    pub approval_reasons: Vec<String>,
    /// It may start only once a person has approved it.
    pub asks: Option<Asks>,
    pub group: Option<String>,
    /// Steps of priority.
    pub priority: i32,
    /// Longest time in the queue, in milliseconds.
    pub queue_ms: Option<i64>,
    /// Time limit of the command, in milliseconds.
    pub timeout_ms: i64,
    /// Bytes of output that are stored.
    pub log_limit: i64,
    /// Key, route and hash of the body, when the caller made the call repeatable.
    pub idempotency: Option<(String, String)>,
}

/// A change of the policy document of an account.
#[derive(Debug, Clone)]
pub struct NewPolicy {
    /// A document that was tested, with the hash of its text; `None` takes the one before out of force.
    pub document: Option<(String, Digest)>,
    /// Generation that the caller has seen.
    pub if_generation: Option<u64>,
}

/// The policy document of an account.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// Number of its changes.
    pub generation: u64,
    pub hash: Option<Digest>,
    /// Text of the document; `None` where it was removed.
    pub document: Option<String>,
    /// Key that made the last change.
    pub key: [u8; 16],
    /// Time of the last change.
    pub at: i64,
}

/// A request for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asks {
    /// Reasons why it is needed, for people.
    pub reasons: Vec<String>,
    /// Number of users who must approve it.
    pub quorum: u32,
    /// Time within which it is answered and used, in milliseconds.
    pub life_ms: i64,
}

/// Answer of a user to a request for an approval.
#[derive(Debug, Clone)]
pub struct ApprovalAnswer {
    /// Bounds of a yes; `None` is a no.
    pub allow: Option<Allow>,
    /// Hash of what the user was shown.
    pub subject: Option<Digest>,
    pub comment: Option<String>,
}

/// Bounds of an approval. Each can only take away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allow {
    /// Number of uses.
    pub max_uses: Option<u32>,
    /// Each connection of the directive to the destination, where no number is given.
    pub whole_directive: bool,
    /// Time until it ends, in milliseconds.
    pub expires_in_ms: Option<u64>,
}

/// A connection of a directive that waits for a person.
#[derive(Debug, Clone)]
pub struct NewConnection {
    /// Destination, as `host:port`.
    pub destination: String,
    /// The only program that may connect.
    pub program: Option<String>,
    /// Name of the connection in its claim.
    pub use_name: String,
    /// Time for which it waits, in milliseconds.
    pub wait_ms: i64,
    /// No connection waits any more.
    pub gone: bool,
    /// Number of users who must approve it.
    pub quorum: u32,
    /// The policy in force lets no answer open it.
    pub is_forbidden: bool,
}

impl NewConnection {
    /// Returns the destination with the program, as a rule has them.
    #[must_use]
    pub fn target(&self) -> String {
        let program = self.program.as_ref().map(|program| format!("@{program}")).unwrap_or_default();
        format!("{}{program}", self.destination)
    }
}

/// State of the request of a connection.
#[derive(Debug, Clone)]
pub struct Connected {
    pub approval_id: Option<ApprovalId>,
    /// Hash of what the approval is for.
    pub subject: Option<Digest>,
    /// Exactly what it is for.
    pub connection: Option<ConnectionSubject>,
    pub state: ApprovalState,
    /// A use was taken for this connection.
    pub allowed: bool,
    /// Keys that approved it.
    pub approved_by: Vec<String>,
    /// Readers can see a change.
    pub is_new: bool,
}

impl Connected {
    /// Returns the answer of a request.
    #[must_use]
    pub fn of(id: ApprovalId, connection: ConnectionSubject, approval: &Approval, allowed: bool, is_new: bool) -> Self {
        let approved_by = approval.approvers.iter().map(|one| one.credential.clone()).collect();
        let (subject, state) = (Some(approval.subject), approval.state);
        Self { approval_id: Some(id), subject, connection: Some(connection), state, allowed, approved_by, is_new }
    }

    /// Returns a no about which no user was asked.
    #[must_use]
    pub fn no(state: ApprovalState) -> Self {
        Self {
            approval_id: None,
            subject: None,
            connection: None,
            state,
            allowed: false,
            approved_by: Vec::new(),
            is_new: false,
        }
    }
}

/// Result of an answer: the lane that has a ready directive now.
pub type Answered = Result<Option<Lane>, NotAnswered>;

/// Reason for which an answer was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAnswered {
    /// The directive needs no approval.
    NotAsked,
    /// The answer is about something else than what is asked for.
    OtherSubject,
    /// The state of the approval does not allow it.
    Refused(ApprovalRefusal),
}

/// Answer to a creation.
#[derive(Debug, Clone)]
pub enum Creation {
    /// The directive was stored, now or by an earlier call with the same key.
    Stored {
        /// Id of the directive.
        id: DirectiveId,
        /// State of the directive.
        state: State,
        /// Time of the creation.
        created_at: i64,
        /// Lane that a waiting territory can be woken for.
        lane: Option<Lane>,
    },
    /// The key was used with another body.
    OtherBody,
}

/// Lane of a ready directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Account of the directive.
    pub account: AccountId,
    /// Demands on the territory.
    pub class: ClassRequirements,
    /// The only territory that may claim the directive.
    pub pin: Option<TerritoryId>,
}

/// Offer of a territory that asks for work.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Profiles that the poll offers.
    pub profiles: Vec<String>,
    /// Guarantees that the poll names.
    pub guarantees: Option<Vec<String>>,
    /// Number of directives that the poll asks for.
    pub max: u32,
    /// Name of the poll.
    pub poll_id: Option<String>,
}

/// A directive that a territory has claimed.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Id of the directive.
    pub id: DirectiveId,
    pub spec: DirectiveSpec,
    /// Number of the claim.
    pub fence: Fence,
    /// Count of claims of the directive.
    pub attempt: u32,
    /// The approval that lets it start.
    pub approval: Option<ClaimApproval>,
}

/// Result of looking for work.
#[derive(Debug, Clone)]
pub struct Claims {
    pub claims: Vec<Claim>,
    /// Facts about the territory, for waiting.
    pub facts: TerritoryFacts,
}

/// Claim that a directive token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Directive of the claim.
    pub directive: DirectiveId,
    /// Number of the claim.
    pub fence: Fence,
}

/// Result of a report that the state machine decides.
#[derive(Debug, Clone)]
pub enum Reported<T> {
    /// The report was accepted.
    Done(T),
    /// The report was refused; nothing changed.
    Refused(Refusal),
    /// A report that was accepted earlier said something else.
    Differs,
    /// The diff is larger than the directive allows.
    DiffTooLarge {
        /// Largest diff of the directive.
        max: u64,
    },
}

/// Accepted report of a start.
#[derive(Debug, Clone, Copy)]
pub struct StartedState {
    /// State of the directive.
    pub state: State,
    /// The start was reported before.
    pub duplicate: bool,
}

/// Accepted heartbeat of a directive.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// A user asked for the end.
    pub cancel_requested: bool,
    /// Count of claims of the directive.
    pub attempt: u32,
    /// Action for the daemon.
    pub verdict: Verdict,
}

/// One log chunk.
#[derive(Debug, Clone)]
pub struct NewChunk {
    pub stream: Stream,
    /// Number in its stream.
    pub seq: i64,
    pub bytes: Vec<u8>,
    /// The daemon left something out.
    pub truncated: bool,
}

/// Accepted log chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkState {
    /// The bytes are stored.
    pub stored: bool,
    /// The chunk was stored before.
    pub duplicate: bool,
}

/// Report of an end.
#[derive(Debug, Clone)]
pub struct NewEnd {
    /// End as reported.
    pub status: FinishStatus,
    /// Reason as reported.
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    /// State of stdout and of stderr.
    pub output: [OutputEnd; 2],
    /// Hash of the report.
    pub payload_hash: String,
    pub diff: Option<Vec<u8>>,
    pub receipt: Option<serde_json::Value>,
    /// Everything else that reads show.
    pub result: EndResult,
}

/// State of one stream, by the report of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputEnd {
    /// Output is missing.
    pub truncated: bool,
    /// Nothing is missing when the stream has so many chunks: those that are not there are on their way.
    pub chunks: Option<i64>,
}

/// Part of a report that reads show as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EndResult {
    /// Time of a report that came after the server had ended the directive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<i64>,
    /// The diff was cut.
    pub diff_truncated: bool,
    /// Snapshot before the run.
    pub snapshot_before: Option<serde_json::Value>,
    /// Snapshot after the run.
    pub snapshot_after: Option<serde_json::Value>,
    pub artifacts_manifest: Option<serde_json::Value>,
    /// Times of the run.
    pub timing: Option<serde_json::Value>,
}

/// Accepted report of an end.
#[derive(Debug, Clone)]
pub struct EndState {
    pub state: State,
    /// The end was reported before.
    pub duplicate: bool,
    /// Lane of the directive that now has the facility.
    pub promoted: Option<Lane>,
}

/// Counters of one stream.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Counters {
    /// Number of chunks.
    pub count: i64,
    /// Largest number of a chunk; -1 for none.
    pub top: i64,
    pub bytes: i64,
    /// First number that is not there yet.
    pub next: i64,
    /// Output was left out.
    pub truncated: bool,
    /// Number of chunks of the whole stream, as the report of the end says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<i64>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { count: 0, top: -1, bytes: 0, next: 0, truncated: false, whole: None }
    }
}

impl Counters {
    /// Returns whether a chunk is missing of a stream that has ended.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        self.count != self.top + 1 || self.whole.is_some_and(|whole| self.count < whole)
    }

    /// Notes what the report of the end says.
    pub fn end(&mut self, reported: OutputEnd) {
        self.whole = reported.chunks;
        self.truncated |= reported.truncated && reported.chunks.is_none();
    }
}

/// Heartbeat of a territory.
#[derive(Debug, Clone)]
pub struct Presence {
    /// Labels, when the heartbeat has them.
    pub labels: Option<Labels>,
    /// Capacity, when the heartbeat has it.
    pub capacity: Option<Capacity>,
    /// Version of the daemon.
    pub nexus_version: Option<String>,
    /// Version of the protocol.
    pub protocol_version: Option<serde_json::Value>,
    /// Number of directives that run.
    pub running: Option<u32>,
    /// Directives of the heartbeat.
    pub directives: Vec<(DirectiveId, Fence, Option<Progress>)>,
}

/// Enrolment of a machine.
#[derive(Debug, Clone)]
pub struct NewTerritory {
    /// Hash of the enrolment token.
    pub token: SecretHash,
    /// Hash of the public key of the certificate request.
    pub csr_key: Option<SecretHash>,
    /// Source address, for the limit of tries.
    pub source: String,
    /// Enrolments that one address may try in an hour.
    pub max_tries: u32,
    /// Kind that the daemon names.
    pub kind: Option<TerritoryKind>,
    /// Name that its owner chose.
    pub name: Option<String>,
    /// Name for people.
    pub display_name: Option<String>,
    pub platform: Option<serde_json::Value>,
    pub labels: Labels,
    pub capacity: Capacity,
}

/// Result of an enrolment.
#[derive(Debug, Clone)]
pub enum Enrolment {
    /// The machine is a territory now, or was one already by the same token and key.
    Enrolled {
        territory: Territory,
        /// Kind of the territory.
        kind: TerritoryKind,
    },
    /// The token is unknown, expired or used.
    BadToken,
    /// Too many tries came from this address.
    TooMany {
        /// Seconds until the next try is allowed.
        retry_after: u32,
    },
}

/// Facts of a facility to be stored.
#[derive(Debug, Clone)]
pub struct NewFacility {
    /// Kind on the wire.
    pub kind: nexus_api::mothership::FacilityKind,
    /// Name that its owner chose.
    pub name: Option<String>,
    pub repo_url: Option<String>,
    /// Territory that holds the files.
    pub pin: Option<TerritoryId>,
}

/// Changes of one round of the reaper.
#[derive(Debug, Clone, Default)]
pub struct Reaped {
    /// Directives whose state changed.
    pub changed: Vec<DirectiveId>,
    /// Lanes that have a ready directive now.
    pub lanes: Vec<Lane>,
}

/// Facts about a territory that decide which directives it can run.
#[derive(Debug, Clone)]
pub struct TerritoryFacts {
    /// Id of the territory.
    pub id: TerritoryId,
    /// The territory takes new directives.
    pub active: bool,
    /// A heartbeat came in time, or none was expected yet.
    pub online: bool,
    /// Profiles that it offers and whose driver is healthy.
    pub profiles: Vec<String>,
    /// Guarantees that it gives.
    pub guarantees: Vec<String>,
    pub labels: Labels,
    /// Directives that it may hold at once.
    pub capacity: u32,
    /// Directives that it holds.
    pub open: u32,
}

/// Events of an account with the ends of its chain.
#[derive(Debug, Clone)]
pub struct AuditPage {
    pub events: Vec<AuditEvent>,
    pub head: AuditHead,
    /// Number of the first event that is left.
    pub first_seq: u64,
}
