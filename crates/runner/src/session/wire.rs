//! The messages between a client and the supervisor of a sandbox, over a Unix socket.
//!
//! ```text
//!  client ─Hello, one request─▶ supervisor ─Hello─▶ (Output | Behind)* ─Live─▶ (Output | Behind | Taken)* ─▶ Ended, Done, Refused
//!         ─Input, Resize, Signal, Close─▶
//! ```
//! Frames are those of the guest channel: a length, then postcard. Both sides are the same user, but not of the same
//! version: the first frame says which, and lengths are bounded before anything is kept.

use nexus_driver::codec::{self, FrameError};
use nexus_driver::frames::TerminalSize;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// The version that this code speaks.
pub const VERSION: u16 = 1;
/// Longest frame: the arguments and the environment of a command (Linux takes 2 MiB of them by default).
pub const MAX_FRAME: usize = 3 << 20;

/// Bytes of input above which a client waits until its own command has taken some: a signal for the command never stands
/// behind input that the command does not read.
pub const INPUT_WINDOW: usize = 64 * 1024;

/// Message of a client to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// The first frame of a client.
    Hello {
        /// The client's version.
        version: u16,
    },
    /// Asks for what was printed so far, and then for what comes.
    Attach {
        /// True if this client passes input to the command.
        input: bool,
        /// The size of the client's terminal.
        size: Option<TerminalSize>,
    },
    /// Asks for what was printed so far; and then for what comes, if `follow` is set.
    Logs {
        /// True if the supervisor goes on with new output.
        follow: bool,
    },
    /// Asks for an exec, whose input and output are this client's.
    Exec {
        /// The command and its arguments.
        argv: Vec<ByteText>,
        /// Changes to the environment of the sandbox's own command.
        env: Vec<(ByteText, ByteText)>,
        /// Working directory inside; that of the sandbox's own command if there is none.
        cwd: Option<ByteText>,
        /// A terminal of this size.
        terminal: Option<TerminalSize>,
        /// True if this client passes input to the command.
        input: bool,
    },
    /// End the sandbox, and tell when it has ended.
    Stop {
        /// SIGTERM or SIGKILL.
        signal: u8,
        /// Milliseconds until SIGKILL.
        grace_ms: Option<u64>,
    },
    /// Asks for a message when the sandbox has ended.
    Wait,
    /// Input that this client typed.
    Input(ByteText),
    /// The end of this client's input.
    EndInput,
    /// The client's terminal has another size.
    Resize(TerminalSize),
    /// A signal for the command.
    Signal(u8),
    /// No reader is left for this stream of the client's own command.
    Close {
        /// stderr, and not stdout.
        err: bool,
    },
}

/// Message of the supervisor to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerMessage {
    /// The first frame of the supervisor.
    Hello {
        /// The supervisor's version.
        version: u16,
        /// True if the command has a terminal.
        terminal: bool,
    },
    /// Output of the command.
    Output {
        /// stderr, and not stdout.
        err: bool,
        /// The bytes of the output.
        bytes: ByteText,
    },
    /// The client's own command has taken so many bytes of its input.
    Taken {
        /// The number of bytes.
        bytes: u32,
    },
    /// This client was too slow, or came too late: so many bytes are not there any more.
    Behind {
        /// The number of bytes.
        bytes: u64,
    },
    /// The output from here on is new.
    Live,
    /// Everything that was asked for was sent, and the sandbox lives.
    Done,
    /// The request cannot be fulfilled.
    Refused {
        /// The exit code for the client.
        exit: u8,
        /// The reason of the refusal.
        message: String,
    },
    /// The sandbox, or the client's own command, has ended.
    Ended {
        /// The exit code for the client.
        exit: u8,
        /// The text for the user about the end.
        message: String,
    },
}

/// Message of the supervisor to the command that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launched {
    /// The command runs.
    Started {
        /// The id of the sandbox.
        id: String,
        /// Pairs of host port and port inside.
        published: Vec<(u16, u16)>,
    },
    /// The command does not run.
    Refused {
        /// The exit code for the launching command.
        exit: u8,
        /// The text for stderr.
        text: String,
        /// The text for stdout, with `--json`.
        json: Option<String>,
    },
}

/// Puts frames together from bytes as they come.
pub type Reader = codec::Reader<MAX_FRAME>;

/// Adds a frame to bytes that are to be sent. One that is too long is refused.
pub fn put<F: Serialize>(out: &mut Vec<u8>, frame: &F) -> Result<(), FrameError> {
    codec::put::<MAX_FRAME>(out, frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let frames = [
            ClientMessage::Hello { version: 1 },
            ClientMessage::Input(ByteText(vec![7; 300])),
            ClientMessage::Wait,
            ClientMessage::EndInput,
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            put(&mut bytes, frame).unwrap();
        }
        for size in [1, 2, 3, 7, 1000] {
            let (mut reader, mut found) = (Reader::default(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next::<ClientMessage>().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames, "{size}");
        }
    }

    #[test]
    fn a_hostile_length_is_refused_before_anything_is_kept() {
        let mut reader = Reader::default();
        reader.push(&(MAX_FRAME as u32 + 1).to_le_bytes());
        assert!(matches!(reader.next::<ClientMessage>(), Err(FrameError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = Reader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next::<ClientMessage>() {}
        }
    }
}
