//! `nexus directive logs`: prints the output of a directive, and goes on until it ends.
//!
//! ```text
//!  events (a wake, or a second without one) ─▶ the directive, then new chunks of both streams, in the order of their time
//!                                                 └─ over, and nothing new ─▶ exit code of the directive
//! ```
//! The chunks are read by number, so that a connection that broke costs nothing but a moment.

use crate::client::access::Access;
use crate::client::call::failure;
use crate::failure::Failure;
use crate::failures;
use crate::print::print_json;
use crate::terminal::out;
use data_encoding::BASE64;
use nexus_api::client::{ClientError, EventStream, LogQuery, MothershipClient};
use nexus_api::conduits::Stream;
use nexus_api::mothership::{Directive, EventId, LogChunk};
use nexus_model::directive::State;
use nexus_model::exit::{REFUSED, TIMEOUT};
use nexus_model::ids::DirectiveId;
use nexus_terminal::{Filter, Mode};
use std::time::Duration;

/// Chunks of one request.
const PAGE: u32 = 200;
/// Time without an event after which the directive is read all the same.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Failed reads in a row after which following ends.
const MAX_FAILURES: u32 = 30;

/// Prints the output. With `follow` it goes on until the directive ends, and returns its exit code.
pub fn logs(access: &Access, id: DirectiveId, follow: bool, as_json: bool) -> Result<u8, Failure> {
    access.drive(async {
        let mut reader = Reader::new(&access.client, id);
        let (mut events, mut failures) = (Events::default(), 0);
        loop {
            let step = async {
                let directive = access.client.directive(id).await?;
                Ok::<_, ClientError>((directive, reader.news().await?))
            };
            match step.await {
                Ok((directive, chunks)) => {
                    failures = 0;
                    reader.show(&chunks)?;
                    let is_over = directive.state.is_terminal() && chunks.is_empty();
                    if is_over || (!follow && chunks.is_empty()) {
                        reader.end()?;
                        return ended(&directive, follow, as_json);
                    }
                    if !chunks.is_empty() || directive.state.is_terminal() {
                        continue;
                    }
                }
                Err(error) if error.status().is_some_and(|status| status < 500 && status != 429) => {
                    return Err(failure(&error));
                }
                // Another user has the port: the server cannot come back to it.
                Err(error @ ClientError::Stranger { .. }) => return Err(failure(&error)),
                Err(error) => {
                    failures += 1;
                    if !follow || failures >= MAX_FAILURES {
                        return Err(failure(&error));
                    }
                    events.stream = None;
                    tokio::time::sleep(READ_EVERY).await;
                }
            }
            wait(&access.client, id, &mut events).await;
        }
    })
}

/// Events of the directive over one connection after the other.
#[derive(Default)]
struct Events {
    stream: Option<EventStream>,
    /// The last event that came: the next connection goes on after it.
    last: Option<EventId>,
}

/// Waits for a change of the directive, at most a second.
async fn wait(client: &MothershipClient, id: DirectiveId, events: &mut Events) {
    let event = async {
        if events.stream.is_none() {
            events.stream = client.events(id, events.last).await.ok();
        }
        match &mut events.stream {
            Some(stream) => stream.next().await.ok().flatten(),
            None => std::future::pending().await,
        }
    };
    match tokio::time::timeout(READ_EVERY, event).await {
        Ok(Some(event)) => events.last = event.id.and_then(|id| id.parse().ok()).or(events.last),
        Ok(None) => {
            events.stream = None;
            // A stream that ends at once must not become a loop without a pause.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(_) => {}
    }
}

/// Says how it ended, and returns the exit code.
fn ended(directive: &Directive, follow: bool, as_json: bool) -> Result<u8, Failure> {
    if let Some(line) = missing(directive.stdout_truncated, directive.stderr_truncated).filter(|_| !as_json) {
        crate::notices::tell(line);
    }
    if as_json {
        print_json(directive)?;
    } else if follow && directive.state != State::Succeeded {
        let reason = directive.reason.as_deref().unwrap_or("without a reason");
        crate::notices::tell(&format!("The directive {}: {reason}.", directive.state));
        if matches!(reason, "commit_unknown" | "unconfirmed") {
            let show = format!("nexus directive show {}", directive.directive_id);
            crate::notices::tell(&format!(
                "It is not known yet whether it ended well and its changes are committed: its territory is away. `{show}` says it when the \
territory is back within a day."
            ));
        }
    }
    Ok(if follow { exit_code(directive) } else { 0 })
}

/// Returns the line about output that the reader does not see.
fn missing(stdout: bool, stderr: bool) -> Option<&'static str> {
    match (stdout, stderr) {
        (true, true) => Some("The log is not complete: output of stdout and of stderr is missing."),
        (true, false) => Some("The log is not complete: output of stdout is missing."),
        (false, true) => Some("The log is not complete: output of stderr is missing."),
        (false, false) => None,
    }
}

