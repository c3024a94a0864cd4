//! Handlers of the audit chain: a list for people, and an export that another program can check.

use crate::http::answer::{Answer, Problem, bytes_answer, ok};
use crate::http::request::Context;
use axum::http::StatusCode;
use nexus_api::audit::{AuditEvent, AuditEventList, ocsf};

/// Events of one answer of an export.
const MAX_EXPORT: i64 = 5_000;
const MAX_LIST: i64 = 200;

/// Lists events, the latest first; with `format=jsonl` or `format=ocsf` exports them in their order, after the number `after`.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let before = match context.number("before", i64::MAX, 0, i64::MAX)? {
        i64::MAX => None,
        seq => Some(seq as u64),
    };
    let after = context.number("after", 0, 0, i64::MAX)? as u64;
    match context.parameter("format").as_deref() {
        None | Some("json") => {
            let limit = context.number("limit", 50, 1, MAX_LIST)? as u32;
            let page = app.store.audit_page(account, None, before, limit).await?;
            let last = page.events.last().map(|event| event.seq).filter(|seq| *seq > page.first_seq);
            let (head, first_seq, events) = (page.head, page.first_seq, page.events);
            let signed_head = Some(app.heads.sign(head, app.now()));
            Ok(ok(&AuditEventList { events, head, signed_head, first_seq, next_before: last }))
        }
        Some(format @ ("jsonl" | "ocsf")) => {
            let limit = context.number("limit", MAX_EXPORT, 1, MAX_EXPORT)? as u32;
            let page = app.store.audit_page(account, Some(after), None, limit).await?;
            let line = |event: &AuditEvent| match format {
                "jsonl" => serde_json::to_string(event).unwrap_or_default(),
                _ => ocsf(event, &app.config.version).to_string(),
            };
            let lines: String = page.events.iter().map(|event| line(event) + "\n").collect();
            Ok(bytes_answer(StatusCode::OK, "application/jsonl", lines.into_bytes()))
        }
        Some(_) => {
            let error = "format must be json, jsonl or ocsf.";
            Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", error))
        }
    }
}
