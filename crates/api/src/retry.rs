//! The rules by which a daemon repeats a call, as a pure function.
//!
//! ```text
//!  no answer, 429, 5xx ─▶ again: Retry-After, otherwise 2 s doubled up to 60 s, with jitter
//!  401, 403            ─▶ alarm          404, 409 ─▶ give the directive up and kill its work
//!  other 4xx           ─▶ final
//! ```

use std::time::Duration;

/// Shortest pause between two tries.
pub const MIN_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause between two tries that a daemon chooses.
pub const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Longest `Retry-After` that a daemon obeys.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Status of an answer to a body that did not arrive in time.
pub const SLOW_BODY: u16 = 408;

/// End of one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No answer came: the connection failed, or the time was up. The request may have taken effect.
    NoAnswer,
    /// An answer with this status came.
    Status {
        /// Status code of the answer.
        status: u16,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
}

/// Action after one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The call succeeded.
    Done,
    /// The daemon repeats the call after this pause.
    Again(Duration),
    /// The daemon's identity was refused: it raises an alarm and stops the call.
    Alarm,
    /// The directive belongs to this daemon no more: it is given up and its work is killed.
    Abandon,
    /// The request was refused for good.
    Final,
}

/// Returns the action after try number `tries` (the first is 1). `jitter` lies between 0 and 1 and spreads the pauses.
#[must_use]
pub fn next(outcome: Outcome, tries: u32, jitter: f64) -> Next {
    let (status, retry_after) = match outcome {
        Outcome::NoAnswer => (None, None),
        Outcome::Status { status, retry_after } => (Some(status), retry_after),
    };
    match status {
        Some(200..=299) => Next::Done,
        None | Some(429 | 500..=599) => Next::Again(pause(retry_after, tries, jitter)),
        Some(401 | 403) => Next::Alarm,
        Some(404 | 409) => Next::Abandon,
        Some(_) => Next::Final,
    }
}

fn pause(retry_after: Option<Duration>, tries: u32, jitter: f64) -> Duration {
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.5 };
    if let Some(wanted) = retry_after {
        let wanted = wanted.min(MAX_RETRY_AFTER);
        // Never earlier than the server asked for.
        return wanted + wanted.mul_f64(jitter * 0.1);
    }
    let doubled = MIN_PAUSE.saturating_mul(1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX).max(1));
    // Half of the pause is fixed: a daemon whose jitter is always 0 does not flood the server.
    let pause = doubled.min(MAX_PAUSE);
    pause.mul_f64(0.5 + jitter * 0.5).max(MIN_PAUSE.mul_f64(0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Next {
        next(Outcome::Status { status, retry_after: None }, 1, 1.0)
    }

    #[test]
    fn each_status_has_the_action_of_the_contract() {
        for code in [429, 500, 502, 503, 504, 507] {
            assert!(matches!(status(code), Next::Again(_)), "{code}");
        }
        assert!(matches!(next(Outcome::NoAnswer, 1, 0.0), Next::Again(_)));
        assert_eq!((status(401), status(403)), (Next::Alarm, Next::Alarm));
        assert_eq!((status(404), status(409)), (Next::Abandon, Next::Abandon));
        for code in [400, 405, 413, 415, 422] {
            assert_eq!(status(code), Next::Final, "{code}");
        }
        assert_eq!((status(200), status(201)), (Next::Done, Next::Done));
    }

    #[test]
    fn pauses_double_from_two_seconds_to_a_minute() {
        let pauses: Vec<u64> = (1..=8)
            .map(|tries| match next(Outcome::NoAnswer, tries, 1.0) {
                Next::Again(pause) => pause.as_secs(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        for tries in [0, 1, 31, 32, 33, u32::MAX] {
            for jitter in [f64::NAN, -1.0, 0.0, 0.5, 1.0, 9.0] {
                let Next::Again(pause) = next(Outcome::NoAnswer, tries, jitter) else { panic!() };
                assert!((Duration::from_secs(1)..=MAX_PAUSE).contains(&pause), "{tries} {jitter}: {pause:?}");
            }
        }
    }

    #[test]
    fn a_pause_that_the_server_asks_for_is_kept_up_to_a_bound() {
        let asked = |seconds| match next(
            Outcome::Status { status: 503, retry_after: Some(Duration::from_secs(seconds)) },
            9,
            0.0,
        ) {
            Next::Again(pause) => pause.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!((asked(1), asked(7), asked(86_400)), (1, 7, 300));
    }
}
