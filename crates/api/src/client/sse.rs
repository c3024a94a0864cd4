//! Server-sent events, read piece by piece.

use super::error::ClientError;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;

/// Longest event that the client reads.
const MAX_EVENT: usize = 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// Name of the event; `message` when the stream gives none.
    pub event: String,
    /// Id that a later connection can continue after.
    pub id: Option<String>,
    /// Data, one line or several.
    pub data: String,
}

/// Reads events from pieces of a stream, whatever the borders of the pieces are.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    after_return: bool,
    event: SseEvent,
    has_data: bool,
    last_id: Option<String>,
    size: usize,
}

/// An event of the stream is longer than the client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT} bytes")]
pub struct TooLong;

impl SseParser {
    /// Takes the next piece and appends the events that it completes to `events`.
    pub fn push(&mut self, piece: &[u8], events: &mut VecDeque<SseEvent>) -> Result<(), TooLong> {
        for byte in piece {
            // A line ends with CR, LF, or both.
            let ends = match byte {
                b'\n' if self.after_return => {
                    self.after_return = false;
                    continue;
                }
                b'\n' | b'\r' => true,
                _ => false,
            };
            self.after_return = *byte == b'\r';
            if !ends {
                self.size += 1;
                if self.size > MAX_EVENT {
                    return Err(TooLong);
                }
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if line.is_empty() {
                events.extend(self.dispatch());
            } else {
                self.field(&String::from_utf8_lossy(&line));
            }
        }
        Ok(())
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event.event),
            "id" if !value.contains('\0') => self.last_id = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            // A comment keeps the connection open; other fields are for later versions.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let mut event = std::mem::take(&mut self.event);
        self.size = 0;
        if !std::mem::take(&mut self.has_data) {
            return None;
        }
        if event.event.is_empty() {
            "message".clone_into(&mut event.event);
        }
        event.id.clone_from(&self.last_id);
        Some(event)
    }
}

/// Events of a connection.
pub struct EventStream {
    server: String,
    body: Incoming,
    parser: SseParser,
    ready: VecDeque<SseEvent>,
}

impl EventStream {
    pub(super) fn new(server: String, body: Incoming) -> Self {
        Self { server, body, parser: SseParser::default(), ready: VecDeque::new() }
    }

    /// Waits for the next event; `None` when the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let fault = |why: String| ClientError::Broken { server: self.server.clone(), why };
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| fault(error.to_string()))?;
            if let Some(piece) = frame.data_ref() {
                self.parser.push(piece, &mut self.ready).map_err(|error| fault(error.to_string()))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        ": hello\n\nid: 1-2\nevent: state\ndata: {\"a\":1}\n\ndata: x\r\ndata: y\r\n\r\nevent: none\n\nid\ndata\n\n";

    fn read(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let (mut parser, mut events) = (SseParser::default(), VecDeque::new());
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        events.into()
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let events = read(&[TEXT.as_bytes()]);
        let event = |event: &str, id: &str, data: &str| SseEvent {
            event: event.into(),
            id: Some(id.into()),
            data: data.into(),
        };
        assert_eq!(
            events,
            [event("state", "1-2", "{\"a\":1}"), event("message", "1-2", "x\ny"), event("message", "", "")]
        );
    }

    #[test]
    fn an_endless_event_is_refused() {
        let (mut parser, mut events) = (SseParser::default(), VecDeque::new());
        let piece = vec![b'x'; MAX_EVENT / 2];
        assert_eq!(parser.push(&piece, &mut events), Ok(()));
        assert_eq!(parser.push(&piece, &mut events), Ok(()));
        assert_eq!(parser.push(b"x", &mut events), Err(TooLong));
    }

    proptest! {
        #[test]
        fn the_borders_of_pieces_change_nothing(cuts in prop::collection::vec(0..TEXT.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.push(0);
            cuts.push(TEXT.len());
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &TEXT.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[TEXT.as_bytes()]));
        }

        #[test]
        fn no_bytes_stop_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&[&bytes]);
        }
    }
}