/// Returns the exit code of a directive as `nexus run` would.
fn exit_code(directive: &Directive) -> u8 {
    let own = directive.exit_code.and_then(|code| u8::try_from(code).ok());
    match directive.state {
        State::Succeeded => 0,
        State::TimedOut => own.unwrap_or(TIMEOUT),
        // An end that is not a success is never reported as one.
        _ => own.filter(|code| *code != 0).unwrap_or(REFUSED),
    }
}

struct Reader<'a> {
    client: &'a MothershipClient,
    id: DirectiveId,
    after: [i64; 2],
    filters: [Option<Filter>; 2],
}

const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

impl<'a> Reader<'a> {
    fn new(client: &'a MothershipClient, id: DirectiveId) -> Self {
        use std::io::IsTerminal;
        let filter = |is_terminal: bool| is_terminal.then(|| Filter::new(Mode::Plain));
        let filters = [filter(std::io::stdout().is_terminal()), filter(std::io::stderr().is_terminal())];
        Self { client, id, after: [-1; 2], filters }
    }

    /// Reads the chunks that are new, in the order of their time.
    async fn news(&mut self) -> Result<Vec<(usize, LogChunk)>, ClientError> {
        let mut found = Vec::new();
        for (index, stream) in STREAMS.into_iter().enumerate() {
            let query = LogQuery { stream, after_seq: self.after[index], limit: Some(PAGE), attempt: None };
            let page = self.client.log_chunks(self.id, &query).await?;
            if let Some(last) = page.chunks.last() {
                self.after[index] = last.seq;
            }
            found.extend(page.chunks.into_iter().map(|chunk| (index, chunk)));
        }
        found.sort_by_key(|(_, chunk)| chunk.created_at);
        Ok(found)
    }

    fn show(&mut self, chunks: &[(usize, LogChunk)]) -> Result<(), Failure> {
        for (index, chunk) in chunks {
            let bytes = BASE64.decode(chunk.bytes_base64.as_bytes()).map_err(|error| {
                Failure::refused("answer_unreadable", format!("a chunk of the log is damaged: {error}"), "run it again")
            })?;
            self.write(*index, &bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, index: usize, bytes: &[u8]) -> Result<(), Failure> {
        let mut shown = Vec::new();
        match &mut self.filters[index] {
            Some(filter) => filter.push(bytes, &mut shown),
            None => shown.extend_from_slice(bytes),
        }
        let written = if index == 0 {
            out::write_unless_closed(&mut out::stdout(), &shown)
        } else {
            out::write_unless_closed(&mut out::stderr(), &shown)
        };
        written.map_err(|error| failures::not_written("the output", &error))
    }

    /// Puts the terminal back.
    fn end(&mut self) -> Result<(), Failure> {
        for index in 0..2 {
            if let Some(filter) = &mut self.filters[index] {
                let bytes = filter.put_back();
                let written = if index == 0 {
                    out::write_unless_closed(&mut out::stdout(), &bytes)
                } else {
                    out::write_unless_closed(&mut out::stderr(), &bytes)
                };
                written.map_err(|error| failures::not_written("the output", &error))?;
            }
        }
        Ok(())
    }
}
