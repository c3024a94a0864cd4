//! Health, metrics and the document of the API.

use crate::http::answer::{Answer, Problem, bytes_answer, ok};
use crate::http::request::Context;
use axum::http::StatusCode;
use nexus_api::routes::{CONDUITS, MOTHERSHIP};
use serde_json::{Map, Value, json};

/// Answers while the process runs.
pub fn healthz() -> Answer {
    ok(&json!({"ok": true}))
}

/// Answers 200 while the server takes requests and its store works.
pub async fn readyz(context: &Context) -> Result<Answer, Problem> {
    if context.app.is_stopping() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "The server stops."));
    }
    context.app.store.key_by_hash([0; 32]).await?;
    Ok(ok(&json!({"ok": true})))
}

/// Returns the counters.
pub fn metrics(context: &Context) -> Answer {
    bytes_answer(StatusCode::OK, "text/plain; version=0.0.4", context.app.metrics.text().into_bytes())
}

/// Returns the operations of the server. The whole documents lie in `docs/protocol`.
pub fn openapi() -> Answer {
    let mut paths = Map::new();
    for route in CONDUITS.iter().chain(MOTHERSHIP).filter(|route| !route.later) {
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Some(path) = path.as_object_mut() {
            let operation =
                json!({"operationId": route.id, "responses": {"default": {"description": "See docs/protocol."}}});
            path.insert(route.method.name().to_ascii_lowercase(), operation);
        }
    }
    ok(&json!({"openapi": "3.1.0", "info": {"title": "Nexus Mothership", "version": "1"}, "paths": paths}))
}
