//! Approvals of connections of directives that run, changed by `nexus_model::approval` alone.
//!
//! ```text
//!  daemon ─▶ connect ─ no request yet, or its uses are gone ─▶ request: pending, until the connection gives up
//!               │  (repeated)                        granted ─▶ a use less, in the same transaction ─▶ allowed, once
//!               └─ denied, expired ─▶ no, to the end of the claim
//!  person ─▶ answer          directive or claim is over ─▶ withdrawal
//! ```
//! Each change of a request holds the row of its directive first. A request is for one claim: the next one asks again.

use super::audit;
use super::held::held;
use super::values::{Id, json, optional, text};
use super::work::{self, RUNNING, Work};
use crate::store::error::StoreError;
use crate::store::jump::Jump;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{
    Account, Answered, ApprovalAnswer, Connected, Holding, NewConnection, NotAnswered, Page, Reported, Territory,
};
use nexus_api::Timestamp;
use nexus_api::mothership::{Approval as View, ConnectionAsks};
use nexus_model::approval::{Actor, Approval, ApprovalEvent, ApprovalKind, ApprovalRefusal, ApprovalState, MAX_USES};
use nexus_model::digest::Digest;
use nexus_model::directive::{Fence, Refusal};
use nexus_model::ids::{AccountId, ApprovalId, DirectiveId};
use nexus_model::spec::DirectiveSpec;
use nexus_model::subject::ConnectionSubject;
use serde_json::json;
use uuid::Uuid;

/// Requests of one account that are not over.
const MAX_LIVE: i64 = 1_000;
/// Requests of one claim. A command chooses the names that it asks for, and must not fill the list of its user.
const MAX_ASKED: usize = 100;
/// Destinations of one claim that wait for an answer at one time.
const MAX_OPEN: usize = 16;
/// Largest number of requests of one round of the reaper.
const MAX_ROUND: i64 = 200;
/// Columns that [`read`] expects.
const COLUMNS: &str =
    "c.id, c.account_id, c.directive_id, c.target, c.asked_at, c.reasons, c.subject, c.approval, c.comment";

/// A request as it is stored.
struct Stored {
    id: ApprovalId,
    account: AccountId,
    directive: DirectiveId,
    target: String,
    asked_at: i64,
    reasons: Vec<String>,
    subject: ConnectionSubject,
    approval: Approval,
    comment: Option<String>,
}

fn read(row: &Row<'_>) -> Result<Stored, StoreError> {
    Ok(Stored {
        id: ApprovalId::from_bytes(row.get("id")?),
        account: AccountId::from_bytes(row.get("account_id")?),
        directive: DirectiveId::from_bytes(row.get("directive_id")?),
        target: row.get("target")?,
        asked_at: row.get("asked_at")?,
        reasons: json(&row.get::<_, String>("reasons")?)?,
        subject: json(&row.get::<_, String>("subject")?)?,
        approval: json(&row.get::<_, String>("approval")?)?,
        comment: row.get("comment")?,
    })
}

