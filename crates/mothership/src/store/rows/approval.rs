//! Approvals of directives: one row for each, changed by `nexus_model::approval` alone.
//!
//! ```text
//!  create, a policy asks ─▶ request: the approval is pending, the directive has the phase AWAITS, which no claim looks at
//!  answer ─ the last of the quorum ─▶ the directive is queued        ─ a refusal ─▶ it is rejected
//!  claim ─▶ take: is it exactly what was approved? ─ yes ─▶ a use less, in the transaction of the claim
//!                                                  └ no ─▶ AWAITS again, and settle rejects it
//! ```
//! Each change of an approval holds the row of its directive first, and the facility before that.

use super::apply::{Effect, EndFacts, apply, over, requirements};
use super::audit;
use super::values::{Id, json, optional, text};
use super::withdrawal::withdraw;
use super::work::{self, AWAITS, LEASED, Work};
use crate::store::error::StoreError;
use crate::store::jump::Jump;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{Account, Answered, ApprovalAnswer, Asks, NewDirective, NotAnswered, Page, Territory};
use nexus_api::Timestamp;
use nexus_api::conduits::ClaimApproval;
use nexus_api::mothership::Approval as View;
use nexus_model::approval::{Actor, Approval, ApprovalEvent, ApprovalKind, ApprovalState};
use nexus_model::digest::Digest;
use nexus_model::directive::{Event, MAX_STARTS, OnLeaseLoss};
use nexus_model::ids::{AccountId, ApprovalId, DirectiveId, TerritoryId};
use nexus_model::subject::DirectiveSubject;
use serde_json::json;
use uuid::Uuid;

/// Approvals of one account that are not over.
const MAX_LIVE: i64 = 1_000;
/// Largest number of approvals of one round of the reaper.
const MAX_ROUND: i64 = 200;
const COLUMNS: &str = "id, account_id, directive_id, asked_at, reasons, subject, approval, comment";

/// An approval as it is stored.
struct Stored {
    id: ApprovalId,
    account: AccountId,
    directive: Id,
    asked_at: i64,
    reasons: Vec<String>,
    subject: DirectiveSubject,
    approval: Approval,
    comment: Option<String>,
}

