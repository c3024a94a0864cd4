//! Reads the server name in a ClientHello, and nothing else of TLS.
//!
//! The bytes are hostile: every length is checked, at most [`MAX`] bytes are read, and a message that does not parse
//! exactly is not TLS. Nothing is decrypted. An encrypted name (ECH) is an extension like any other here: every
//! Chromium hello carries one, real or not, and the outer name decides the route and was allowed.

/// Maximum length of a ClientHello in bytes; with post-quantum keys, honest ones have about 2 KiB.
const MAX: usize = 16 * 1024;
/// Maximum length with record headers. Each read parses all records again, so a hello in thousands of tiny ones is
/// refused.
const MAX_WIRE: usize = MAX + 4 * 1024;

/// State of the bytes that were read so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Beginning of a ClientHello.
    More,
    /// Whole ClientHello with this name, byte for byte.
    Sni(Vec<u8>),
    /// Whole ClientHello without a name.
    NoSni,
    /// Bytes that are not a ClientHello.
    NotTls,
}

/// Classifies the first bytes of a connection.
pub fn read(bytes: &[u8]) -> Seen {
    read_measured(bytes).0
}

/// Reports whether the bytes begin with a record of TLS, as far as they go. A server may read a ClientHello behind it
/// that is not read here, because it is too long, comes too late or stands behind a record that the server skips.
pub fn begins_as_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=24] | [20..=24, 3, ..])
}

/// Classifies like [`read`] and returns the number of bytes of a whole ClientHello with its records; 0 for anything
/// else.
pub fn read_measured(bytes: &[u8]) -> (Seen, usize) {
    match handshake(bytes) {
        Ok((message, length)) => match client_hello(&message) {
            Some(seen) => (seen, length),
            None => (Seen::NotTls, 0),
        },
        Err(seen) => (seen, 0),
    }
}

/// Returns the first handshake message, put together from its records (RFC 8446, 5.1), without its header, and the
/// number of bytes of its records. A record that holds more than the message is refused: the rest could be a second
/// ClientHello.
fn handshake(mut bytes: &[u8]) -> Result<(Vec<u8>, usize), Seen> {
    let total = bytes.len();
    let mut message: Vec<u8> = Vec::new();
    loop {
        let length = match message.as_slice() {
            [1, a, b, c, ..] => Some(usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)),
            [1, ..] | [] => None,
            _ => return Err(Seen::NotTls),
        };
        if let Some(length) = length {
            if length > MAX {
                return Err(Seen::NotTls);
            }
            if message.len() > 4 + length {
                return Err(Seen::NotTls);
            }
            if let Some(body) = message.get(4..4 + length) {
                return Ok((body.to_vec(), total - bytes.len()));
            }
        }
        let (kind, major, payload) = match bytes {
            [kind, major, _, high, low, rest @ ..] => {
                let length = usize::from(*high) << 8 | usize::from(*low);
                // An empty record is skipped, as servers do. A record longer than the protocol allows is not an honest
                // hello.
                if length > 16 * 1024 {
                    return Err(Seen::NotTls);
                }
                let payload = rest.get(..length);
                (*kind, *major, payload.map(|payload| (payload, &rest[length..])))
            }
            [kind, major, ..] => (*kind, *major, None),
            [kind] => (*kind, 3, None),
            [] => return Err(if total > MAX_WIRE { Seen::NotTls } else { Seen::More }),
        };
        if kind != 22 || major != 3 {
            return Err(Seen::NotTls);
        }
        match payload {
            Some((payload, rest)) => {
                message.extend_from_slice(payload);
                bytes = rest;
            }
            None => return Err(if total > MAX_WIRE { Seen::NotTls } else { Seen::More }),
        }
    }
}

/// Random of a ServerHello that asks for a second ClientHello (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// First message of a server, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAnswer {
    /// Too few bytes to decide.
    More,
    /// HelloRetryRequest: a second ClientHello follows in clear.
    Retry,
    /// A ServerHello, after which no ClientHello is sent in clear, or something else than TLS.
    Other,
}

/// Reads the first bytes of a server's answer, up to its random. Alerts before it are skipped.
pub fn read_answer(mut bytes: &[u8]) -> ServerAnswer {
    let mut message: Vec<u8> = Vec::new();
    loop {
        if message.first().is_some_and(|kind| *kind != 2) {
            return ServerAnswer::Other;
        }
        if let Some(random) = message.get(6..38) {
            return if random == RETRY { ServerAnswer::Retry } else { ServerAnswer::Other };
        }
        match bytes {
            [kind @ (21 | 22), 3, _, high, low, rest @ ..] => {
                let length = usize::from(*high) << 8 | usize::from(*low);
                if *kind == 22 {
                    message.extend(rest.iter().take(length));
                }
                match rest.get(length..) {
                    Some(rest) => bytes = rest,
                    // Only a part of the last record has come.
                    None => bytes = &[],
                }
            }
            [] | [21 | 22] | [21 | 22, 3, ..] => {
                let enough = message.get(6..38).is_some() || message.first().is_some_and(|kind| *kind != 2);
                if !enough {
                    return ServerAnswer::More;
                }
            }
            _ => return ServerAnswer::Other,
        }
    }
}

/// Returns the type and length of the record that begins here, once its header is whole.
pub fn record(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes {
        [kind, _, _, high, low, ..] => Some((*kind, usize::from(*high) << 8 | usize::from(*low))),
        _ => None,
    }
}

/// Cursor that never reads past its end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    }

    /// Reads a vector with a length of `bytes` bytes before it.
    fn vector(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

fn client_hello(message: &[u8]) -> Option<Seen> {
    let mut reader = Reader(message);
    reader.take(2 + 32)?;
    if reader.vector(1)?.len() > 32 {
        return None;
    }
    let suites = reader.vector(2)?;
    if suites.is_empty() || !suites.len().is_multiple_of(2) || reader.vector(1)?.is_empty() {
        return None;
    }
    if reader.0.is_empty() {
        return Some(Seen::NoSni);
    }
    let mut extensions = Reader(reader.vector(2)?);
    if !reader.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        if kind == 0 {
            // With two names, the server might take the other one.
            if found.is_some() {
                return None;
            }
            found = Some(server_name(content)?);
        }
    }
    Some(found.map_or(Seen::NoSni, |name| Seen::Sni(name.to_vec())))
}

/// Reads the extension of RFC 6066: a list, in practice of exactly one name of type 0.
fn server_name(content: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader(content);
    let mut list = Reader(reader.vector(2)?);
    if !reader.0.is_empty() || list.number(1)? != 0 {
        return None;
    }
    let name = list.vector(2)?;
    (list.0.is_empty() && !name.is_empty()).then_some(name)
}
