//! Finds the end of a body, from the head alone and once; the proxy writes its own framing for the other side.

use super::head::{Field, HeadError, Request, Response};

/// Framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Message without a body.
    None,
    /// Body of so many bytes.
    Length(u64),
    /// Body in chunks.
    Chunked,
    /// Body until the connection ends; only for responses.
    UntilClose,
}

/// Returns the framing of a request's body. Refuses every head that could be read in two ways (RFC 9112, 6.3).
pub fn request_body(request: &Request<'_>) -> Result<Body, HeadError> {
    let length = content_length(&request.fields)?;
    match (transfer_encoding(&request.fields)?, length) {
        (true, Some(_)) => Err(HeadError::Malformed("it has both Content-Length and Transfer-Encoding")),
        (true, None) if request.minor == 0 => Err(HeadError::Malformed("HTTP/1.0 has no Transfer-Encoding")),
        (true, None) => Ok(Body::Chunked),
        (false, Some(0) | None) => Ok(Body::None),
        (false, Some(length)) => Ok(Body::Length(length)),
    }
}

/// Returns the framing of the response to a request with `method`.
pub fn response_body(response: &Response<'_>, method: &str) -> Result<Body, HeadError> {
    if method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304) {
        return Ok(Body::None);
    }
    let length = repeated_length(&response.fields)?;
    match (transfer_encoding(&response.fields)?, length) {
        (true, Some(_)) => Err(HeadError::Malformed("it has both Content-Length and Transfer-Encoding")),
        (true, None) if response.minor == 0 => Err(HeadError::Malformed("HTTP/1.0 has no Transfer-Encoding")),
        (true, None) => Ok(Body::Chunked),
        (false, Some(0)) => Ok(Body::None),
        (false, Some(length)) => Ok(Body::Length(length)),
        (false, None) => Ok(Body::UntilClose),
    }
}

/// Reads `Content-Length` of a request: one field of digits only, with no sign, no list, and no repetition even
/// of the same number.
pub(super) fn content_length(fields: &[Field<'_>]) -> Result<Option<u64>, HeadError> {
    let mut found = fields.iter().filter(|field| field.is("content-length"));
    let Some(field) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(HeadError::Malformed("it has two Content-Length fields"));
    }
    number(field.value).map(Some)
}

/// Reads `Content-Length` of a response, in which a server may repeat one number, in a list or in several fields (RFC
/// 9112, 6.3). The proxy writes it once, so no client reads another one.
fn repeated_length(fields: &[Field<'_>]) -> Result<Option<u64>, HeadError> {
    let lengths = fields.iter().filter(|field| field.is("content-length"));
    let mut numbers = lengths.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(first) = numbers.next() else { return Ok(None) };
    if numbers.any(|other| other != first) {
        return Err(HeadError::Malformed("it has two Content-Length values"));
    }
    number(first).map(Some)
}

fn number(digits: &[u8]) -> Result<u64, HeadError> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Malformed("its Content-Length is not a number"));
    }
    Ok(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// Reports whether `Transfer-Encoding` is present; refuses any value except `chunked`. Proxies and servers disagree
/// about other codings and lists of them.
fn transfer_encoding(fields: &[Field<'_>]) -> Result<bool, HeadError> {
    let mut found = fields.iter().filter(|field| field.is("transfer-encoding"));
    let Some(field) = found.next() else { return Ok(false) };
    if found.next().is_some() || !field.value.eq_ignore_ascii_case(b"chunked") {
        return Err(HeadError::Malformed("its Transfer-Encoding is not exactly chunked"));
    }
    Ok(true)
}

/// Kind of the bytes at the front of a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkEvent {
    /// More bytes are needed.
    More,
    /// So many bytes belong to the coding and are dropped.
    Skip(usize),
    /// So many bytes are content.
    Data(usize),
    /// So many bytes belong to the coding, and the body ends after them.
    End(usize),
}

/// Reader of the chunked coding: sizes of hexadecimal digits and CR LF, nothing else. Extensions are refused, since
/// programs disagree about where they end; trailers are dropped, since a field there could be taken for one of the
/// head.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    left: u64,
    state: State,
    trailer: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Size,
    Data,
    AfterData,
    Trailer,
}

/// Maximum length of all trailers, in bytes.
const TRAILER: usize = 8 * 1024;

impl Chunks {
    /// Classifies the first of `bytes`, which the caller must then skip, copy or complete.
    pub fn next(&mut self, bytes: &[u8]) -> Result<ChunkEvent, HeadError> {
        match self.state {
            State::Size => self.size(bytes),
            State::Data => {
                if bytes.is_empty() {
                    return Ok(ChunkEvent::More);
                }
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= count as u64;
                if self.left == 0 {
                    self.state = State::AfterData;
                }
                Ok(ChunkEvent::Data(count))
            }
            State::AfterData => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(ChunkEvent::Skip(2))
                }
                [] | [b'\r'] => Ok(ChunkEvent::More),
                _ => Err(HeadError::Malformed("a chunk is longer than its size")),
            },
            State::Trailer => self.trailer_line(bytes),
        }
    }

    fn size(&mut self, bytes: &[u8]) -> Result<ChunkEvent, HeadError> {
        let wrong = Err(HeadError::Malformed("a chunk's size is not a hexadecimal number followed by CR LF"));
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > 15 {
            return wrong;
        }
        match bytes.get(digits..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(ChunkEvent::More),
            [b'\r', b'\n', ..] if digits > 0 => {}
            _ => return wrong,
        }
        self.left = bytes
            .iter()
            .take(digits)
            .fold(0, |value, digit| value << 4 | u64::from(char::from(*digit).to_digit(16).unwrap_or_default()));
        self.state = if self.left == 0 { State::Trailer } else { State::Data };
        Ok(ChunkEvent::Skip(digits + 2))
    }

    fn trailer_line(&mut self, bytes: &[u8]) -> Result<ChunkEvent, HeadError> {
        let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else {
            return if bytes.len() + self.trailer > TRAILER { Err(HeadError::TooLong) } else { Ok(ChunkEvent::More) };
        };
        match bytes.get(end..end + 2) {
            Some(b"\r\n") if end == 0 => Ok(ChunkEvent::End(2)),
            Some(b"\r\n") => {
                super::head::field(bytes.get(..end).unwrap_or_default())?;
                self.trailer += end + 2;
                if self.trailer > TRAILER { Err(HeadError::TooLong) } else { Ok(ChunkEvent::Skip(end + 2)) }
            }
            None if bytes.get(end) == Some(&b'\r') => Ok(ChunkEvent::More),
            Some(_) | None => Err(HeadError::Malformed("a trailer line ends with something other than CR LF")),
        }
    }
}
