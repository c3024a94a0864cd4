//! Brings kept files to the control plane, after the end of their directive was acknowledged.

use super::context::Shared;
use crate::claims::Note;
use crate::decide::piece::PieceSize;
use crate::report::{GivenUp, repeated};
use crate::source::SourceError;
use crate::spool;
use data_encoding::BASE64;
use nexus_api::conduits::{ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest};
use nexus_facility::artifacts::{self, Artifact};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Times that a file is announced without having come farther, before it is given up.
const MAX_RESTARTS: u32 = 5;

/// The end of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploaded {
    /// Each file is there, or was refused for good.
    Done,
    /// The daemon stops: the next one goes on.
    Stopped,
}

/// Uploads all kept files of a claim.
pub fn run(shared: &Shared, note: &Note) -> Uploaded {
    let Some(manifest) = spool::manifest(note) else { return Uploaded::Done };
    let place = shared.engine.spool.place(&note.name());
    for (number, artifact) in manifest.artifacts.iter().enumerate().filter(|(_, artifact)| artifact.is_file()) {
        match one(shared, note, artifact, &artifacts::place(&place, number)) {
            Ok(()) => {}
            Err(Fault::Stopped) => return Uploaded::Stopped,
            Err(Fault::Refused(why)) => {
                shared.tell(&format!(
                    "directive {}: the kept file {:?} is not uploaded: {why}",
                    note.directive, artifact.name
                ));
            }
        }
    }
    Uploaded::Done
}

enum Fault {
    Stopped,
    Refused(String),
}

fn one(shared: &Shared, note: &Note, artifact: &Artifact, copy: &Path) -> Result<(), Fault> {
    let request = ArtifactRequest {
        name: artifact.name.clone(),
        size: artifact.size,
        blake3: artifact.blake3.clone().unwrap_or_default(),
        media_type: artifact.media_type.clone(),
    };
    let unread = |error: io::Error| Fault::Refused(format!("its copy cannot be read: {error}"));
    let file = if artifact.size == 0 { None } else { Some(File::open(copy).map_err(unread)?) };
    let (mut why, mut size) = (String::new(), PieceSize::default());
    let (mut restarts, mut farthest) = (0, 0);
    while restarts < MAX_RESTARTS {
        restarts += 1;
        let announced =
            repeated(&shared.stop, || false, || shared.source.artifact(note.directive, &note.token, &request));
        let mut state = match announced {
            Ok(state) => state,
            Err(GivenUp::Stopped) => return Err(Fault::Stopped),
            Err(GivenUp::Refused { error, .. }) => return Err(Fault::Refused(error.to_string())),
        };
        if state.offset > farthest {
            // The answer to a piece was lost, and its bytes are there: a bad network gives up no file.
            (restarts, farthest) = (0, state.offset);
        }
        while let Some(file) = file.as_ref().filter(|_| !state.complete) {
            if shared.stop.is_set() {
                // A large file must not hold up the end of the daemon: the next one goes on where this one stopped.
                return Err(Fault::Stopped);
            }
            match piece(shared, note, artifact, file, (&state, &mut size)) {
                Ok(next) => state = next,
                Err(Fault::Stopped) => return Err(Fault::Stopped),
                Err(Fault::Refused(refused)) => {
                    // Another place is wanted, or the hash was wrong: the announcement says where to go on.
                    why = refused;
                    break;
                }
            }
        }
        if state.complete {
            return Ok(());
        }
    }
    Err(Fault::Refused(why))
}

fn piece(
    shared: &Shared,
    note: &Note,
    artifact: &Artifact,
    file: &File,
    (state, size): (&ArtifactAnswer, &mut PieceSize),
) -> Result<ArtifactAnswer, Fault> {
    let rest = artifact.size.saturating_sub(state.offset);
    let mut bytes = vec![0; size.of(rest)];
    file.read_exact_at(&mut bytes, state.offset).map_err(|error| Fault::Refused(error.to_string()))?;
    let call = || {
        // Another try may take fewer of the bytes.
        let part = bytes.get(..size.of(rest)).unwrap_or(&bytes);
        let request = ArtifactChunkRequest { offset: state.offset, bytes: BASE64.encode(part) };
        let clock = Instant::now();
        let sent = shared.source.artifact_chunk(note.directive, &note.token, &state.artifact_id, &request);
        match &sent {
            Ok(_) => size.taken(clock.elapsed()),
            Err(error) => size.failed(error.outcome()),
        }
        // The body did not arrive in the time that the server gives it: a smaller one may.
        sent.map_err(|error| if error.is_slow() { SourceError::NoAnswer { why: error.to_string() } } else { error })
    };
    repeated(&shared.stop, || false, call).map_err(|given_up| match given_up {
        GivenUp::Stopped => Fault::Stopped,
        GivenUp::Refused { error, .. } => Fault::Refused(error.to_string()),
    })
}
