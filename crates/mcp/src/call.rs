//! One call of a tool: what it needs of its connection, and its outcome.

use crate::commands::{CommandEnd, Run};
use crate::output::Capture;
use nexus_caller::failure::Failure;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of new output in one progress message.
const MAX_NEWS: usize = 4096;
/// Shortest time between two progress messages of a call.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// The parts of a connection that a call needs.
pub struct Call<'a> {
    /// Says whether the client has cancelled the call.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Tells the client something new: the bytes so far, and the last of them.
    pub progress: &'a (dyn Fn(u64, &str) + Sync),
}

/// The outcome of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The result of the call.
    Done {
        /// The text for a model.
        text: String,
        /// The same for a program.
        structured: Value,
        /// True where Nexus refused something.
        is_error: bool,
    },
    /// The client has cancelled the call, and what it started has ended.
    Cancelled,
}

impl Outcome {
    /// Makes the outcome of a call that did its work.
    pub fn done(text: impl Into<String>, structured: Value) -> Self {
        Self::Done { text: text.into(), structured, is_error: false }
    }

    /// Makes the outcome of a call that Nexus refused.
    pub fn refused(failure: &Failure) -> Self {
        let remedy =
            if failure.hint.is_empty() { "Change the call; see the schema of the tool." } else { &failure.hint };
        let denials =
            json!([{ "code": failure.code, "cause": failure.message, "rule": failure.code, "remedy": remedy }]);
        Self::Done { text: failure.text(), structured: json!({ "denials": denials }), is_error: true }
    }

    /// Returns the result of `tools/call`; `None` for a call that was cancelled.
    pub fn result(self) -> Option<Value> {
        match self {
            Self::Done { text, structured, is_error } => Some(json!({
                "content": [{ "type": "text", "text": text }],
                "structuredContent": structured,
                "isError": is_error,
            })),
            Self::Cancelled => None,
        }
    }
}

/// Waits for the end of a command, and tells the client what it prints. Ends it when the client has cancelled the call; `None` then.
pub fn follow(run: &Run, call: &Call<'_>) -> Result<Option<CommandEnd>, Failure> {
    let mut last = None;
    let news = |capture: &mut Capture| {
        let is_soon = last.is_some_and(|last: Instant| last.elapsed() < NEWS_EVERY);
        if !is_soon && let Some((text, bytes)) = capture.news(MAX_NEWS) {
            last = Some(Instant::now());
            (call.progress)(bytes, &text);
        }
    };
    let ending = run.wait(call.is_cancelled, news);
    if ending.is_none() {
        run.stop(None)?;
    }
    Ok(ending)
}