fn time(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

fn of_key(key: Id) -> Actor {
    // There are no users yet: each key stands for one.
    let key = Uuid::from_bytes(key).to_string();
    Actor { user: key.clone(), credential: key }
}

/// Returns the time at which a request ends without an event: it is not answered in time, or not used.
fn end(approval: &Approval) -> i64 {
    let unanswered = approval.answer_by.filter(|_| approval.state == ApprovalState::Pending);
    i64::try_from(unanswered.map_or(approval.expires_at, |end| end.min(approval.expires_at))).unwrap_or(i64::MAX)
}

fn write(connection: &Connection<'_>, stored: &Stored) -> Result<(), StoreError> {
    let approval = &stored.approval;
    connection
        .prepare_cached(
            "UPDATE connection_approval SET live = ?2, expires_at = ?3, approval = ?4, comment = ?5 WHERE id = ?1",
        )?
        .execute(params![
            stored.id.as_bytes(),
            !approval.state.is_over(),
            end(approval),
            text(approval)?,
            stored.comment,
        ])?;
    Ok(())
}

fn connected(stored: Stored, allowed: bool, is_new: bool) -> Connected {
    Connected::of(stored.id, stored.subject, &stored.approval, allowed, is_new)
}

/// Returns the requests of a claim, the first one first.
fn of_claim(connection: &Connection<'_>, directive: &Id, fence: Fence) -> Result<Vec<Stored>, StoreError> {
    let locked = connection.locked();
    let question = format!(
        "SELECT {COLUMNS} FROM connection_approval c WHERE c.directive_id = ?1 AND c.fence = ?2 ORDER BY c.id{locked}"
    );
    connection.prepare_cached(&question)?.query_all(params![directive, fence.0 as i64], read)
}

/// Looks for the answer about a connection, asks for one, and takes a use of it. A repetition changes nothing.
pub fn connect(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    new: &NewConnection,
    now: i64,
) -> Result<Reported<Connected>, StoreError> {
    let work = match held(connection, territory, holding, work::alter)? {
        Ok(work) if work.phase == RUNNING => work,
        Ok(work) => return Ok(Reported::Refused(Refusal::WrongState { state: work.state() })),
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    if work.cancel_at.is_some() {
        // The connection waits for the cancel, which the daemon hears by its next heartbeat: with a no the command would go on to an
        // end of its own.
        return Ok(Reported::Done(Connected::no(ApprovalState::Pending)));
    }
    if new.is_forbidden && !new.gone {
        return Ok(Reported::Done(Connected::no(ApprovalState::Denied)));
    }
    let (spec, key): (String, Option<Id>) = connection
        .prepare_cached("SELECT spec, key_id FROM directive WHERE id = ?1")?
        .query_row(params![work.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let spec: DirectiveSpec = json(&spec)?;
    let subject = ConnectionSubject {
        directive_id: holding.directive,
        fence: holding.fence,
        territory_id: territory.id,
        destination: new.destination.clone(),
        program: new.program.clone(),
        spec: Digest::of_json(&spec).ok_or_else(|| StoreError::corrupt("a specification without a hash"))?,
    };
    let digest = subject.digest().ok_or_else(|| StoreError::corrupt("a connection without a hash"))?;
    let known = of_claim(connection, &work.id, holding.fence)?;
    let open = known.iter().filter(|one| one.approval.state == ApprovalState::Pending).count();
    let asked = known.len();
    let mut latest = None;
    for one in known.into_iter().filter(|one| one.target == new.target()) {
        // The connection had its use already: the answer got lost.
        if one.approval.uses.contains(&new.use_name) && !new.gone {
            let event = ApprovalEvent::Use { subject: digest, name: new.use_name.clone() };
            let allowed = one.approval.step(&event, time(now)).is_ok();
            return Ok(Reported::Done(connected(one, allowed, false)));
        }
        latest = Some(one);
    }
    if let Some(mut stored) = latest {
        settle_one(connection, &mut stored, now)?;
        if new.gone {
            return gone(connection, stored, now).map(Reported::Done);
        }
        match stored.approval.state {
            ApprovalState::Pending | ApprovalState::Denied => {
                return Ok(Reported::Done(connected(stored, false, false)));
            }
            ApprovalState::Expired if !was_granted(&stored.approval) => {
                return Ok(Reported::Done(connected(stored, false, false)));
            }
            ApprovalState::Granted => {
                return take(connection, &work, territory, stored, (digest, &new.use_name), now).map(Reported::Done);
            }
            // Its uses are gone, or its connection was: this one is asked about.
            ApprovalState::Used | ApprovalState::Expired | ApprovalState::Withdrawn => {}
        }
    } else if new.gone {
        return Ok(Reported::Done(Connected::no(ApprovalState::Withdrawn)));
    }
    let asks = spec.capabilities.net.ask_seconds().ok().flatten();
    let (Some(seconds), Some(key), true) = (asks, key, asked < MAX_ASKED && open < MAX_OPEN) else {
        return Ok(Reported::Done(Connected::no(ApprovalState::Denied)));
    };
    let waits_ms = new.wait_ms.min(i64::from(seconds) * 1000);
    request(connection, &work, territory, new, (subject, digest), of_key(key), waits_ms, now).map(Reported::Done)
}

fn was_granted(approval: &Approval) -> bool {
    u32::try_from(approval.approvers.len()).unwrap_or(u32::MAX) >= approval.quorum
}

/// Takes a request back that no connection waits for.
fn gone(connection: &Connection<'_>, mut stored: Stored, now: i64) -> Result<Connected, StoreError> {
    if stored.approval.state != ApprovalState::Pending {
        return Ok(connected(stored, false, false));
    }
    let next = stored.approval.step(&ApprovalEvent::Withdraw, time(now));
    stored.approval = next.map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
    write(connection, &stored)?;
    Ok(connected(stored, false, true))
}

fn take(
    connection: &Connection<'_>,
    work: &Work,
    territory: Territory,
    mut stored: Stored,
    (subject, name): (Digest, &str),
    now: i64,
) -> Result<Connected, StoreError> {
    // What is about to be reached, and by whom: not what the request says about itself.
    let event = ApprovalEvent::Use { subject, name: name.to_owned() };
    let Ok(used) = stored.approval.step(&event, time(now)) else {
        return Ok(Connected::no(ApprovalState::Denied));
    };
    stored.approval = used;
    write(connection, &stored)?;
    let detail = json!({
        "kind": ApprovalKind::Egress, "directive": work.directive(), "destination": stored.target, "subject": subject,
        "use": name, "uses_left": stored.approval.uses_left(),
    });
    let object = format!("approval/{}", stored.id);
    audit::note_of_territory(connection, work.account, territory.id, "approval.use", &object, &detail, now)?;
    Ok(connected(stored, true, true))
}

#[allow(clippy::too_many_arguments, reason = "one request with everything that it holds")]
fn request(
    connection: &Connection<'_>,
    work: &Work,
    territory: Territory,
    new: &NewConnection,
    (subject, digest): (ConnectionSubject, Digest),
    requester: Actor,
    waits_ms: i64,
    now: i64,
) -> Result<Connected, StoreError> {
    let live: i64 = connection
        .prepare_cached("SELECT count(*) FROM connection_approval WHERE account_id = ?1 AND live")?
        .query_row(params![work.account.as_bytes()], |row| row.get(0))?;
    if live >= MAX_LIVE {
        return Err(StoreError::TooManyApprovals);
    }
    // An answer may hold as long as the directive: its end withdraws it.
    let answer_by = now.saturating_add(waits_ms);
    let expires_at = work.deadline.unwrap_or(answer_by).max(answer_by);
    let kind = ApprovalKind::Egress;
    let approval = Approval::request(kind, digest, requester, time(expires_at), MAX_USES, new.quorum)
        .map_err(|refusal| StoreError::corrupt(refusal.to_string()))?
        .answered_by(time(answer_by));
    let id = ApprovalId::new();
    connection
        .prepare_cached(
            "INSERT INTO connection_approval (id, account_id, directive_id, fence, target, live, asked_at, expires_at, reasons,
               subject, approval) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            id.as_bytes(),
            work.account.as_bytes(),
            work.id,
            work.fence.0 as i64,
            new.target(),
            true,
            now,
            end(&approval),
            text(&["no rule allows it, and a connection waits for the answer"])?,
            text(&subject)?,
            text(&approval)?,
        ])?;
    let detail = json!({
        "kind": kind, "directive": work.directive(), "destination": new.target(), "subject": digest, "max_uses": MAX_USES,
        "quorum": new.quorum, "requested_by": approval.requester.credential, "answer_by": Timestamp(answer_by),
    });
    let object = format!("approval/{id}");
    audit::note_of_territory(connection, work.account, territory.id, "approval.request", &object, &detail, now)?;
    Ok(Connected::of(id, subject, &approval, false, true))
}

/// Answers the request of a connection.
pub fn answer(
    connection: &Connection<'_>,
    account: Account,
    directive: DirectiveId,
    id: ApprovalId,
    answer: &ApprovalAnswer,
    now: i64,
) -> Result<Answered, StoreError> {
    // The directive first, as everywhere. One that is over has withdrawn its requests.
    work::alter(connection, &directive)?;
    let locked = connection.locked();
    let question = format!(
        "SELECT {COLUMNS} FROM connection_approval c WHERE c.id = ?1 AND c.directive_id = ?2 AND c.account_id = ?3{locked}"
    );
    let mut stored = connection
        .prepare_cached(&question)?
        .query_row(params![id.as_bytes(), directive.as_bytes(), account.id.as_bytes()], read)?;
    if answer.subject.is_some_and(|subject| subject != stored.approval.subject) {
        return Ok(Err(NotAnswered::OtherSubject));
    }
    let by = of_key(account.key);
    let event = match answer.allow {
        Some(allow) => ApprovalEvent::Approve {
            by,
            // The request is for as many as there can be, and an answer is about one unless it says more.
            max_uses: allow.max_uses.or((!allow.whole_directive).then_some(1)),
            expires_at: allow.expires_in_ms.map(|ms| time(now).saturating_add(ms)),
        },
        None => ApprovalEvent::Deny { by },
    };
    stored.approval = match stored.approval.step(&event, time(now)) {
        Ok(next) => next,
        Err(refusal) => return Ok(Err(NotAnswered::Refused(refusal))),
    };
    stored.comment.clone_from(&answer.comment);
    write(connection, &stored)?;
    let action = if answer.allow.is_some() { "approval.approve" } else { "approval.deny" };
    let approval = &stored.approval;
    let detail = json!({
        "kind": approval.kind, "directive": directive, "destination": stored.target, "subject": approval.subject,
        "state": approval.state, "max_uses": approval.max_uses, "expires_at": Timestamp(end(approval)),
        "comment": stored.comment,
    });
    audit::note(connection, account, action, &format!("approval/{id}"), &detail, now)?;
    Ok(Ok(None))
}

/// Notes that the time of a request is over.
fn settle_one(connection: &Connection<'_>, stored: &mut Stored, now: i64) -> Result<(), StoreError> {
    let next = stored.approval.step(&ApprovalEvent::Tick, time(now));
    let next = next.map_err(|refusal: ApprovalRefusal| StoreError::corrupt(refusal.to_string()))?;
    if next == stored.approval {
        return Ok(());
    }
    stored.approval = next;
    write(connection, stored)?;
    let detail = json!({
        "kind": ApprovalKind::Egress, "directive": stored.directive, "destination": stored.target,
        "subject": stored.approval.subject,
    });
    let object = format!("approval/{}", stored.id);
    audit::note_of_server(connection, stored.account, "approval.expire", &object, &detail, now)
}

/// Lists requests whose time is over, with their directives.
pub fn due(connection: &Connection<'_>, now: i64) -> Result<Vec<(ApprovalId, DirectiveId)>, StoreError> {
    connection
        .prepare_cached("SELECT id, directive_id FROM connection_approval WHERE live AND expires_at <= ?1 LIMIT ?2")?
        .query_all(params![now, MAX_ROUND], |row| {
            Ok((ApprovalId::from_bytes(row.get(0)?), DirectiveId::from_bytes(row.get(1)?)))
        })
}

/// Ends a request whose time is over.
pub fn settle(connection: &Connection<'_>, id: ApprovalId, directive: DirectiveId, now: i64) -> Result<(), StoreError> {
    work::alter(connection, &directive)?;
    let locked = connection.locked();
    let question = format!("SELECT {COLUMNS} FROM connection_approval c WHERE c.id = ?1{locked}");
    let found = optional(connection.prepare_cached(&question)?.query_row(params![id.as_bytes()], read))?;
    found.map_or(Ok(()), |mut stored| settle_one(connection, &mut stored, now))
}

/// Moves the ends of each request that is not over by a jump of the clock.
pub fn shift(connection: &Connection<'_>, jump: Jump) -> Result<(), StoreError> {
    let locked = connection.locked();
    let live = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM connection_approval c WHERE c.live{locked}"))?
        .query_all(params![], read)?;
    for mut stored in live.into_iter().filter(|stored| !jump.is_before(stored.asked_at)) {
        stored.approval.expires_at = stored.approval.expires_at.saturating_add_signed(jump.by);
        stored.approval.answer_by = stored.approval.answer_by.map(|end| end.saturating_add_signed(jump.by));
        write(connection, &stored)?;
    }
    Ok(())
}

/// Reads a request with the specification of its directive, as users see it.
fn read_view(row: &Row<'_>, now: i64) -> Result<View, StoreError> {
    let stored = read(row)?;
    let spec: DirectiveSpec = json(&row.get::<_, String>("spec")?)?;
    let approval = stored.approval.step(&ApprovalEvent::Tick, time(now));
    let approval = approval.map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
    let asks = ConnectionAsks { connection: stored.subject, spec };
    Ok(View {
        approval_id: stored.id,
        kind: approval.kind,
        state: approval.state,
        directive_id: stored.directive,
        uses_left: approval.uses_left(),
        expires_at: Timestamp(end(&approval)),
        requested_by: approval.requester.credential,
        approved_by: approval.approvers.into_iter().map(|one| one.credential).collect(),
        denied_by: approval.denied_by.map(|one| one.credential),
        reasons: stored.reasons,
        comment: stored.comment,
        max_uses: approval.max_uses,
        quorum: approval.quorum,
        subject: approval.subject,
        asks: serde_json::to_value(&asks).map_err(|error| StoreError::corrupt(error.to_string()))?,
        asked_at: Timestamp(stored.asked_at),
    })
}

/// A request with the specification of its directive.
const WITH_SPEC: &str = "FROM connection_approval c JOIN directive d ON d.id = c.directive_id";

/// Returns every request of the account, the latest first.
pub fn all(connection: &Connection<'_>, account: Account, page: Page, now: i64) -> Result<Vec<View>, StoreError> {
    let question = format!(
        "SELECT {COLUMNS}, d.spec {WITH_SPEC} WHERE c.account_id = ?1 AND (?2 IS NULL OR c.id < ?2) ORDER BY c.id DESC LIMIT ?3"
    );
    let owner = account.id.as_bytes();
    connection.prepare_cached(&question)?.query_all(params![owner, page.before, page.limit], |row| read_view(row, now))
}

/// Returns the requests of the account that are not over, the soonest end first, after that with this end and id.
pub fn live(
    connection: &Connection<'_>,
    account: Account,
    after: Option<(i64, Id)>,
    limit: u32,
    now: i64,
) -> Result<Vec<View>, StoreError> {
    let question = format!(
        "SELECT {COLUMNS}, d.spec {WITH_SPEC} WHERE c.account_id = ?1 AND c.live AND c.expires_at > ?2
           AND (?4 IS NULL OR (c.expires_at, c.id) > (?4, ?5)) ORDER BY c.expires_at, c.id LIMIT ?3"
    );
    let (end, id) = after.unzip();
    connection
        .prepare_cached(&question)?
        .query_all(params![account.id.as_bytes(), now, limit, end, id], |row| read_view(row, now))
}

/// Returns the end of a request of the account, by which a list goes on.
pub fn end_of(connection: &Connection<'_>, account: Account, id: &Id) -> Result<Option<i64>, StoreError> {
    optional(
        connection
            .prepare_cached("SELECT expires_at FROM connection_approval WHERE id = ?1 AND account_id = ?2")?
            .query_row(params![id, account.id.as_bytes()], |row| row.get(0)),
    )
}

/// Returns a request of the account.
pub fn one(connection: &Connection<'_>, account: Account, id: ApprovalId, now: i64) -> Result<View, StoreError> {
    let question = format!("SELECT {COLUMNS}, d.spec {WITH_SPEC} WHERE c.id = ?1 AND c.account_id = ?2");
    connection
        .prepare_cached(&question)?
        .query_row(params![id.as_bytes(), account.id.as_bytes()], |row| read_view(row, now))
}
