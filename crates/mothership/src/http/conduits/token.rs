//! Tokens that go out with claims and heartbeats.

use crate::app::App;
use crate::identity::TokenClaims;
use crate::store::types::Territory;
use nexus_model::directive::Fence;
use nexus_model::ids::DirectiveId;

/// Returns a new token for a claim.
pub fn token(app: &App, territory: Territory, directive: DirectiveId, fence: Fence, attempt: u32) -> String {
    let life = app.config.token_ms.max(app.config.times.ttl_ms);
    let exp = (app.config.clock.steady() + life) / 1000;
    app.tokens.sign(&TokenClaims { sub: directive, territory: territory.id, fence, attempt, exp })
}
