//! Sends reports about one claim, as often as the rules of repetition say.

use crate::lease;
use crate::live::ActiveClaim;
use crate::run::output::Output;
use crate::source::{SourceError, WorkSource};
use crate::stop::Stop;
use data_encoding::BASE64;
use nexus_api::Timestamp;
use nexus_api::conduits::{LogChunkRequest, Stream};
use nexus_api::retry::{self, Next};
use std::sync::atomic::Ordering;

/// A report was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUp {
    /// The daemon stops, or the claim is over.
    Stopped,
    /// The control plane refused it for good.
    Refused {
        /// Action that the rules name.
        next: Next,
        /// The cause, for a person to read.
        error: SourceError,
    },
}

/// Repeats a call until it is acknowledged, refused for good, or `is_over`.
pub fn repeated<T>(
    stop: &Stop,
    is_over: impl Fn() -> bool,
    mut call: impl FnMut() -> Result<T, SourceError>,
) -> Result<T, GivenUp> {
    let mut tries = 0;
    loop {
        let error = match call() {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        tries += 1;
        match retry::next(error.outcome(), tries, jitter()) {
            Next::Again(_) if is_over() => return Err(GivenUp::Stopped),
            Next::Again(pause) => {
                if stop.wait(pause) {
                    return Err(GivenUp::Stopped);
                }
            }
            next => return Err(GivenUp::Refused { next, error }),
        }
    }
}

/// Spreads the pauses of many daemons.
pub fn jitter() -> f64 {
    f64::from(lease::boot_time().subsec_nanos() % 1_000_003) / 1_000_003.0
}

/// Returns the time of this machine.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

/// Sends the output of a claim until it ends. What is not taken is noted as missing.
pub fn send_output(source: &dyn WorkSource, live: &ActiveClaim, output: &Output, stop: &Stop) {
    let mut next_seq = [0i64; 2];
    while let Some(piece) = output.next() {
        let index = usize::from(piece.stream == Stream::Stderr);
        let request = LogChunkRequest {
            stream: piece.stream,
            seq: next_seq[index],
            bytes: BASE64.encode(&piece.bytes),
            truncated: piece.truncated,
        };
        // The attendant may wait for room.
        live.control.wake();
        let send = || {
            let sent = source.log_chunk(live.directive, &live.token(), &request);
            output.tried(sent.is_ok(), matches!(sent, Err(SourceError::NoAnswer { .. })));
            sent
        };
        // Without a later claim no lease is needed: the control plane takes the output of the claim that ended the directive, and of one whose
        // end is not known there.
        let is_over =
            || if live.accepts_late_report() { output.is_late() } else { live.is_lost() || live.left().is_zero() };
        match repeated(stop, is_over, send) {
            Ok(()) => {
                live.last_seq.fetch_max(next_seq[index], Ordering::SeqCst);
            }
            Err(GivenUp::Refused { next: Next::Abandon | Next::Alarm, .. }) => {
                output.discard();
                // The directive belongs to another daemon: its work here ends. A report of the end is refused by the control plane.
                if !live.is_reporting() {
                    live.lose();
                }
            }
            Err(GivenUp::Refused { .. }) => output.lose(piece.stream),
            Err(GivenUp::Stopped) => {
                output.lose(piece.stream);
                if output.is_late() {
                    output.discard();
                }
            }
        }
        // A chunk that was not taken leaves a gap, by which the control plane sees that output is missing.
        next_seq[index] += 1;
    }
}
