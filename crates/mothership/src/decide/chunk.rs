//! A chunk of output, from the body of its call. Pure.

use nexus_api::base64;
use nexus_api::conduits::{LogChunkRequest, MAX_CHUNK_BYTES, Stream};

/// A chunk whose parts were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Stream of the chunk.
    pub stream: Stream,
    /// Number of the chunk in its stream.
    pub seq: i64,
    /// Bytes of the command.
    pub bytes: Vec<u8>,
    /// The daemon left bytes out.
    pub truncated: bool,
}

/// Rule that a chunk breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkFault {
    /// The number is negative.
    Seq,
    /// The bytes are not in standard base64.
    Base64,
    /// The chunk has too many bytes.
    TooLarge,
}

/// Checks the parts of a chunk.
pub fn chunk(request: &LogChunkRequest) -> Result<Chunk, ChunkFault> {
    if request.seq < 0 {
        return Err(ChunkFault::Seq);
    }
    let bytes = base64::decode(&request.bytes).ok_or(ChunkFault::Base64)?;
    if bytes.len() > MAX_CHUNK_BYTES {
        return Err(ChunkFault::TooLarge);
    }
    Ok(Chunk { stream: request.stream, seq: request.seq, bytes, truncated: request.truncated })
}
