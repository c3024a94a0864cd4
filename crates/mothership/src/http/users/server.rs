//! Health, metrics and the documents of the contract.

use crate::http::answer::{Answer, Problem, bytes_answer, ok};
use crate::http::request::Context;
use axum::http::StatusCode;
use nexus_api::documents;
use serde_json::json;
use std::time::Duration;

/// Time that the store of a ready server has for an answer.
const READY_WITHIN: Duration = Duration::from_secs(3);

/// Answers while the process runs.
pub fn healthz() -> Answer {
    ok(&json!({"ok": true}))
}

/// Answers 200 while the server takes requests and its store works and has room.
pub async fn readyz(context: &Context) -> Result<Answer, Problem> {
    if context.app.is_stopping() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "The server stops."));
    }
    if context.app.fullness.is_full(context.app.config.clock.boot()) {
        let error = "The store of the server is full.";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_full", error));
    }
    let asked = context.app.store.key_by_hash([0; 32]);
    tokio::time::timeout(READY_WITHIN, asked)
        .await
        .map_err(|_| Problem::busy("store_failed", "The store of the server does not answer."))??;
    Ok(ok(&json!({"ok": true})))
}

/// Returns the counters.
pub fn metrics(context: &Context) -> Answer {
    bytes_answer(StatusCode::OK, "text/plain; version=0.0.4", context.app.metrics.text().into_bytes())
}

/// Returns the document of the API; with `document=conduits` or `document=events` another one of the contract.
pub fn openapi(context: &Context) -> Result<Answer, Problem> {
    let document = match context.parameter("document").as_deref() {
        None | Some("mothership") => documents::MOTHERSHIP,
        Some("conduits") => documents::CONDUITS,
        Some("events") => documents::EVENTS,
        Some(_) => {
            let error = "document must be mothership, conduits or events.";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", error));
        }
    };
    Ok(bytes_answer(StatusCode::OK, "application/json", document.as_bytes().to_vec()))
}
