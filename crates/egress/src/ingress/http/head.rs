//! Reads the head of a request or response strictly (RFC 9112).
//!
//! Refused, though some programs take it: a line that ends with a bare LF, a bare CR or NUL anywhere, white space
//! before the colon or at the start of a line (obs-fold), more than one space in the first line, bytes beyond ASCII in
//! the target. Each of them was a smuggling attack somewhere (CVE-2025-4366, RUSTSEC-2021-0078). A response may have
//! folded lines, which become spaces first ([`unfold_response`]).

use crate::limits::Limits;

/// Field of a head: its name, and its value without outer white space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name as it was written.
    pub name: &'a [u8],
    /// Value without outer white space.
    pub value: &'a [u8],
}

impl Field<'_> {
    /// Reports whether the field has this name, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Method of the request.
    pub method: &'a str,
    /// Request target as it was written.
    pub target: &'a str,
    /// Minor version, after `HTTP/1.`: 0 or 1.
    pub minor: u8,
    /// Fields in order.
    pub fields: Vec<Field<'a>>,
    /// Length of the whole head in bytes.
    pub length: usize,
}

/// Head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Status code of the response.
    pub status: u16,
    /// Reason phrase as bytes.
    pub reason: &'a [u8],
    /// Minor version, after `HTTP/1.`: 0 or 1.
    pub minor: u8,
    /// Fields in order.
    pub fields: Vec<Field<'a>>,
    /// Length of the whole head in bytes.
    pub length: usize,
}

/// Error of a head that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The head is longer than allowed: 431.
    #[error("the head is longer than allowed")]
    TooLong,
    /// The head has too many fields: 431.
    #[error("the head has more fields than allowed")]
    TooMany,
    /// The target is longer than allowed: 414.
    #[error("the request target is longer than allowed")]
    TargetTooLong,
    /// The head is not HTTP/1, or has a form that programs read differently: 400.
    #[error("the head is malformed: {0}")]
    Malformed(&'static str),
}

impl HeadError {
    /// Returns the status with which the proxy answers this error.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLong | Self::TooMany => 431,
            Self::TargetTooLong => 414,
            Self::Malformed(_) => 400,
        }
    }
}

/// Reads a request head from the start of `bytes`; `None` if it is not complete.
///
/// An empty line before it is skipped: some clients write one behind a body (RFC 9112, 2.2).
pub fn parse_request<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Request<'a>>, HeadError> {
    let passed = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    if bytes == b"\r" {
        return Ok(None);
    }
    let bytes = bytes.get(passed..).unwrap_or_default();
    if bytes.first().is_some_and(|first| !is_token(*first)) {
        return Err(HeadError::Malformed("it begins with no method"));
    }
    let first_line = bytes.iter().position(|byte| *byte == b'\r').unwrap_or(bytes.len());
    if first_line > limits.target_bytes + 64 {
        return Err(HeadError::TargetTooLong);
    }
    let Some((line, fields, length)) = lines(bytes, limits)? else { return Ok(None) };
    // The empty line before it counts: a buffer for a head of the greatest length holds it too.
    if passed + length > limits.head_bytes {
        return Err(HeadError::TooLong);
    }
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(HeadError::Malformed("the first line is not METHOD TARGET VERSION"));
    };
    if target.len() > limits.target_bytes {
        return Err(HeadError::TargetTooLong);
    }
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err(HeadError::Malformed("the method is not a token"));
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(HeadError::Malformed("the target has characters that belong to no URL"));
    }
    let (Ok(method), Ok(target)) = (str::from_utf8(method), str::from_utf8(target)) else {
        return Err(HeadError::Malformed("the first line is not ASCII"));
    };
    Ok(Some(Request { method, target, minor: minor(version)?, fields, length: passed + length }))
}

