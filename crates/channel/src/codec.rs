//! The encoding of frames: a length (4 bytes, little endian) and that many bytes of postcard.
//!
//! ```text
//!  frame ──encode, put──▶ length, payload ──payload_len, decode──▶ frame      one frame at a time, length checked first
//!                                           └──────Reader────────▶ frames     bytes in any pieces, with a bound of its own
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame, in bytes. Arguments and environment of one command fit (Linux takes 2 MiB of them by default).
pub const MAX_FRAME: usize = 8 << 20;
/// Bytes before the payload.
pub const HEADER: usize = 4;

/// A frame could not be written or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// Over the bound.
    #[error("a frame of {bytes} bytes is over the limit of {MAX_FRAME}")]
    TooLong {
        /// Size of the frame, in bytes.
        bytes: usize,
    },
    /// Not a frame.
    #[error("bytes on the guest channel are not a frame of this version")]
    Malformed,
}

/// A frame with its header.
pub fn encode<F: Serialize>(frame: &F) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; HEADER];
    bytes = postcard::to_extend(frame, bytes).map_err(|_| FrameError::Malformed)?;
    let payload = bytes.len() - HEADER;
    if payload > MAX_FRAME {
        return Err(FrameError::TooLong { bytes: payload });
    }
    bytes[..HEADER].copy_from_slice(&(payload as u32).to_le_bytes());
    Ok(bytes)
}

/// The length of the payload that follows this header.
pub fn payload_len(header: [u8; HEADER]) -> Result<usize, FrameError> {
    let bytes = u32::from_le_bytes(header) as usize;
    if bytes > MAX_FRAME { Err(FrameError::TooLong { bytes }) } else { Ok(bytes) }
}

/// A frame from its payload; every byte must be used.
pub fn decode<F: DeserializeOwned>(payload: &[u8]) -> Result<F, FrameError> {
    match postcard::take_from_bytes(payload) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(FrameError::Malformed),
    }
}

/// Adds a frame of at most `MAX` bytes to bytes that are to be sent.
pub fn put<const MAX: usize>(out: &mut Vec<u8>, frame: &impl Serialize) -> Result<(), FrameError> {
    let bytes = encode(frame)?;
    let payload = bytes.len() - HEADER;
    if payload > MAX {
        return Err(FrameError::TooLong { bytes: payload });
    }
    out.extend_from_slice(&bytes);
    Ok(())
}

/// Puts frames of at most `MAX` bytes together from bytes as they come.
#[derive(Debug, Default)]
pub struct Reader<const MAX: usize> {
    bytes: Vec<u8>,
    used: usize,
}

impl<const MAX: usize> Reader<MAX> {
    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, when all of it has come.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator has one type of items, and a reader one for each call"
    )]
    pub fn next<F: DeserializeOwned>(&mut self) -> Result<Option<F>, FrameError> {
        let rest = &self.bytes[self.used..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = payload_len(*header)?;
        if length > MAX {
            return Err(FrameError::TooLong { bytes: length });
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = decode(payload)?;
        self.used += HEADER + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::HostFrame;

    #[test]
    fn a_long_frame_is_refused_before_it_is_read() {
        assert!(matches!(payload_len([0xff; 4]), Err(FrameError::TooLong { .. })));
        assert_eq!(payload_len([1, 0, 0, 0]), Ok(1));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = encode(&HostFrame::Shutdown).unwrap();
        assert!(decode::<HostFrame>(&bytes[HEADER..]).is_ok());
        bytes.push(0);
        assert_eq!(decode::<HostFrame>(&bytes[HEADER..]), Err(FrameError::Malformed));
    }

    #[test]
    fn frames_come_out_whole_in_whatever_pieces_they_come() {
        let frames =
            [HostFrame::Hello { version: 1 }, HostFrame::Signal { exec: None, signal: 9 }, HostFrame::Shutdown];
        let mut bytes = Vec::new();
        for frame in &frames {
            put::<64>(&mut bytes, frame).unwrap();
        }
        for size in [1, 2, 3, 7, 1000] {
            let (mut reader, mut found) = (Reader::<64>::default(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next::<HostFrame>().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames, "{size}");
        }
    }

    #[test]
    fn a_reader_and_a_writer_keep_to_their_own_bound() {
        let frame = vec![7u8; 64];
        let mut bytes = Vec::new();
        assert!(matches!(put::<64>(&mut bytes, &frame), Err(FrameError::TooLong { bytes: 65 })));
        assert!(bytes.is_empty());
        put::<65>(&mut bytes, &frame).unwrap();
        let mut reader = Reader::<64>::default();
        reader.push(&bytes[..HEADER]);
        assert!(matches!(reader.next::<Vec<u8>>(), Err(FrameError::TooLong { bytes: 65 })), "before the payload comes");
    }
}
