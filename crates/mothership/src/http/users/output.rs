//! Output, diffs, kept files and receipts.

use crate::blobs::BlobId;
use crate::http::answer::{Answer, Problem, bytes_answer, ok};
use crate::http::conduits::artifact::blob;
use crate::http::request::Context;
use crate::store::types::{ChunkBytes, ChunkQuery};
use axum::http::{StatusCode, header};
use nexus_api::conduits::Stream;
use nexus_api::events::{EventList, SCHEMA};
use nexus_api::mothership::{ArtifactList, LogChunk, LogChunks, MAX_ARTIFACT_PIECE, MAX_CHUNKS};
use nexus_api::{Timestamp, base64};
use nexus_model::ids::{DirectiveId, FacilityId};
use uuid::Uuid;

/// Bytes of output in one answer; base64 makes them a third longer, and answers stay below 4 MiB.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Returns output of a directive.
pub async fn log_chunks(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let id: DirectiveId = context.id("directive_id")?;
    let stream = match context.parameter("stream").as_deref() {
        None | Some("stdout") => Stream::Stdout,
        Some("stderr") => Stream::Stderr,
        Some(_) => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "stream must be stdout or stderr."));
        }
    };
    let after = context.number("after_seq", -1, -1, i64::MAX)?;
    let limit = context.number("limit", 200, 1, i64::from(MAX_CHUNKS))? as u32;
    let query = ChunkQuery { stream, after, limit, max_bytes: MAX_BYTES, attempt: context.attempt()? };
    // The flags are read before the chunks: a flag that says complete is never older than the last chunk.
    let directive = app.store.directive(account, id, app.config.times, app.now()).await?;
    let stored = app.store.chunks(account, id, query).await?;
    let next_after_seq = stored.last().map_or(after, |last| last.seq);
    let mut chunks = Vec::with_capacity(stored.len());
    for chunk in stored {
        let bytes = match chunk.bytes {
            ChunkBytes::Here(bytes) => bytes,
            ChunkBytes::File { account, id, offset, length } => {
                app.blobs.read(BlobId { account, id }, offset, length as usize).await?
            }
        };
        chunks.push(LogChunk {
            seq: chunk.seq,
            bytesize: bytes.len() as u64,
            bytes_base64: base64::encode(&bytes),
            truncated: chunk.truncated,
            created_at: Timestamp(chunk.created_at),
        });
    }
    let (stdout_truncated, stderr_truncated) = (directive.stdout_truncated, directive.stderr_truncated);
    Ok(ok(&LogChunks { chunks, next_after_seq, stdout_truncated, stderr_truncated }))
}

/// Returns output of a directive of a facility. A directive of another facility does not exist there.
pub async fn facility_log_chunks(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let facility: FacilityId = context.id("facility_id")?;
    let id: DirectiveId = context.id("directive_id")?;
    let directive = app.store.directive(context.account()?, id, app.config.times, app.now()).await?;
    if directive.facility_id != facility {
        return Err(Problem::not_found());
    }
    log_chunks(context).await
}

/// Returns the diff of a directive as a file.
pub async fn diff(context: &Context) -> Result<Answer, Problem> {
    let id: DirectiveId = context.id("directive_id")?;
    let diff = context.app.store.diff(context.account()?, id, context.attempt()?).await?;
    let mut answer = bytes_answer(StatusCode::OK, "text/plain; charset=utf-8", diff);
    if let Ok(name) = format!("attachment; filename=\"{id}.diff\"").parse() {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(answer)
}

/// Lists the kept files of a directive.
pub async fn artifacts(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let id: DirectiveId = context.id("directive_id")?;
    let directive = app.store.directive(account, id, app.config.times, app.now()).await?;
    let artifacts = app.store.artifacts(account, id, context.attempt()?).await?;
    Ok(ok(&ArtifactList { artifacts, manifest: directive.artifacts_manifest }))
}

/// Returns a piece of a kept file. Its bytes are hostile: the answer names no type by which a browser would show them.
pub async fn artifact(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let id: DirectiveId = context.id("directive_id")?;
    let artifact: Uuid = context.id("artifact_id")?;
    let offset = context.number("offset", 0, 0, i64::MAX)? as u64;
    let artifact = app.store.artifact(account, id, *artifact.as_bytes()).await?;
    if !artifact.complete {
        return Err(Problem::conflict("artifact_incomplete", "The territory has not sent the whole file yet."));
    }
    let length = artifact.size.saturating_sub(offset).min(MAX_ARTIFACT_PIECE) as usize;
    let bytes = if length == 0 { Vec::new() } else { app.blobs.read(blob(&artifact), offset, length).await? };
    let mut answer = bytes_answer(StatusCode::OK, "application/octet-stream", bytes);
    answer.headers_mut().insert(header::CONTENT_DISPOSITION, header::HeaderValue::from_static("attachment"));
    Ok(answer)
}

/// Returns the typed events that the territory reported.
pub async fn events(context: &Context) -> Result<Answer, Problem> {
    if context.parameter("format").as_deref() != Some("list") {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "format must be list."));
    }
    let id: DirectiveId = context.id("directive_id")?;
    let events = context.app.store.events(context.account()?, id, context.attempt()?).await?;
    Ok(ok(&EventList { schema: SCHEMA.to_owned(), events }))
}

/// Returns the receipt of a directive.
pub async fn receipt(context: &Context) -> Result<Answer, Problem> {
    let id: DirectiveId = context.id("directive_id")?;
    let receipt = context.app.store.receipt(context.account()?, id, context.attempt()?).await?;
    Ok(bytes_answer(StatusCode::OK, "application/json", receipt.into_bytes()))
}
