//! Gives a client the next thing that there is for it.

use crate::live::output::Stream;
use crate::live::ring::Ring;
use crate::session::client::{Client, Role};
use crate::session::store::ExitRecord;
use crate::session::wire::ServerMessage;
use nexus_model::ByteText;

/// Bytes of output in one frame.
const FRAME: usize = 32 * 1024;

/// Returns the next frame of a ring for a reader at this position, and moves the position.
pub fn next_output(ring: &Ring, position: &mut u64) -> Option<ServerMessage> {
    let missed = match ring.read(*position, FRAME) {
        None => ring.missed_at_end(*position),
        Some(read) if read.missed > 0 => read.missed,
        Some(read) => {
            *position += read.bytes.len() as u64;
            return Some(ServerMessage::Output {
                err: read.stream == Stream::Err,
                bytes: ByteText(read.bytes.to_vec()),
            });
        }
    };
    *position += missed;
    (missed > 0).then_some(ServerMessage::Behind { bytes: missed })
}

/// Sends a client one thing more; returns `false` when there is nothing.
pub fn feed(client: &mut Client, ring: &Ring, ending: Option<&ExitRecord>) -> bool {
    let ended = |ending: &ExitRecord| ServerMessage::Ended { exit: ending.exit, message: ending.message.clone() };
    match client.role {
        Role::Viewer { mut position, live_at, follow, input } => {
            if let Some(at) = live_at
                && position >= at
            {
                client.role = Role::Viewer { position, live_at: None, follow, input };
                client.tell(&ServerMessage::Live);
                if !follow {
                    client.tell(&ending.map_or(ServerMessage::Done, ended));
                    client.role = Role::Leaving;
                }
                return true;
            }
            match (next_output(ring, &mut position), ending) {
                (Some(frame), _) => {
                    client.role = Role::Viewer { position, live_at, follow, input };
                    client.tell(&frame);
                }
                (None, Some(ending)) => {
                    client.tell(&ended(ending));
                    client.role = Role::Leaving;
                }
                (None, None) => return false,
            }
            true
        }
        Role::Waiter => match ending {
            Some(ending) => {
                client.tell(&ended(ending));
                client.role = Role::Leaving;
                true
            }
            None => false,
        },
        Role::New | Role::Greeted | Role::Commander { .. } | Role::Leaving => false,
    }
}
