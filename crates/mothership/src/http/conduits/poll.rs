//! Heartbeats of territories, and polls.

use super::token::token;
use crate::app::{Shared, stopped};
use crate::http::answer::{Answer, Problem, ok};
use crate::http::auth;
use crate::http::request::Context;
use crate::metrics::add;
use crate::store::StoreError;
use crate::store::types::{Claims, Offer, Presence, Territory};
use nexus_api::conduits::{
    ClaimedDirective, DirectiveVerdict, MAX_CLAIMS, MAX_WAIT_SECONDS, PollAnswer, PollRequest,
    TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest, Verdict,
};
use std::sync::PoisonError;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Each waiting poll looks again after this time, whatever wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Directives that one heartbeat may name.
const MAX_BEATS: usize = 1_000;

/// Stores a heartbeat of a territory.
pub async fn heartbeat(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let territory = context.territory()?;
    let request: TerritoryHeartbeatRequest = context.json()?;
    let asked = request.directives.is_some();
    let beats = request.directives.unwrap_or_default();
    if beats.len() > MAX_BEATS {
        return Err(Problem::invalid("invalid_field", format!("directives must have at most {MAX_BEATS} entries.")));
    }
    let beat = Presence {
        labels: request.labels,
        capacity: request.capacity,
        nexus_version: request.nexus_version,
        protocol_version: request.protocol_version,
        running: request.running_directives_count,
        directives: beats.into_iter().map(|beat| (beat.directive_id, beat.fence, beat.progress)).collect(),
    };
    let verdicts = app.store.presence(territory, beat, app.config.times, app.now()).await?;
    let directives = verdicts
        .into_iter()
        .map(|(directive_id, fence, attempt, verdict)| DirectiveVerdict {
            directive_id,
            verdict,
            directive_token: (verdict != Verdict::Lost).then(|| token(app, territory, directive_id, fence, attempt)),
        })
        .collect();
    Ok(ok(&TerritoryHeartbeatAnswer {
        ok: true,
        territory_id: territory.id,
        next_heartbeat_interval_seconds: app.config.heartbeat_interval_seconds,
        upgrade_available: false,
        latest_version: app.config.version.clone(),
        min_compatible_version: app.config.version.clone(),
        directives: asked.then_some(directives),
    }))
}

/// Claims directives, and waits for one as long as the request says.
pub async fn poll(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let territory = context.territory()?;
    let request: PollRequest = context.json()?;
    if request.poll_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > 200) {
        return Err(Problem::invalid("invalid_field", "poll_id must have 1 to 200 bytes."));
    }
    let wait = Duration::from_secs(u64::from(request.wait_seconds.unwrap_or(0).min(MAX_WAIT_SECONDS)));
    let offer = Offer {
        profiles: request.supported_sandbox_profiles,
        guarantees: request.guarantees,
        max: request.max_directives_to_claim.min(MAX_CLAIMS),
        poll_id: request.poll_id,
    };
    let until = Instant::now() + wait;
    // The poll enters before it looks: a directive that becomes ready in between wakes it.
    let seat = app.lobby.enter(territory.account);
    let mut stopping = app.stopping.clone();
    loop {
        let claims = if app.is_stopping() { None } else { Some(claim(app, territory, offer.clone()).await?) };
        let Some(claims) = claims else { return empty(app, territory) };
        // The rights may have gone while the poll waited, with this certificate or with the territory.
        if let Err(problem) = auth::recheck_territory(context).await {
            give_back(app, territory, &claims).await;
            return Err(problem);
        }
        if !claims.claims.is_empty() {
            add(&app.metrics.claimed, claims.claims.len() as u64);
            return Ok(claimed(app, territory, &claims));
        }
        let now = Instant::now();
        if now >= until {
            return empty(app, territory);
        }
        seat.set_facts(claims.facts);
        tokio::select! {
            () = seat.woken() => {}
            () = tokio::time::sleep(LOOK_EVERY.min(until - now)) => {}
            () = stopped(&mut stopping) => {}
        }
    }
}

/// Claims in a task of its own: when the client goes away meanwhile, the claims are taken back at once.
async fn claim(app: &Shared, territory: Territory, offer: Offer) -> Result<Claims, StoreError> {
    let (answer, result) = oneshot::channel();
    let app = app.clone();
    tokio::spawn(async move {
        let claims = app.store.claim(territory, offer, &app.policies, app.config.times, app.now()).await;
        let Err(Ok(unsent)) = answer.send(claims) else { return };
        give_back(&app, territory, &unsent).await;
    });
    result.await.map_err(|_| StoreError::Closed)?
}

/// Takes back claims whose answer no daemon gets.
async fn give_back(app: &Shared, territory: Territory, claims: &Claims) {
    let claims: Vec<_> = claims.claims.iter().map(|claim| (claim.id, claim.fence)).collect();
    if claims.is_empty() {
        return;
    }
    // A failure leaves the claims to the reaper.
    if let Ok(lanes) = app.store.return_claims(territory, claims, app.now()).await {
        app.wake(&lanes);
    }
}

fn claimed(app: &Shared, territory: Territory, claims: &Claims) -> Answer {
    let lease = app.config.lease_seconds();
    let directives = claims
        .claims
        .iter()
        .map(|claim| {
            app.changed(claim.id);
            ClaimedDirective {
                directive_id: claim.id,
                directive_token: token(app, territory, claim.id, claim.fence, claim.attempt),
                spec: claim.spec.clone(),
                fence: Some(claim.fence),
                attempt: Some(claim.attempt),
                lease_ttl_seconds: Some(lease),
                approval: claim.approval.clone(),
            }
        })
        .collect();
    ok(&PollAnswer { directives, lease_ttl_seconds: lease, retry_after_seconds: 0 })
}

/// Only polls that find nothing are counted: a daemon that ends many short directives asks again at once.
fn empty(app: &Shared, territory: Territory) -> Result<Answer, Problem> {
    let mut polls = app.empty_polls.lock().unwrap_or_else(PoisonError::into_inner);
    polls
        .count(territory.id, app.config.clock.steady())
        .map_err(|seconds| Problem::too_many("The territory asks for work too often.", seconds))?;
    Ok(ok(&PollAnswer {
        directives: Vec::new(),
        lease_ttl_seconds: app.config.lease_seconds(),
        retry_after_seconds: app.config.poll_interval_seconds,
    }))
}
