//! Handlers of directives: create, list, read, cancel.

use crate::decide::build;
use crate::http::answer::{Answer, Problem, created, ok};
use crate::http::cursor;
use crate::http::request::Context;
use crate::metrics::add;
use crate::store::types::Creation;
use nexus_api::Timestamp;
use nexus_api::mothership::{
    CancelRequest, CreateDirective, CreatedDirective, Directive, DirectiveList, DirectiveStateAnswer,
    IDEMPOTENCY_HEADER,
};
use nexus_model::digest::Digest;
use nexus_model::ids::{DirectiveId, FacilityId};

/// Creates a directive.
pub async fn create(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let facility: FacilityId = context.id("facility_id")?;
    let request: CreateDirective = context.json()?;
    let key = idempotency_key(context)?;
    let body_hash = Digest::of_json(&(facility, &request)).map(|hash| hash.to_string()).unwrap_or_default();
    let facility = app.store.facility_ref(account, facility).await?;
    let policies = app.store.policies(account.id, &app.policies).await?;
    let mut new = build(request, facility, account.role, policies.effective(), app.config.approval_ms)
        .map_err(|rejection| Problem::invalid(rejection.code(), format!("The directive was refused: {rejection}.")))?;
    new.policies = Some(policies.hash());
    new.idempotency = key.map(|key| (key, body_hash));
    match app.store.create_directive(account, new, app.now()).await? {
        Creation::OtherBody => {
            Err(Problem::conflict("idempotency_key_reused", "The idempotency key was used with another request."))
        }
        Creation::Stored { id, state, created_at, lane } => {
            add(&app.metrics.created, 1);
            app.wake(&lane);
            Ok(created(&CreatedDirective { directive_id: id, state, created_at: Timestamp(created_at) }))
        }
    }
}

fn idempotency_key(context: &Context) -> Result<Option<String>, Problem> {
    let Some(value) = context.headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=200).contains(&key.len()));
    match key {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Problem::invalid("invalid_field", "Idempotency-Key must have 1 to 200 visible characters.")),
    }
}

/// Lists the directives of a facility.
pub async fn list_of_facility(context: &Context) -> Result<Answer, Problem> {
    let facility: FacilityId = context.id("facility_id")?;
    page_of(context, Some(facility)).await
}

/// Lists the directives of the account.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    page_of(context, None).await
}

async fn page_of(context: &Context, facility: Option<FacilityId>) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let list = facility.map_or_else(|| "directives".to_owned(), |facility| format!("directives of {facility}"));
    let page = cursor::page(context, account, &list)?;
    let directives = app.store.directives(account, facility, page, app.config.times, app.now()).await?;
    let last: Option<&Directive> = directives.last().filter(|_| directives.len() == page.limit as usize);
    let next_cursor = last.map(|last| cursor::write(&app.cursors, account, &list, last.directive_id.as_bytes()));
    Ok(ok(&DirectiveList { directives, next_cursor }))
}

/// Returns one directive.
pub async fn get(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let id: DirectiveId = context.id("directive_id")?;
    Ok(ok(&app.store.directive(context.account()?, id, app.config.times, app.now()).await?))
}

/// Asks for the end of a directive.
pub async fn cancel(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let id: DirectiveId = context.id("directive_id")?;
    let _comment: CancelRequest = context.json()?;
    let (state, cancel_requested, lane) = app
        .store
        .cancel(context.account()?, id, app.now())
        .await?
        .map_err(|refusal| Problem::conflict(refusal.code(), format!("The cancel comes too late: {refusal}.")))?;
    app.changed(id);
    app.wake(&lane);
    Ok(ok(&DirectiveStateAnswer { directive_id: id, state, cancel_requested }))
}
