//! Claims of directives.

use super::apply::{EndFacts, apply};
use super::territory::facts;
use super::values::{ANY, Id, json, optional, text};
use super::work::{self, LEASED, Work};
use super::{approval, policy};
use crate::decide::{AtClaim, Policies, at_claim, fits, log_limit};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{self, Claim, Claims, ClassRequirements, Counters, LeaseTimes, Offer, Territory};
use nexus_model::directive::{Event, Fence};
use nexus_model::ids::DirectiveId;
use nexus_policy::document::PolicySet;

/// Claims what fits the territory and the policy of its account, up to its room.
pub fn claim(
    connection: &Connection<'_>,
    territory: Territory,
    offer: &Offer,
    policies: &Policies,
    times: LeaseTimes,
    epoch: u64,
    now: i64,
) -> Result<Claims, StoreError> {
    // Another poll of this territory waits here, and counts what this one claims: the territory is locked before it is counted.
    let locked = connection.locked();
    connection
        .prepare_cached(&format!("SELECT state FROM territory WHERE id = ?1{locked}"))?
        .query_row(params![territory.id.as_bytes()], |row| row.get::<_, i64>(0))?;
    let facts = facts(connection, territory, Some(offer), times, now)?;
    let mut claims = Vec::new();
    let confirms = confirms(connection, territory)?;
    if let Some(poll) = &offer.poll_id {
        claims = repeated(connection, territory, poll)?;
    }
    if claims.is_empty() && facts.active {
        let classes = classes(connection, territory, |class| fits(class, &facts))?;
        let room = facts.capacity.saturating_sub(facts.open).min(offer.max);
        let mut lanes: Vec<Lane> =
            classes.iter().flat_map(|class| [(*class, *territory.id.as_bytes()), (*class, ANY)]).collect();
        let mut in_force = None;
        for _ in 0..room {
            let Some(head) = head(connection, territory, &mut lanes)? else { break };
            let now_in_force = match in_force.take() {
                Some(known) => known,
                None => policy::in_force(connection, territory.account, policies)?,
            };
            // One that may not start is not a head any more.
            claims.extend(take(connection, territory, &head, offer, &now_in_force, confirms, times, epoch, now)?);
            in_force = Some(now_in_force);
        }
    }
    Ok(Claims { claims, facts })
}

/// A daemon that names its version of the protocol knows the rules for claims that it did not start.
fn confirms(connection: &Connection<'_>, territory: Territory) -> Result<bool, StoreError> {
    Ok(optional(
        connection
            .prepare_cached("SELECT protocol_version IS NOT NULL FROM presence WHERE territory_id = ?1")?
            .query_row(params![territory.id.as_bytes()], |row| row.get(0)),
    )?
    .unwrap_or(false))
}

/// The answer to this poll was lost: the daemon gets the claims that it has not started.
fn repeated(connection: &Connection<'_>, territory: Territory, poll: &str) -> Result<Vec<Claim>, StoreError> {
    // SQLite takes the index of held directives only where its own condition stands in the statement.
    let mut statement = connection.prepare_cached(
        "SELECT w.directive_id, w.fence, w.attempt, d.spec, w.asks FROM work w JOIN directive d ON d.id = w.directive_id
           WHERE w.holder = ?1 AND w.phase >= 2 AND w.phase = 2 AND w.poll_id = ?2",
    )?;
    let found = statement.query_all(params![territory.id.as_bytes(), poll], |row| {
        let spec = json(&row.get::<_, String>(3)?)?;
        let fence = Fence(row.get::<_, i64>(1)? as u64);
        let id = DirectiveId::from_bytes(row.get(0)?);
        Ok((Claim { id, spec, fence, attempt: row.get(2)?, approval: None }, row.get::<_, bool>(4)?))
    })?;
    let with_approval = |(claim, asks): (Claim, bool)| {
        let approval = if asks { approval::used(connection, &claim.id)? } else { None };
        Ok(Claim { approval, ..claim })
    };
    found.into_iter().map(with_approval).collect()
}

fn classes(
    connection: &Connection<'_>,
    territory: Territory,
    fits: impl Fn(&ClassRequirements) -> bool,
) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id, requirements FROM class WHERE account_id = ?1")?;
    let mut found = Vec::new();
    statement.each(params![territory.account.as_bytes()], |row| {
        if fits(&json(&row.get::<_, String>(1)?)?) {
            found.push(row.get(0)?);
        }
        Ok(true)
    })?;
    Ok(found)
}

/// A class and a pin.
type Lane = (i64, Id);

/// Rank of the first ready directive of a lane: one look into an index.
pub const FIRST_READY: &str =
    "SELECT rank, directive_id FROM work WHERE account_id = ?1 AND class_id = ?2 AND pin = ?3 AND phase = 1
   ORDER BY rank, directive_id LIMIT 1";