fn read(row: &Row<'_>) -> Result<Stored, StoreError> {
    Ok(Stored {
        id: ApprovalId::from_bytes(row.get("id")?),
        account: AccountId::from_bytes(row.get("account_id")?),
        directive: row.get("directive_id")?,
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

fn actor(account: Account) -> Actor {
    // There are no users yet: each key stands for one.
    let key = Uuid::from_bytes(account.key).to_string();
    Actor { user: key.clone(), credential: key }
}

/// Asks for the approval of a directive that is about to be stored.
pub fn request(
    connection: &Connection<'_>,
    account: Account,
    new: &NewDirective,
    asks: &Asks,
    pin: Option<Id>,
    now: i64,
) -> Result<(), StoreError> {
    let live: i64 = connection
        .prepare_cached("SELECT count(*) FROM approval WHERE account_id = ?1 AND live")?
        .query_row(params![account.id.as_bytes()], |row| row.get(0))?;
    if live >= MAX_LIVE {
        return Err(StoreError::TooManyApprovals);
    }
    let subject = DirectiveSubject {
        spec: new.spec.clone(),
        labels: new.class.labels.0.clone(),
        territory_id: pin.map(TerritoryId::from_bytes),
    };
    let digest = subject.digest().ok_or_else(|| StoreError::corrupt("a specification without a hash"))?;
    // Each start takes a use. One that is queued again when its territory is lost may start more than once.
    let uses = if new.spec.on_lease_loss == Some(OnLeaseLoss::Requeue) { MAX_STARTS } else { 1 };
    let expires_at = now.saturating_add(asks.life_ms);
    let approval = Approval::request(ApprovalKind::Exec, digest, actor(account), time(expires_at), uses, asks.quorum)
        .map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
    let id = ApprovalId::new();
    connection
        .prepare_cached(
            "INSERT INTO approval (id, account_id, directive_id, live, asked_at, expires_at, reasons, subject, approval)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            id.as_bytes(),
            account.id.as_bytes(),
            new.spec.directive_id.as_bytes(),
            true,
            now,
            expires_at,
            text(&asks.reasons)?,
            text(&subject)?,
            text(&approval)?,
        ])?;
    let detail = json!({"directive": new.spec.directive_id, "subject": digest, "max_uses": uses, "quorum": asks.quorum, "expires_at": Timestamp(expires_at)});
    audit::note(connection, account, "approval.request", &format!("approval/{id}"), &detail, now)
}

/// Returns the approval of a directive.
fn of(connection: &Connection<'_>, directive: &Id) -> Result<Option<Stored>, StoreError> {
    let locked = connection.locked();
    let question = format!("SELECT {COLUMNS} FROM approval WHERE directive_id = ?1{locked}");
    optional(connection.prepare_cached(&question)?.query_row(params![directive], read))
}

fn write(connection: &Connection<'_>, stored: &Stored) -> Result<(), StoreError> {
    let approval = &stored.approval;
    connection
        .prepare_cached("UPDATE approval SET live = ?2, expires_at = ?3, approval = ?4, comment = ?5 WHERE id = ?1")?
        .execute(params![
            stored.id.as_bytes(),
            !approval.state.is_over(),
            i64::try_from(approval.expires_at).unwrap_or(i64::MAX),
            text(approval)?,
            stored.comment,
        ])?;
    Ok(())
}

/// Answers the approval of a directive.
pub fn answer(
    connection: &Connection<'_>,
    account: Account,
    directive: DirectiveId,
    answer: &ApprovalAnswer,
    now: i64,
) -> Result<Answered, StoreError> {
    let work = work::hold(connection, &directive)?;
    let owner = match &work {
        Some(work) => Some(work.account),
        None => over(connection, &directive)?.map(|over| over.account),
    };
    if owner != Some(account.id) {
        return Err(StoreError::NotFound);
    }
    let Some(mut stored) = of(connection, directive.as_bytes())? else { return Ok(Err(NotAnswered::NotAsked)) };
    if answer.subject.is_some_and(|subject| subject != stored.approval.subject) {
        return Ok(Err(NotAnswered::OtherSubject));
    }
    let by = actor(account);
    let event = match answer.allow {
        Some(allow) => ApprovalEvent::Approve {
            by,
            max_uses: allow.max_uses,
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
    let state = stored.approval.state;
    let action = if answer.allow.is_some() { "approval.approve" } else { "approval.deny" };
    let detail = json!({
        "directive": directive, "subject": stored.approval.subject, "state": state, "max_uses": stored.approval.max_uses,
        "expires_at": Timestamp(i64::try_from(stored.approval.expires_at).unwrap_or(i64::MAX)), "comment": stored.comment,
    });
    audit::note(connection, account, action, &format!("approval/{}", stored.id), &detail, now)?;
    // A directive that runs goes on: what is taken back are further starts.
    let Some(work) = work.filter(|work| work.phase < LEASED) else { return Ok(Ok(None)) };
    let event = match state {
        ApprovalState::Granted => Event::Approve,
        ApprovalState::Denied => Event::Reject,
        _ => return Ok(Ok(None)),
    };
    if state == ApprovalState::Granted {
        // The time in the queue begins now.
        connection
            .prepare_cached("UPDATE work SET queue_until = queue_until + ?2 WHERE directive_id = ?1")?
            .execute(params![work.id, now - stored.asked_at])?;
    }
    match apply(connection, &work, &event, now, EndFacts::default())? {
        Ok(effect) => Ok(Ok(effect.lane)),
        Err(refusal) => Err(StoreError::corrupt(refusal.to_string())),
    }
}

/// Name of the use of the next start. A claim that was never started is repeated with the same use.
fn use_name(work: &Work) -> String {
    format!("start {}", work.starts + 1)
}

/// Takes a use for a claim; `None` when exactly this may not start. The directive waits again then, and [`settle`] ends it.
pub fn take(
    connection: &Connection<'_>,
    work: &Work,
    territory: Territory,
    now: i64,
) -> Result<Option<ClaimApproval>, StoreError> {
    let Some(mut stored) = of(connection, &work.id)? else { return park(connection, work).map(|()| None) };
    let spec: String = connection
        .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
        .query_row(params![work.id], |row| row.get(0))?;
    // What is about to be handed out, and to whom: not what the approval says about itself.
    let subject = DirectiveSubject {
        spec: json(&spec)?,
        labels: requirements(connection, work.class)?.labels.0,
        territory_id: stored.subject.territory_id.map(|_| territory.id),
    };
    let before = stored.approval.clone();
    let used = subject.digest().map(|subject| {
        let event = ApprovalEvent::Use { subject, name: use_name(work) };
        stored.approval.step(&event, time(now))
    });
    let Some(Ok(used)) = used else {
        let withdrawn = before.step(&ApprovalEvent::Withdraw, time(now));
        stored.approval = withdrawn.map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
        write(connection, &stored)?;
        return park(connection, work).map(|()| None);
    };
    stored.approval = used;
    if stored.approval != before {
        write(connection, &stored)?;
        let detail = json!({
            "directive": work.directive(), "subject": before.subject, "use": use_name(work),
            "uses_left": stored.approval.uses_left(),
        });
        let object = format!("approval/{}", stored.id);
        audit::note_of_territory(connection, work.account, territory.id, "approval.use", &object, &detail, now)?;
    }
    Ok(Some(of_claim(&stored)))
}

/// Takes a directive from the claims; [`settle`] ends it. `denied`: the policy in force forbids it.
fn park_as(connection: &Connection<'_>, work: &Work, denied: bool) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE work SET phase = ?2, denied = ?3, version = version + 1 WHERE directive_id = ?1")?
        .execute(params![work.id, AWAITS, denied])?;
    Ok(())
}

fn park(connection: &Connection<'_>, work: &Work) -> Result<(), StoreError> {
    park_as(connection, work, false)
}

/// Takes a directive from the claims that the policy in force forbids, and says why in the audit chain. [`settle`] rejects it: a claim
/// holds no facility, which an end needs.
pub fn deny(
    connection: &Connection<'_>,
    work: &Work,
    (policies, why): (Digest, &str),
    now: i64,
) -> Result<(), StoreError> {
    park_as(connection, work, true)?;
    let detail = json!({"policies": policies, "why": why});
    let object = format!("directive/{}", work.directive());
    audit::note_of_server(connection, work.account, "directive.deny", &object, &detail, now)
}

fn of_claim(stored: &Stored) -> ClaimApproval {
    ClaimApproval {
        approval_id: stored.id,
        subject: stored.approval.subject,
        labels: stored.subject.labels.clone(),
        territory_id: stored.subject.territory_id,
        approvers: u32::try_from(stored.approval.approvers.len()).unwrap_or(u32::MAX),
    }
}

/// Returns the approval that a claim has used already.
pub fn used(connection: &Connection<'_>, directive: &DirectiveId) -> Result<Option<ClaimApproval>, StoreError> {
    Ok(of(connection, directive.as_bytes())?.as_ref().map(of_claim))
}

/// Returns whether the directive may start again.
pub fn may_start_again(connection: &Connection<'_>, work: &Work, now: i64) -> Result<bool, StoreError> {
    let Some(stored) = of(connection, &work.id)? else { return Ok(false) };
    let event = ApprovalEvent::Use { subject: stored.approval.subject, name: use_name(work) };
    Ok(stored.approval.step(&event, time(now)).is_ok())
}

/// Moves the end of each approval that is not over by a jump of the clock.
pub fn shift(connection: &Connection<'_>, jump: Jump) -> Result<(), StoreError> {
    let locked = connection.locked();
    let live = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM approval WHERE live{locked}"))?
        .query_all(params![], read)?;
    for mut stored in live.into_iter().filter(|stored| !jump.is_before(stored.asked_at)) {
        stored.approval.expires_at = stored.approval.expires_at.saturating_add_signed(jump.by);
        write(connection, &stored)?;
    }
    Ok(())
}

/// Lists directives whose approval has to be settled.
pub fn due(connection: &Connection<'_>, now: i64) -> Result<Vec<DirectiveId>, StoreError> {
    let mut found = connection
        .prepare_cached("SELECT directive_id FROM approval WHERE live AND expires_at <= ?1 LIMIT ?2")?
        .query_all(params![now, MAX_ROUND], |row| Ok(DirectiveId::from_bytes(row.get(0)?)))?;
    // The order leads SQLite to the index of directives that wait for an approval: it would go over one of all directives.
    let parked = connection
        .prepare_cached(
            "SELECT w.directive_id FROM work w WHERE w.phase = -1
               AND (w.denied OR NOT EXISTS (SELECT 1 FROM approval a WHERE a.directive_id = w.directive_id AND a.live))
               ORDER BY w.directive_id LIMIT ?1",
        )?
        .query_all(params![MAX_ROUND], |row| Ok(DirectiveId::from_bytes(row.get(0)?)))?;
    found.extend(parked);
    Ok(found)
}

/// Ends an approval whose time is over, and the directive that waits for it or was not claimed with it.
pub fn settle(connection: &Connection<'_>, directive: &DirectiveId, now: i64) -> Result<Option<Effect>, StoreError> {
    let Some(work) = work::hold(connection, directive)? else {
        return withdraw(connection, directive.as_bytes(), now).map(|()| None);
    };
    if work.denied && work.phase == AWAITS {
        return Ok(apply(connection, &work, &Event::PolicyDenied, now, EndFacts::default())?.ok());
    }
    let state = match of(connection, directive.as_bytes())? {
        None => ApprovalState::Withdrawn,
        Some(mut stored) => {
            let next = stored.approval.step(&ApprovalEvent::Tick, time(now));
            let next = next.map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
            if next != stored.approval {
                stored.approval = next;
                write(connection, &stored)?;
                let detail = json!({"directive": directive, "subject": stored.approval.subject});
                let object = format!("approval/{}", stored.id);
                audit::note_of_server(connection, stored.account, "approval.expire", &object, &detail, now)?;
            }
            stored.approval.state
        }
    };
    let event = match state {
        ApprovalState::Expired => Event::ApprovalExpired,
        ApprovalState::Denied => Event::Reject,
        ApprovalState::Withdrawn => Event::ApprovalVoid,
        // A claim that was used and not started comes back to the same use.
        ApprovalState::Used if work.phase == AWAITS => Event::ApprovalVoid,
        ApprovalState::Used | ApprovalState::Pending | ApprovalState::Granted => return Ok(None),
    };
    if work.phase >= LEASED {
        return Ok(None);
    }
    Ok(apply(connection, &work, &event, now, EndFacts::default())?.ok())
}

fn view(stored: Stored, now: i64) -> Result<View, StoreError> {
    let approval = stored.approval.step(&ApprovalEvent::Tick, time(now));
    let approval = approval.map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
    Ok(View {
        approval_id: stored.id,
        kind: approval.kind,
        state: approval.state,
        directive_id: DirectiveId::from_bytes(stored.directive),
        uses_left: approval.uses_left(),
        requested_by: approval.requester.credential,
        approved_by: approval.approvers.into_iter().map(|one| one.credential).collect(),
        denied_by: approval.denied_by.map(|one| one.credential),
        reasons: stored.reasons,
        comment: stored.comment,
        max_uses: approval.max_uses,
        quorum: approval.quorum,
        subject: approval.subject,
        asks: serde_json::to_value(&stored.subject).map_err(|error| StoreError::corrupt(error.to_string()))?,
        asked_at: Timestamp(stored.asked_at),
        expires_at: Timestamp(i64::try_from(approval.expires_at).unwrap_or(i64::MAX)),
    })
}

/// Returns the approvals of the account that are not over, the soonest end first, or every one, the latest first. Those of connections
/// stand among those of directives.
pub fn approvals(
    connection: &Connection<'_>,
    account: Account,
    all: bool,
    page: Page,
    now: i64,
) -> Result<Vec<View>, StoreError> {
    let owner = account.id.as_bytes();
    let mut found: Vec<View> = if all {
        let question = format!(
            "SELECT {COLUMNS} FROM approval WHERE account_id = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3"
        );
        let rows = connection.prepare_cached(&question)?.query_all(params![owner, page.before, page.limit], read)?;
        let mut found = rows.into_iter().map(|row| view(row, now)).collect::<Result<Vec<_>, _>>()?;
        found.extend(super::connection::all(connection, account, page, now)?);
        found.sort_by_key(|one| std::cmp::Reverse(one.approval_id));
        found
    } else {
        let after = match page.before {
            None => None,
            // A list that goes on after something that is gone has nothing left to show.
            Some(id) => match end_of(connection, account, &id)? {
                Some(end) => Some((end, id)),
                None => return Ok(Vec::new()),
            },
        };
        let question = format!(
            "SELECT {COLUMNS} FROM approval WHERE account_id = ?1 AND live AND expires_at > ?2
               AND (?4 IS NULL OR (expires_at, id) > (?4, ?5)) ORDER BY expires_at, id LIMIT ?3"
        );
        let (end, id) = after.unzip();
        let rows = connection.prepare_cached(&question)?.query_all(params![owner, now, page.limit, end, id], read)?;
        let mut found = rows.into_iter().map(|row| view(row, now)).collect::<Result<Vec<_>, _>>()?;
        found.extend(super::connection::live(connection, account, after, page.limit, now)?);
        found.sort_by_key(|one| (one.expires_at.0, one.approval_id));
        found
    };
    found.truncate(page.limit as usize);
    Ok(found)
}

fn end_of(connection: &Connection<'_>, account: Account, id: &Id) -> Result<Option<i64>, StoreError> {
    let end = connection
        .prepare_cached("SELECT expires_at FROM approval WHERE id = ?1 AND account_id = ?2")?
        .query_row(params![id, account.id.as_bytes()], |row| row.get(0));
    match optional(end)? {
        None => super::connection::end_of(connection, account, id),
        known => Ok(known),
    }
}

/// Returns an approval of the account.
pub fn approval(connection: &Connection<'_>, account: Account, id: ApprovalId, now: i64) -> Result<View, StoreError> {
    let question = format!("SELECT {COLUMNS} FROM approval WHERE id = ?1 AND account_id = ?2");
    let row = connection.prepare_cached(&question)?.query_row(params![id.as_bytes(), account.id.as_bytes()], read);
    match optional(row)? {
        Some(row) => view(row, now),
        None => super::connection::one(connection, account, id, now),
    }
}

/// Returns the approval of a directive of the account.
pub fn approval_of(
    connection: &Connection<'_>,
    account: Account,
    directive: DirectiveId,
    now: i64,
) -> Result<Option<View>, StoreError> {
    let question = format!("SELECT {COLUMNS} FROM approval WHERE directive_id = ?1 AND account_id = ?2");
    let row =
        connection.prepare_cached(&question)?.query_row(params![directive.as_bytes(), account.id.as_bytes()], read);
    optional(row)?.map(|row| view(row, now)).transpose()
}
