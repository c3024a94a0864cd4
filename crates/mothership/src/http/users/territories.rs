//! Handlers of territories: list, read, drain, revoke.

use crate::http::answer::{Answer, Problem, ok};
use crate::http::request::Context;
use nexus_api::mothership::TerritoryList;
use nexus_model::ids::TerritoryId;

/// Lists the territories of the account.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let territories = app.store.territories(context.account()?, None, app.config.times, app.now()).await?;
    Ok(ok(&TerritoryList { territories }))
}

/// Returns one territory.
pub async fn get(context: &Context) -> Result<Answer, Problem> {
    let id: TerritoryId = context.id("territory_id")?;
    let app = &context.app;
    let mut found = app.store.territories(context.account()?, Some(id), app.config.times, app.now()).await?;
    found.pop().map(|territory| ok(&territory)).ok_or_else(Problem::not_found)
}

/// Lets a territory finish its directives and take no others.
pub async fn drain(context: &Context) -> Result<Answer, Problem> {
    let id: TerritoryId = context.id("territory_id")?;
    context.app.store.drain(context.account()?, id, context.app.now()).await?;
    get(context).await
}

/// Takes every right from a territory. Requests on open connections are refused from now on.
pub async fn revoke(context: &Context) -> Result<Answer, Problem> {
    let id: TerritoryId = context.id("territory_id")?;
    context.app.store.revoke(context.account()?, id, context.app.now()).await?;
    context.app.revoked();
    get(context).await
}
