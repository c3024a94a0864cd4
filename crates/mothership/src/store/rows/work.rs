//! The row of a directive that is not over.

use super::values::{ANY, Id, json, optional};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::Counters;
use nexus_api::conduits::Stream;
use nexus_model::directive::{Directive, Fence, OnLeaseLoss, State};
use nexus_model::ids::{AccountId, DirectiveId, TerritoryId};

/// Waits for an approval: no claim and no facility looks at it.
pub const AWAITS: i64 = -1;
/// Waits for the facility.
pub const WAITS: i64 = 0;
/// Ready to be claimed.
pub const READY: i64 = 1;
pub const LEASED: i64 = 2;
pub const RUNNING: i64 = 3;
/// Changes are committed.
pub const SETTLING: i64 = 4;

/// Live part of a directive.
#[derive(Debug, Clone)]
pub struct Work {
    /// Directive of the claim.
    pub id: Id,
    /// Account that owns the object.
    pub account: AccountId,
    pub facility: Id,
    /// Only territory that may claim it.
    pub pin: Option<TerritoryId>,
    /// Class of its demands.
    pub class: i64,
    pub phase: i64,
    /// Number of changes that readers can see.
    pub version: i64,
    /// Count of claims.
    pub attempt: u32,
    /// Count of reported starts.
    pub starts: u32,
    /// Number of the latest claim.
    pub fence: Fence,
    /// Territory that holds it.
    pub holder: Option<Id>,
    /// The holder reads verdicts before it starts a claim.
    pub confirms: bool,
    /// Time of the request to end.
    pub cancel_at: Option<i64>,
    /// Time of the reported start.
    pub started_at: Option<i64>,
    /// Versions of the reported start.
    pub started: Option<String>,
    /// Time after which the holder is asked to abort.
    pub deadline: Option<i64>,
    /// Time limit of the command.
    pub timeout_ms: i64,
    /// Bytes of output that are stored.
    pub log_limit: i64,
    /// Run again when the territory is lost.
    pub requeue: bool,
    /// It starts only with an approval.
    pub asks: bool,
    /// A claim found that the policy in force forbids it.
    pub denied: bool,
    /// Counters of stdout and stderr.
    pub counters: [Counters; 2],
}

/// Columns that [`read`] expects.
pub const COLUMNS: &str = "directive_id, account_id, facility_id, pin, class_id, phase, version, attempt, starts, fence, holder, \
     confirms, cancel_at, started_at, started, deadline, timeout_ms, log_limit, requeue, asks, denied, out, err";

/// Reads a row with [`COLUMNS`].
pub fn read(row: &Row<'_>) -> Result<Work, StoreError> {
    let pin: Id = row.get("pin")?;
    Ok(Work {
        id: row.get("directive_id")?,
        account: AccountId::from_bytes(row.get("account_id")?),
        facility: row.get("facility_id")?,
        pin: (pin != ANY).then(|| TerritoryId::from_bytes(pin)),
        class: row.get("class_id")?,
        phase: row.get("phase")?,
        version: row.get("version")?,
        attempt: row.get("attempt")?,
        starts: row.get("starts")?,
        fence: Fence(row.get::<_, i64>("fence")? as u64),
        holder: row.get("holder")?,
        confirms: row.get("confirms")?,
        cancel_at: row.get("cancel_at")?,
        started_at: row.get("started_at")?,
        started: row.get("started")?,
        deadline: row.get("deadline")?,
        timeout_ms: row.get("timeout_ms")?,
        log_limit: row.get("log_limit")?,
        requeue: row.get("requeue")?,
        asks: row.get("asks")?,
        denied: row.get("denied")?,
        counters: [json(&row.get::<_, String>("out")?)?, json(&row.get::<_, String>("err")?)?],
    })
}

/// One of [`load`], [`alter`] and [`hold`].
pub type Load = fn(&Connection<'_>, &DirectiveId) -> Result<Option<Work>, StoreError>;

/// Returns the live part of a directive, to read it.
pub fn load(connection: &Connection<'_>, id: &DirectiveId) -> Result<Option<Work>, StoreError> {
    select(connection, id, "")
}

/// Returns the live part of a directive for a change that does not end it. Others who change it wait.
pub fn alter(connection: &Connection<'_>, id: &DirectiveId) -> Result<Option<Work>, StoreError> {
    select(connection, id, connection.locked())
}

/// Returns the live part of a directive for a change that may end it. The facility is locked before the directive, in each
/// transaction that gives it to another directive: none is forgotten between the end of one and the creation of the next.
pub fn hold(connection: &Connection<'_>, id: &DirectiveId) -> Result<Option<Work>, StoreError> {
    let locked = connection.locked();
    if !locked.is_empty() {
        let facility = "SELECT id FROM facility WHERE id = (SELECT facility_id FROM work WHERE directive_id = ?1)";
        let mut statement = connection.prepare_cached(&format!("{facility}{locked}"))?;
        optional(statement.query_row(params![id.as_bytes()], |row| row.get::<_, Id>(0)))?;
    }
    select(connection, id, locked)
}

fn select(connection: &Connection<'_>, id: &DirectiveId, locked: &str) -> Result<Option<Work>, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM work WHERE directive_id = ?1{locked}"))?;
    optional(statement.query_row(params![id.as_bytes()], read))
}

/// Returns the place of a stream's counters.
pub fn place(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

impl Work {
    /// Returns the id of the directive.
    pub fn directive(&self) -> DirectiveId {
        DirectiveId::from_bytes(self.id)
    }

    /// Returns the facts that decide the next state.
    pub fn machine(&self) -> Directive {
        Directive {
            state: self.state(),
            reason: None,
            fence: self.fence,
            attempt: self.attempt,
            starts: self.starts,
            settling: self.phase == SETTLING,
            cancel_requested: self.cancel_at.is_some(),
            on_lease_loss: if self.requeue { OnLeaseLoss::Requeue } else { OnLeaseLoss::Fail },
        }
    }

    /// Returns the state that users see.
    pub fn state(&self) -> State {
        state_of(self.phase)
    }
}

/// State of a directive in a phase.
pub fn state_of(phase: i64) -> State {
    match phase {
        AWAITS => State::AwaitingApproval,
        LEASED => State::Leased,
        RUNNING | SETTLING => State::Running,
        _ => State::Queued,
    }
}
