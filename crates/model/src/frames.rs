//! What the host and the guest say to each other.
//!
//! A frame on the wire is a length (4 bytes, little endian) and that many bytes of postcard. The first frame of
//! either side is its `Hello` with the version. New variants are only ever added at the end of an enum, because
//! their numbers are what the wire carries. Frames from a guest are hostile: lengths are bounded before anything is
//! allocated, and whatever does not parse ends the channel.

use crate::bytes::ByteText;
use crate::exit::ExitStatus;
use crate::proof::ProofItem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version that this code speaks.
pub const VERSION: u16 = 1;
/// Longest frame, in bytes. Arguments and environment of one command fit (Linux takes 2 MiB of them by default).
pub const MAX_FRAME: usize = 8 << 20;
/// Bytes before the payload.
pub const HEADER: usize = 4;

/// One command to start inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The host's number for it; unique in this sandbox.
    pub exec: u32,
    /// When it ends, the sandbox ends.
    pub leader: bool,
    /// The command and its arguments.
    pub argv: Vec<ByteText>,
    /// The whole environment.
    pub env: Vec<(ByteText, ByteText)>,
    /// Working directory inside.
    pub cwd: ByteText,
    /// What the proof must find.
    pub proof: ProofPlan,
}

/// What the host knows and the proof compares with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProofPlan {
    /// A host path that must not be there.
    pub marker: ByteText,
    /// `/proc/self/uid_map` as it must read, single spaces.
    pub uid_map: String,
    /// Inode numbers of the host's namespaces, by name; the command's must differ.
    pub host_namespaces: Vec<(String, u64)>,
    /// The workspace inside.
    pub workspace: ByteText,
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostFrame {
    /// First frame.
    Hello {
        /// The host's version.
        version: u16,
    },
    /// Start a command. In the namespace driver its stdin, stdout and stderr come as descriptors with this frame.
    Exec(ExecRequest),
    /// Send a signal to a command, or to everything inside but the guest itself.
    Signal {
        /// Which; `None` is everything.
        exec: Option<u32>,
        /// The number, as in signal(7).
        signal: u8,
    },
    /// Kill everything and end.
    Shutdown,
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestFrame {
    /// First frame, once the sandbox stands.
    Hello {
        /// The guest's version.
        version: u16,
    },
    /// The sandbox could not be set up; nothing was started and the guest ends.
    SetupFailed {
        /// The step, by its name.
        step: String,
        /// errno, or 0.
        errno: i32,
        /// What it was about.
        detail: String,
    },
    /// A command was started; its proof.
    Started {
        /// Which.
        exec: u32,
        /// Every check and its answer.
        proof: Vec<ProofItem>,
    },
    /// The proof failed; the command was not started.
    ProofFailed {
        /// Which.
        exec: u32,
        /// Every check and its answer.
        proof: Vec<ProofItem>,
    },
    /// The command could not be executed.
    ExecFailed {
        /// Which.
        exec: u32,
        /// errno of execve or of what came before it.
        errno: i32,
        /// What failed.
        stage: ExecStage,
    },
    /// A command ended.
    Exited {
        /// Which.
        exec: u32,
        /// How.
        status: ExitStatus,
        /// Processor time of it and its children, in microseconds.
        cpu_us: u64,
        /// Peak memory of its largest process, in bytes.
        max_rss_bytes: u64,
    },
    /// The upper folder of a layer in memory; comes as a descriptor with this frame, before `Hello`.
    Layer,
}

/// What was being done when a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecStage {
    /// Making the process.
    Spawn,
    /// Setting its limits, session or descriptors.
    Prepare,
    /// Entering the working directory.
    Chdir,
    /// Executing the file.
    Exec,
}

/// A frame could not be written or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// Over the bound.
    #[error("a frame of {bytes} bytes is over the limit of {MAX_FRAME}")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// Not a frame.
    #[error("bytes on the guest channel are no frame of this version")]
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_reads_back() {
        let frame = HostFrame::Exec(ExecRequest {
            exec: 1,
            leader: true,
            argv: vec!["sh".into(), ByteText(vec![0xff])],
            env: vec![("A".into(), "b".into())],
            cwd: "/w".into(),
            proof: ProofPlan::default(),
        });
        let bytes = encode(&frame).unwrap();
        let length = payload_len(bytes[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - HEADER);
        assert_eq!(decode::<HostFrame>(&bytes[HEADER..]), Ok(frame));
    }

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

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _frame: Result<GuestFrame, _> = decode(&bytes);
        }
    }
}
