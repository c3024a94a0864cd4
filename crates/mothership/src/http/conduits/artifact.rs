//! Kept files that a daemon brings: announced, then sent in pieces from the beginning.

use super::report::accepted;
use crate::app::App;
use crate::blobs::{BlobId, Turn};
use crate::http::answer::{Answer, Problem, created, ok};
use crate::http::request::Context;
use crate::store::StoreError;
use crate::store::types::{AnnouncedArtifact, Artifact, Holding, NewArtifact, Territory};
use nexus_api::base64;
use nexus_api::conduits::{ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, MAX_ARTIFACT_CHUNK};
use nexus_model::ids::DirectiveId;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const MAX_NAME: usize = 1024;
const MAX_MEDIA_TYPE: usize = 100;
/// Time that a call waits for others that write the same file. A daemon sends one piece after the other.
const TURN_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const OTHER_FILE: &str = "The file was announced before with another size or hash.";

/// Stores the announcement of a file.
pub async fn announce(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: ArtifactRequest = context.json()?;
    let new = checked(request)?;
    let announced = app.store.announce_artifact(territory, holding, new, app.config.artifacts, app.now()).await?;
    match accepted(announced, OTHER_FILE)? {
        AnnouncedArtifact::New(artifact) => Ok(created(&answer(holding.directive, &artifact))),
        AnnouncedArtifact::Known(artifact) => {
            // The server may have died between the last byte and the check of the hash.
            if !is_to_check(&artifact) {
                return Ok(ok(&answer(holding.directive, &artifact)));
            }
            let turn = turn(app, blob(&artifact)).await?;
            let artifact = end(app, artifact, &turn).await?;
            Ok(ok(&answer(holding.directive, &artifact)))
        }
        AnnouncedArtifact::TooMuch => {
            let bounds = app.config.artifacts;
            let error =
                format!("A directive keeps at most {} files with {} bytes together.", bounds.files, bounds.bytes);
            Err(Problem::invalid("artifacts_too_large", error))
        }
    }
}

/// Stores the next bytes of a file.
pub async fn chunk(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let id: Uuid = context.id("artifact_id")?;
    let request: ArtifactChunkRequest = context.json()?;
    let bytes = base64::decode(&request.bytes)
        .ok_or_else(|| Problem::invalid("invalid_base64", "bytes must be standard base64 with padding."))?;
    if bytes.is_empty() || bytes.len() > MAX_ARTIFACT_CHUNK {
        let error = format!("A piece must have 1 to {MAX_ARTIFACT_CHUNK} bytes.");
        return Err(Problem::invalid("chunk_too_large", error));
    }
    let app = Arc::clone(app);
    let piece = Piece { territory, holding, id: *id.as_bytes(), offset: request.offset };
    // A caller that goes away does not end the write of its piece: it would go on without its turn.
    let written = tokio::spawn(async move { piece.write(&app, bytes).await }).await;
    let artifact = written.map_err(|_| Problem::from(StoreError::Closed))??;
    Ok(ok(&answer(holding.directive, &artifact)))
}

/// The place of a piece.
struct Piece {
    territory: Territory,
    holding: Holding,
    id: [u8; 16],
    offset: u64,
}

impl Piece {
    async fn artifact(&self, app: &App) -> Result<Artifact, Problem> {
        let reported = app.store.artifact_upload(self.territory, self.holding, self.id, app.now()).await?;
        accepted(reported, OTHER_FILE)
    }

    /// Writes the piece where the file ends. Its place is looked at and filled in one turn: no other call writes meanwhile, so that
    /// the bytes that are hashed are those that stay.
    async fn write(&self, app: &App, bytes: Vec<u8>) -> Result<Artifact, Problem> {
        let blob = blob(&self.artifact(app).await?);
        let turn = turn(app, blob).await?;
        let mut artifact = self.artifact(app).await?;
        let wrong = |wanted: u64| {
            Problem::conflict("wrong_offset", "The piece does not begin where the file ends.")
                .detail(format!("the next byte that is wanted is {wanted}"))
        };
        let to = self.offset.saturating_add(bytes.len() as u64);
        if artifact.complete || self.offset != artifact.received || to > artifact.size {
            return Err(wrong(artifact.received));
        }
        app.blobs.write(blob, self.offset, bytes).await?;
        // A server on another machine may have been faster; the hash of the whole file decides in the end.
        if !app.store.artifact_received(artifact.id, self.offset, to).await? {
            return Err(wrong(to));
        }
        artifact.received = to;
        end(app, artifact, &turn).await
    }
}

