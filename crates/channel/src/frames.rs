//! Frames that the host and the guest send to each other.
//!
//! The first frame of either side is its `Hello` with the version. New variants are only ever added at the end of an
//! enum, because their numbers are what the wire carries. Frames from a guest are hostile: lengths are bounded before
//! anything is allocated ([`crate::codec`]), and bytes that are not a frame end the channel.

use nexus_model::network::MAX_HOST_PORTS;
use nexus_model::proof::{Expectation, ProofItem};
use nexus_model::{ByteText, ExitStatus};
use serde::{Deserialize, Serialize};

/// The version that this code speaks.
pub const VERSION: u16 = 5;
/// Listeners of the egress, where IPv6 is to be had; without it the last is missing.
pub const LISTENERS: usize = 6;
/// Most descriptors with one frame: the listeners, those of host ports in both protocols, and by what the host knows the
/// sandbox's processes.
pub const MAX_DESCRIPTORS: usize = LISTENERS + 2 + 2 * MAX_HOST_PORTS;

/// One command to start inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The host's number for it; unique in this sandbox.
    pub exec: u32,
    /// When it ends, the sandbox ends.
    pub is_main: bool,
    /// The command and its arguments.
    pub argv: Vec<ByteText>,
    /// The whole environment.
    pub env: Vec<(ByteText, ByteText)>,
    /// Working directory inside.
    pub cwd: ByteText,
    /// Attempts that the command's process makes before its exec.
    pub proof: Vec<Expectation>,
    /// With a terminal of its own inside, of this size; then no descriptors come with the request.
    pub terminal: Option<TerminalSize>,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostFrame {
    /// Opens the conversation; always the first frame.
    Hello {
        /// The host's version.
        version: u16,
    },
    /// Start a command. In the namespace driver its stdin, stdout and stderr come as descriptors with this frame,
    /// unless it gets a terminal.
    Exec(ExecRequest),
    /// Send a signal to a command, or to everything inside but the guest itself.
    Signal {
        /// Number of the command; `None` stands for every command.
        exec: Option<u32>,
        /// The number, as in signal(7).
        signal: u8,
    },
    /// Kill everything and end.
    Shutdown,
    /// The terminal of a command has another size now.
    Resize {
        /// Number of the command.
        exec: u32,
        /// The new size.
        size: TerminalSize,
    },
    /// Connect to a TCP port of the sandbox's own loopback.
    Forward {
        /// The host's number for the answer.
        forward: u32,
        /// The port inside.
        port: u16,
    },
    /// The main command's time limit, which the guest keeps on its own where the host does not: a terminal or a signal
    /// may have stopped it.
    EndWithin {
        /// Milliseconds from the start of the command to SIGTERM.
        timeout_ms: u64,
        /// Milliseconds from SIGTERM to the end.
        grace_ms: u64,
    },
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
        /// Detail of the failure, for a person to read.
        detail: String,
    },
    /// A command was started; its proof.
    Started {
        /// Number of the command.
        exec: u32,
        /// Every check and its answer.
        proof: Vec<ProofItem>,
    },
    /// The proof failed; the command was not started.
    ProofFailed {
        /// Number of the command.
        exec: u32,
        /// Every check and its answer.
        proof: Vec<ProofItem>,
    },
    /// The command could not be executed.
    ExecFailed {
        /// Number of the command.
        exec: u32,
        /// errno of execve or of what came before it.
        errno: i32,
        /// Step of the start that failed.
        stage: ExecStage,
    },
    /// A command ended.
    Exited {
        /// Number of the command.
        exec: u32,
        /// Exit code or signal of the command.
        status: ExitStatus,
        /// Processor time of it and its children, in microseconds.
        cpu_us: u64,
        /// Peak memory of its largest process, in bytes.
        max_rss_bytes: u64,
    },
    /// The upper directory of a layer in memory; comes as a descriptor with this frame, before `Hello`.
    Layer,
    /// The master of a command's terminal; comes as a descriptor with this frame, just before `Started`.
    Terminal {
        /// Number of the command.
        exec: u32,
    },
    /// A TCP socket of the sandbox's own loopback; comes as a descriptor with this frame. It may still be
    /// connecting, as after a non-blocking connect(2).
    Forwarded {
        /// Number of the request that this frame answers.
        forward: u32,
    },
    /// The connection inside could not be made.
    ForwardFailed {
        /// Number of the request that this frame answers.
        forward: u32,
        /// Error number of the failed connect, as errno(3) lists them.
        errno: i32,
    },
    /// The listeners of the egress, before `Hello`: come as descriptors with this frame, in this order: HTTP proxy,
    /// SOCKS proxy, DNS over UDP, DNS over TCP, transparent, and with IPv6 a second transparent one. Before them, for
    /// `Network::EgressByProgram`, the sandbox's `/proc` and a `NETLINK_SOCK_DIAG` socket of its network. Between
    /// both, for each host port of the plan, a listener on 127.0.0.1 and with IPv6 one on `::1`.
    Listeners,
    /// A UDP socket on the name service's port, where there is no egress; comes as a descriptor with this frame, before
    /// `Hello`. Nothing is resolved: the process that serves the socket learns the names that the command asked for.
    Names,
    /// The time limit of the main command is over, and the host has not asked anything to end: the guest did.
    OutOfTime,
}

