//! Enrolment tokens and API keys.

use crate::http::answer::{Answer, Problem, created, ok};
use crate::http::request::Context;
use crate::identity::Secret;
use nexus_api::Timestamp;
use nexus_api::mothership::{ApiKeyList, CreateApiKey, CreateEnrollmentToken, CreatedApiKey, EnrollmentToken};
use uuid::Uuid;

const DEFAULT_TTL_SECONDS: u64 = 3_600;
const MAX_TTL_SECONDS: u64 = 7 * 86_400;

/// Creates an enrolment token.
pub async fn create_enrollment_token(context: &Context) -> Result<Answer, Problem> {
    let account = context.account()?;
    let request: CreateEnrollmentToken = context.json()?;
    let ttl = request.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
    if ttl == 0 || ttl > MAX_TTL_SECONDS {
        return Err(Problem::invalid("invalid_field", format!("ttl_seconds must be 1 to {MAX_TTL_SECONDS}.")));
    }
    let secret = Secret::make("nxe_")?;
    let now = context.app.now();
    let expires_at = now + (ttl * 1000) as i64;
    let labels = request.labels.unwrap_or_default();
    context.app.store.create_enroll_token(account, secret.hash, request.kind, labels, [expires_at, now]).await?;
    Ok(created(&EnrollmentToken { token: secret.text, expires_at: Timestamp(expires_at) }))
}

/// Creates an API key.
pub async fn create_api_key(context: &Context) -> Result<Answer, Problem> {
    let account = context.account()?;
    let request: CreateApiKey = context.json()?;
    let secret = Secret::make("nxk_")?;
    let now = context.app.now();
    let api_key_id = context.app.store.create_api_key(account, secret.hash, request.role, request.name, now).await?;
    let (api_key, role) = (secret.text, request.role);
    Ok(created(&CreatedApiKey { api_key_id, api_key, role, created_at: Timestamp(now) }))
}

/// Lists the API keys of the account.
pub async fn list_api_keys(context: &Context) -> Result<Answer, Problem> {
    let api_keys = context.app.store.api_keys(context.account()?).await?;
    Ok(ok(&ApiKeyList { api_keys }))
}

/// Deletes an API key of the account.
pub async fn delete_api_key(context: &Context) -> Result<Answer, Problem> {
    let id: Uuid = context.id("api_key_id")?;
    if !context.app.store.delete_api_key(context.account()?, *id.as_bytes(), context.app.now()).await? {
        return Err(Problem::conflict("own_key", "An API key cannot delete itself.").hint("Use another owner's key."));
    }
    context.app.revoked();
    Ok(ok(&serde_json::json!({"ok": true})))
}
