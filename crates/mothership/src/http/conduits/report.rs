//! Reports about one directive.

use super::token::token;
use crate::decide::{Chunk, ChunkFault, chunk};
use crate::http::answer::{Answer, Problem, ok};
use crate::http::request::{Context, read_json};
use crate::metrics::add;
use crate::store::types::{EndResult, NewChunk, NewEnd, OutputEnd, Reported};
use nexus_api::conduits::{
    EventsAnswer, EventsRequest, FinishedAnswer, FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkAnswer,
    LogChunkRequest, MAX_CHUNK_BYTES, StartedAnswer, StartedRequest,
};
use nexus_api::{base64, payload};
use std::sync::PoisonError;

/// Largest number of a batch of events, and of events in one.
const MAX_BATCHES: i64 = 10_000;
const MAX_EVENTS: usize = 1_000;

/// Turns a refused report into its answer.
pub fn accepted<T>(reported: Reported<T>, differs: &'static str) -> Result<T, Problem> {
    match reported {
        Reported::Done(value) => Ok(value),
        Reported::Refused(refusal) => Err(refusal.into()),
        Reported::Differs => Err(Problem::conflict("report_differs", differs)),
        Reported::DiffTooLarge { max } => {
            Err(Problem::invalid("diff_too_large", format!("The diff must have at most {max} bytes.")))
        }
    }
}

/// Stores a start.
pub async fn started(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: StartedRequest = context.json()?;
    let versions = serde_json::json!([request.sandbox_version, request.nexus_version]).to_string();
    let reported = app.store.started(territory, holding, versions, app.config.times, app.now()).await?;
    let state = accepted(reported, "The start was reported before with other versions.")?;
    app.changed(holding.directive);
    Ok(ok(&StartedAnswer {
        ok: true,
        directive_id: holding.directive,
        state: state.state,
        duplicate: state.duplicate,
        fence: Some(holding.fence),
    }))
}

/// Renews the lease of a directive.
pub async fn heartbeat(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: HeartbeatRequest = context.json()?;
    app.beats
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .count(holding.directive, app.config.clock.steady())
        .map_err(|seconds| Problem::too_many("The directive sends too many heartbeats.", seconds))?;
    let reported = app.store.beat(territory, holding, request.progress, app.config.times, app.now()).await?;
    let beat = accepted(reported, "The heartbeat was refused.")?;
    Ok(ok(&HeartbeatAnswer {
        cancel_requested: beat.cancel_requested,
        lease_renewed: true,
        directive_token: token(app, territory, holding.directive, holding.fence, beat.attempt),
    }))
}

pub async fn log_chunk(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: LogChunkRequest = context.json()?;
    let Chunk { stream, seq, bytes, truncated } = chunk(&request).map_err(|fault| match fault {
        ChunkFault::Seq => Problem::invalid("invalid_seq", "seq must be 0 or larger."),
        ChunkFault::Base64 => Problem::invalid("invalid_base64", "bytes must be standard base64 with padding."),
        ChunkFault::TooLarge => {
            Problem::invalid("chunk_too_large", format!("A chunk must have at most {MAX_CHUNK_BYTES} bytes."))
        }
    })?;
    let accepted_bytes = bytes.len() as u64;
    let new = NewChunk { stream, seq, bytes, truncated };
    let reported = app.store.put_chunk(territory, holding, new, app.now()).await?;
    let state = accepted(reported, "The chunk with this number was stored with other bytes.")?;
    if state.stored && !state.duplicate {
        app.changed(holding.directive);
    }
    Ok(ok(&LogChunkAnswer {
        ok: true,
        directive_id: holding.directive,
        stream,
        seq,
        stored: state.stored,
        duplicate: state.duplicate,
        accepted_bytes: if state.stored { accepted_bytes } else { 0 },
        truncated: truncated || !state.stored,
    }))
}

pub async fn events(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: EventsRequest = context.json()?;
    if request.seq < 0 {
        return Err(Problem::invalid("invalid_seq", "seq must be 0 or larger."));
    }
    let typed = |event: &serde_json::Value| event["type"].is_string();
    if request.seq > MAX_BATCHES || request.events.len() > MAX_EVENTS || !request.events.iter().all(typed) {
        let error = format!("A batch has at most {MAX_EVENTS} events with a type, and a number up to {MAX_BATCHES}.");
        return Err(Problem::invalid("invalid_events", error));
    }
    let events = serde_json::Value::from(request.events).to_string();
    let reported = app.store.put_events(territory, holding, request.seq, events, app.now()).await?;
    let duplicate = accepted(reported, "The batch with this number was stored with other events.")?;
    Ok(ok(&EventsAnswer { ok: true, directive_id: holding.directive, seq: request.seq, duplicate }))
}

/// Stores an end, as reported.
pub async fn finished(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let value: serde_json::Value = read_json(&context.body)?;
    let payload_hash = payload::hash(&value).to_string();
    let request: FinishedRequest = serde_json::from_value(value).map_err(|error| {
        Problem::invalid("invalid_field", "The body does not have the form of this call.").detail(error.to_string())
    })?;
    let diff = request.diff_base64.as_deref().map(|text| {
        base64::decode(text)
            .ok_or_else(|| Problem::invalid("invalid_base64", "diff_base64 must be standard base64 with padding."))
    });
    let end = NewEnd {
        status: request.status,
        reason: request.reason,
        exit_code: request.exit_code,
        output: [
            OutputEnd { truncated: request.stdout_truncated, chunks: request.stdout_chunks },
            OutputEnd { truncated: request.stderr_truncated, chunks: request.stderr_chunks },
        ],
        payload_hash,
        diff: diff.transpose()?,
        receipt: request.receipt,
        result: EndResult {
            diff_truncated: request.diff_truncated,
            snapshot_before: request.snapshot_before,
            snapshot_after: request.snapshot_after,
            artifacts_manifest: request.artifacts_manifest,
            timing: request.timing,
            reported_at: None,
        },
    };
    let reported = app.store.finished(territory, holding, end, app.now()).await?;
    let state = accepted(reported, "The end was reported before with another result.")?;
    if !state.duplicate {
        add(&app.metrics.finished, 1);
        app.changed(holding.directive);
        app.wake(&state.promoted);
    }
    Ok(ok(&FinishedAnswer {
        ok: true,
        directive_id: holding.directive,
        duplicate: state.duplicate,
        final_state: state.state,
    }))
}
