//! Handlers of Conduits v1.

mod enroll;
mod poll;
mod report;

use super::answer::{Answer, Problem};
use super::request::Context;
use crate::app::App;
use crate::identity::TokenClaims;
use crate::store::types::Territory;
use nexus_model::directive::Fence;
use nexus_model::ids::DirectiveId;

/// Runs the handler of an operation of this API; `None` when it belongs to the other one.
pub async fn handle(id: &str, context: &Context) -> Option<Result<Answer, Problem>> {
    Some(match id {
        "enroll" => enroll::enroll(context).await,
        "ca" => Ok(enroll::ca(context)),
        "renewCertificate" => enroll::renew(context).await,
        "territoryHeartbeat" => poll::heartbeat(context).await,
        "poll" => poll::poll(context).await,
        "started" => report::started(context).await,
        "heartbeat" => report::heartbeat(context).await,
        "logChunk" => report::log_chunk(context).await,
        "events" => report::events(context).await,
        "finished" => report::finished(context).await,
        _ => return None,
    })
}

/// Returns a new token for a claim.
fn token(app: &App, territory: Territory, directive: DirectiveId, fence: Fence, attempt: u32) -> String {
    let life = app.config.token_ms.max(app.config.times.ttl_ms);
    let exp = (app.now() + life) / 1000;
    app.tokens.sign(&TokenClaims { sub: directive, territory: territory.id, fence, attempt, exp })
}