/// Replaces folded lines (obs-fold) of the response head at the start of `bytes` by spaces, as a proxy may (RFC 9112,
/// 5.2). The length of the head stays the same. A fold behind the first line belongs to no field, and is left as it is.
pub(super) fn unfold_response(bytes: &mut [u8]) {
    let (mut start, mut from, mut is_field) = (0, 0, false);
    while let Some(count) = bytes.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
        let end = from + count;
        from = end + 1;
        let ends_with_cr = end > start && bytes.get(end - 1) == Some(&b'\r');
        if !ends_with_cr || end - 1 == start {
            // The head ends here, or cannot be read.
            return;
        }
        if is_field && matches!(bytes.get(from), Some(b' ' | b'\t')) {
            if let Some(line_end) = bytes.get_mut(end - 1..from) {
                line_end.fill(b' ');
            }
        } else {
            (start, is_field) = (from, true);
        }
    }
}

/// Reads a response head from the start of `bytes`; `None` if it is not complete.
pub fn parse_response<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Response<'a>>, HeadError> {
    let Some((line, fields, length)) = lines(bytes, limits)? else { return Ok(None) };
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(version), Some(status), reason) = (parts.next(), parts.next(), parts.next().unwrap_or_default()) else {
        return Err(HeadError::Malformed("the first line is not VERSION STATUS REASON"));
    };
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = status else {
        return Err(HeadError::Malformed("the status is not a number of three digits"));
    };
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    Ok(Some(Response { status, reason, minor: minor(version)?, fields, length }))
}

fn minor(version: &[u8]) -> Result<u8, HeadError> {
    match version {
        b"HTTP/1.1" => Ok(1),
        b"HTTP/1.0" => Ok(0),
        _ => Err(HeadError::Malformed("the version is not HTTP/1.0 or HTTP/1.1")),
    }
}

type Lines<'a> = (&'a [u8], Vec<Field<'a>>, usize);

/// Reads the first line and the fields, with the length of the head; `None` if it is not complete.
fn lines<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Lines<'a>>, HeadError> {
    let bytes = bytes.get(..limits.head_bytes + 1).unwrap_or(bytes);
    let mut first = None;
    let mut fields = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0));
        let (line, next) = match end.map(|end| (rest.get(end..end + 2), end)) {
            Some((Some(b"\r\n"), end)) => (rest.get(..end).unwrap_or_default(), at + end + 2),
            Some((None, end)) if rest.get(end) == Some(&b'\r') => return incomplete(bytes, limits),
            None => return incomplete(bytes, limits),
            Some(_) => return Err(HeadError::Malformed("a line ends with something other than CR LF")),
        };
        if next > limits.head_bytes {
            return Err(HeadError::TooLong);
        }
        at = next;
        match (first, line) {
            (None, []) => return Err(HeadError::Malformed("it begins with an empty line")),
            (None, line) => first = Some(line),
            (Some(first), []) => return Ok(Some((first, fields, at))),
            (Some(_), line) => {
                if fields.len() >= limits.fields {
                    return Err(HeadError::TooMany);
                }
                fields.push(field(line)?);
            }
        }
    }
}

fn incomplete<'a>(bytes: &[u8], limits: &Limits) -> Result<Option<Lines<'a>>, HeadError> {
    if bytes.len() > limits.head_bytes { Err(HeadError::TooLong) } else { Ok(None) }
}

/// Reads one field line.
pub(crate) fn field(line: &[u8]) -> Result<Field<'_>, HeadError> {
    let colon = line.iter().position(|byte| *byte == b':');
    let Some((name, value)) = colon.and_then(|colon| Some((line.get(..colon)?, line.get(colon + 1..)?))) else {
        return Err(HeadError::Malformed("a field has no colon"));
    };
    // This also refuses a fold (white space first) and white space before the colon.
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(HeadError::Malformed("a field's name is not a token"));
    }
    if value.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f) {
        return Err(HeadError::Malformed("a field's value has a control byte"));
    }
    Ok(Field { name, value: value.trim_ascii() })
}

/// Reports whether a byte may be in a token (RFC 9110, 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