/// Waits for the turn to write a file.
async fn turn(app: &App, blob: BlobId) -> Result<Turn, Problem> {
    let until = Instant::now() + TURN_WITHIN;
    loop {
        if let Some(turn) = app.blobs.turn(blob).await? {
            return Ok(turn);
        }
        if Instant::now() >= until {
            return Err(Problem::busy("file_busy", "Another call writes the file. Try again."));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Checks the hash of a file whose last byte is there. Nothing else is written in the turn of the caller.
async fn end(app: &App, mut artifact: Artifact, _: &Turn) -> Result<Artifact, Problem> {
    if !is_to_check(&artifact) {
        return Ok(artifact);
    }
    let is_good = app.blobs.hash(blob(&artifact), artifact.size).await? == artifact.hash;
    let is_mine = app.store.artifact_checked(artifact.id, is_good).await?;
    if !is_good {
        if is_mine {
            app.blobs.begin_afresh(blob(&artifact)).await?;
        }
        let error = "The bytes of the file do not have the announced hash. It begins afresh.";
        return Err(Problem::invalid("hash_differs", error));
    }
    artifact.complete = true;
    Ok(artifact)
}

/// Reports whether all bytes of a file are there and its hash is not known to be right.
fn is_to_check(artifact: &Artifact) -> bool {
    !artifact.complete && artifact.received >= artifact.size
}

/// Returns the place of the bytes of a file.
pub fn blob(artifact: &Artifact) -> BlobId {
    BlobId { account: artifact.account, id: artifact.id }
}

fn answer(directive_id: DirectiveId, artifact: &Artifact) -> ArtifactAnswer {
    ArtifactAnswer {
        ok: true,
        directive_id,
        artifact_id: Uuid::from_bytes(artifact.id).to_string(),
        offset: artifact.received,
        complete: artifact.complete,
    }
}

fn checked(request: ArtifactRequest) -> Result<NewArtifact, Problem> {
    let ArtifactRequest { name, size, blake3: hash, media_type } = request;
    if !is_safe(&name) {
        return Err(Problem::invalid("invalid_name", "name must be a plain relative path of 1 to 1024 bytes."));
    }
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_hash {
        return Err(Problem::invalid("invalid_hash", "blake3 must be 64 lower-case hexadecimal digits."));
    }
    if size == 0 && hash != blake3::hash(b"").to_hex().as_str() {
        return Err(Problem::invalid("hash_differs", "The hash is not the one of a file without bytes."));
    }
    let is_type = |kind: &String| kind.len() <= MAX_MEDIA_TYPE && kind.bytes().all(|byte| byte.is_ascii_graphic());
    if media_type.as_ref().is_some_and(|kind| !is_type(kind)) {
        return Err(Problem::invalid("invalid_field", "media_type must have at most 100 visible characters."));
    }
    Ok(NewArtifact { name, size, hash, media_type })
}

/// A name that every reader can use as a path below a directory of its own.
fn is_safe(name: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    (1..=MAX_NAME).contains(&name.len())
        && !name.chars().any(|letter| letter.is_control() || letter == '\\')
        && name.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_has_a_plain_name_and_a_whole_hash() {
        let hash = blake3::hash(b"x").to_hex().to_string();
        let code = |name: &str, size: u64, hash: &str| {
            let request = ArtifactRequest { name: name.to_owned(), size, blake3: hash.to_owned(), media_type: None };
            checked(request).is_ok()
        };
        assert!(code("out/a.bin", 1, &hash));
        for bad in ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\\b", "a\nb", &"a/".repeat(600), &"a".repeat(256)]
        {
            assert!(!code(bad, 1, &hash), "{bad:?}");
        }
        assert!(!code("a", 1, &hash[1..]) && !code("a", 1, &hash.to_uppercase()) && !code("a", 0, &hash));
        assert!(code("a", 0, blake3::hash(b"").to_hex().as_str()));
    }
}