/// Step at which a command could not be started.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{FrameError, HEADER, decode, encode, payload_len};
    use proptest::prelude::*;

    #[test]
    fn a_frame_reads_back() {
        let frame = HostFrame::Exec(ExecRequest {
            exec: 1,
            is_main: true,
            argv: vec!["sh".into(), ByteText(vec![0xff])],
            env: vec![("A".into(), "b".into())],
            cwd: "/w".into(),
            proof: vec![Expectation::new("mount", "EPERM").about("/w".into())],
            terminal: Some(TerminalSize { rows: 24, cols: 80 }),
        });
        let bytes = encode(&frame).unwrap();
        let length = payload_len(bytes[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - HEADER);
        assert_eq!(decode::<HostFrame>(&bytes[HEADER..]), Ok(frame));
    }

    /// The number of each variant as it stands on the wire; what came later has a higher one.
    #[test]
    fn numbers_of_frames_never_change() {
        let number = |bytes: Vec<u8>| bytes[HEADER];
        let size = TerminalSize { rows: 1, cols: 1 };
        let host = [
            HostFrame::Hello { version: 1 },
            HostFrame::Exec(request(1, None)),
            HostFrame::Signal { exec: None, signal: 9 },
            HostFrame::Shutdown,
            HostFrame::Resize { exec: 1, size },
            HostFrame::Forward { forward: 1, port: 80 },
            HostFrame::EndWithin { timeout_ms: 1, grace_ms: 1 },
        ];
        let guest = [
            GuestFrame::Hello { version: 1 },
            GuestFrame::SetupFailed { step: String::new(), errno: 0, detail: String::new() },
            GuestFrame::Started { exec: 1, proof: Vec::new() },
            GuestFrame::ProofFailed { exec: 1, proof: Vec::new() },
            GuestFrame::ExecFailed { exec: 1, errno: 2, stage: ExecStage::Exec },
            GuestFrame::Exited { exec: 1, status: ExitStatus::Code(0), cpu_us: 0, max_rss_bytes: 0 },
            GuestFrame::Layer,
            GuestFrame::Terminal { exec: 1 },
            GuestFrame::Forwarded { forward: 1 },
            GuestFrame::ForwardFailed { forward: 1, errno: 111 },
            GuestFrame::Listeners,
            GuestFrame::Names,
            GuestFrame::OutOfTime,
        ];
        let numbers: Vec<u8> = host.iter().map(|frame| number(encode(frame).unwrap())).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
        let numbers: Vec<u8> = guest.iter().map(|frame| number(encode(frame).unwrap())).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    fn request(exec: u32, terminal: Option<TerminalSize>) -> ExecRequest {
        ExecRequest {
            exec,
            is_main: exec == 1,
            argv: vec!["sh".into()],
            env: Vec::new(),
            cwd: "/".into(),
            proof: Vec::new(),
            terminal,
        }
    }

    fn host_frame() -> impl Strategy<Value = HostFrame> {
        let size = any::<(u16, u16)>().prop_map(|(rows, cols)| TerminalSize { rows, cols });
        let exec = (any::<u32>(), proptest::option::of(size.clone()));
        prop_oneof![
            exec.prop_map(|(exec, terminal)| HostFrame::Exec(request(exec, terminal))),
            any::<(Option<u32>, u8)>().prop_map(|(exec, signal)| HostFrame::Signal { exec, signal }),
            (any::<u32>(), size).prop_map(|(exec, size)| HostFrame::Resize { exec, size }),
            any::<(u32, u16)>().prop_map(|(forward, port)| HostFrame::Forward { forward, port }),
            any::<(u64, u64)>().prop_map(|(timeout_ms, grace_ms)| HostFrame::EndWithin { timeout_ms, grace_ms }),
        ]
    }

    fn guest_frame() -> impl Strategy<Value = GuestFrame> {
        prop_oneof![
            any::<u32>().prop_map(|exec| GuestFrame::Terminal { exec }),
            any::<u32>().prop_map(|forward| GuestFrame::Forwarded { forward }),
            any::<(u32, i32)>().prop_map(|(forward, errno)| GuestFrame::ForwardFailed { forward, errno }),
            any::<(u32, i32)>().prop_map(|(exec, errno)| GuestFrame::ExecFailed {
                exec,
                errno,
                stage: ExecStage::Spawn
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_frame_reads_back_and_a_part_of_it_does_not(host in host_frame(), guest in guest_frame(), cut in 0..64usize) {
            let bytes = encode(&host).unwrap();
            prop_assert_eq!(decode::<HostFrame>(&bytes[HEADER..]), Ok(host));
            let part = HEADER + cut.min(bytes.len() - HEADER - 1);
            prop_assert_eq!(decode::<HostFrame>(&bytes[HEADER..part]), Err(FrameError::Malformed));
            let bytes = encode(&guest).unwrap();
            prop_assert_eq!(decode::<GuestFrame>(&bytes[HEADER..]), Ok(guest));
            let part = HEADER + cut.min(bytes.len() - HEADER - 1);
            prop_assert_eq!(decode::<GuestFrame>(&bytes[HEADER..part]), Err(FrameError::Malformed));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _guest: Result<GuestFrame, _> = decode(&bytes);
            let _host: Result<HostFrame, _> = decode(&bytes);
        }
    }
}