/// Returns the ready directive with the lowest rank among the lanes that fit and that no other claim has locked. Only what is
/// returned is locked: a claim that locked the first of each lane would hide them from all others.
fn head(connection: &Connection<'_>, territory: Territory, lanes: &mut Vec<Lane>) -> Result<Option<Id>, StoreError> {
    let account = territory.account.as_bytes();
    let mut first = connection.prepare_cached(FIRST_READY)?;
    let mut free = connection.prepare_cached(&format!("{FIRST_READY}{}", connection.first_free()))?;
    loop {
        let mut best: Option<(i64, Id, usize)> = None;
        for (place, (class, pin)) in lanes.iter().enumerate() {
            let row = first.query_row(params![account, class, pin], |row| Ok((row.get(0)?, row.get(1)?, place)));
            if let Some(found) = optional(row)? {
                best = Some(best.map_or(found, |known| known.min(found)));
            }
        }
        let Some((_, _, place)) = best else { return Ok(None) };
        let (class, pin) = lanes[place];
        if let Some(id) = optional(free.query_row(params![account, class, pin], |row| row.get(1)))? {
            return Ok(Some(id));
        }
        // Other claims hold all that this lane has.
        lanes.remove(place);
    }
}

#[allow(clippy::too_many_arguments, reason = "one claim with everything that it writes")]
fn take(
    connection: &Connection<'_>,
    territory: Territory,
    id: &Id,
    offer: &Offer,
    policies: &PolicySet,
    confirms: bool,
    times: LeaseTimes,
    epoch: u64,
    now: i64,
) -> Result<Option<Claim>, StoreError> {
    let id = DirectiveId::from_bytes(*id);
    let work = work::load(connection, &id)?.ok_or(StoreError::NotFound)?;
    if !may_go_out(connection, &work, policies, now)? {
        return Ok(None);
    }
    let mut used = None;
    if work.asks {
        used = approval::take(connection, &work, territory, now)?;
        if used.is_none() {
            return Ok(None);
        }
    }
    let fence = work.fence.next(epoch).ok_or_else(|| StoreError::corrupt("the fences are used up"))?;
    apply(connection, &work, &Event::Claim { fence }, now, EndFacts::default())?
        .map_err(|refusal| StoreError::corrupt(refusal.to_string()))?;
    let attempt = work.attempt + 1;
    let empty = text(&Counters::default())?;
    connection
        .prepare_cached(
            "UPDATE work SET phase = ?2, holder = ?3, poll_id = ?4, attempt = ?5, fence = ?6, confirms = ?7, visible_at = ?8,
               lease_until = ?9, out = ?10, err = ?10 WHERE directive_id = ?1",
        )?
        .execute(params![
            id.as_bytes(),
            LEASED,
            territory.id.as_bytes(),
            offer.poll_id,
            attempt,
            fence.0 as i64,
            confirms,
            confirms.then_some(now + times.start_ms),
            now + times.ttl_ms,
            empty,
        ])?;
    let spec: String = connection
        .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
        .query_row(params![id.as_bytes()], |row| row.get(0))?;
    Ok(Some(Claim { id, spec: json(&spec)?, fence, attempt, approval: used }))
}

/// Holds a directive against the documents of this moment. One that they forbid is taken from the claims, and one that names fewer
/// limits than they have gets theirs.
fn may_go_out(connection: &Connection<'_>, work: &Work, policies: &PolicySet, now: i64) -> Result<bool, StoreError> {
    if policies.documents().is_empty() {
        return Ok(true);
    }
    let id = work.directive();
    let spec: String = connection
        .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
        .query_row(params![work.id], |row| row.get(0))?;
    let approvers =
        if work.asks { Some(approval::used(connection, &id)?.map_or(0, |one| one.approvers)) } else { None };
    match at_claim(policies.effective(), &json(&spec)?, approvers) {
        AtClaim::Same => Ok(true),
        AtClaim::Lowered(spec) => {
            connection
                .prepare_cached("UPDATE directive SET spec = ?2 WHERE id = ?1")?
                .execute(params![work.id, text(&*spec)?])?;
            connection
                .prepare_cached("UPDATE work SET log_limit = ?2 WHERE directive_id = ?1")?
                .execute(params![work.id, log_limit(&spec)])?;
            Ok(true)
        }
        AtClaim::Denied(why) => approval::deny(connection, work, (policies.hash(), &why), now).map(|()| false),
    }
}

/// Takes back claims whose answer reached no daemon. A claim that was started meanwhile stays.
pub fn return_claims(
    connection: &Connection<'_>,
    territory: Territory,
    claims: &[(DirectiveId, Fence)],
    now: i64,
) -> Result<Vec<types::Lane>, StoreError> {
    let mut lanes = Vec::new();
    for (id, fence) in claims {
        let Some(work) = work::hold(connection, id)? else { continue };
        if work.holder != Some(*territory.id.as_bytes()) {
            continue;
        }
        if let Ok(effect) = apply(connection, &work, &Event::Returned { fence: *fence }, now, EndFacts::default())? {
            lanes.extend(effect.lane);
        }
    }
    Ok(lanes)
}
