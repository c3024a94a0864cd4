//! Finds out the protocol of an allowed connection, for every way in.
//!
//! ```text
//!  CONNECT ────┐   for port 80 without TLS: await the first bytes
//!  SOCKS5 ─────┼─▶   ├─ METHOD SP ───────────────▶ back to `serve`: every request is decided
//!  redirected ─┘     ├─ WORD TAB and the like ────▶ refused
//!                    ├─ something else, the server │ refused, or by the setting
//!                    │  first ─────────────────────┴▶ tunnel
//!                    ├─ nothing in time ───────────▶ refused; where the setting lets something else pass, waited for
//!                    └─ an end before a byte ───────▶ end
//!                  for all else ────────────────────▶ tunnel (with a look at the ClientHello)
//! ```
//!
//! A tunnel to port 80 that is not inspected is domain fronting without any TLS: the `Host` header chooses among all
//! names behind the server.

use super::head::is_token;
use crate::decide::denials;
use crate::decide::open::Opened;
use crate::ingress::tunnel::{self, Ends};
use crate::memory::inbuf::InBuf;
use nexus_policy::net::{Denial, check_not_http};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum length of a method in bytes, with the white space before it, that some servers take. The longest registered
/// one has 17 letters.
const LONGEST_METHOD: usize = 8 * 1024;

/// Kind of the first bytes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Beginning of a method.
    More,
    /// Request of HTTP/1.
    Http,
    /// First line that some servers take for a request, with another separator than a space.
    Lenient,
    /// Bytes of another protocol.
    Other,
}

/// First event on a connection.
enum First {
    Begin(Begin),
    /// End of the stream before any byte.
    End,
    /// Time limit that passed before the first line was clear.
    Late,
    /// Connection that was cut, or whose time is over.
    Over(Option<Denial>),
}

/// HTTP/1 that was found on an allowed connection: the caller decides about each request.
pub(crate) struct Http {
    pub(crate) stream: TcpStream,
    pub(crate) held: InBuf,
    pub(crate) opened: Opened,
}

/// Serves `stream` to its end, unless it carries HTTP/1, which is returned.
pub(crate) async fn carry(mut stream: TcpStream, mut held: InBuf, mut opened: Opened) -> Option<Http> {
    if opened.ticket.permit().expects_http() {
        let first = first(&mut stream, &mut held, &opened).await;
        let lax = check_not_http(&opened.ticket.policy(), opened.ticket.permit());
        let stop = match (first, lax) {
            (First::Begin(Begin::Http), _) => return Some(Http { stream, held, opened }),
            (First::Over(why), _) => why,
            (First::End, Err(_)) => return None,
            (First::Begin(Begin::More | Begin::Lenient | Begin::Other) | First::Late, Err(denial)) => Some(denial),
            // A tunnel from here on would hide the rest of the request.
            (First::Begin(Begin::More) | First::Late, Ok(())) => {
                Some(denials::malformed("the method of a request did not arrive in time"))
            }
            (First::Begin(Begin::Lenient), Ok(())) => {
                Some(denials::malformed("the first line is not a request, and some servers would take it for one"))
            }
            (First::Begin(Begin::Other) | First::End, Ok(())) => {
                through(stream, held, &mut opened).await;
                return None;
            }
        };
        if let Some(why) = stop {
            opened.ticket.entry.cut(why);
        }
        tunnel::reset(&stream);
        tunnel::reset(&opened.dialed.stream);
        return None;
    }
    through(stream, held, &mut opened).await;
    None
}

async fn through(mut stream: TcpStream, held: InBuf, opened: &mut Opened) {
    let asked = opened.dialed.ask_for_tunnel(&opened.ticket.received).await;
    if let Err(error) = &asked {
        opened.ticket.failed(error);
    }
    if asked.is_err() || opened.ticket.count_received().is_err() {
        return tunnel::reset(&stream);
    }
    let ends = Ends {
        client: &mut stream,
        upstream: &mut opened.dialed.stream,
        from_client: held,
        from_upstream: std::mem::take(&mut opened.dialed.early),
    };
    tunnel::run(ends, &opened.ticket, true).await;
}

/// Waits for the first bytes of either side. The server's bytes stay unread.
async fn first(stream: &mut TcpStream, held: &mut InBuf, opened: &Opened) -> First {
    loop {
        // Silence is not another protocol: where one may pass, the bytes after the silence are checked too.
        let is_lax = check_not_http(&opened.ticket.policy(), opened.ticket.permit()).is_ok();
        if is_lax
            && held.is_empty()
            && let Some(first) = silence(stream, opened).await
        {
            return first;
        }
        match first_of(stream, held, opened).await {
            First::Late if is_lax && held.is_empty() => {}
            // The server sent first, or the client ended.
            First::Begin(Begin::Other) if !held.is_empty() && begin(held.bytes()) == Begin::More => {
                return First::Begin(Begin::More);
            }
            first => return first,
        }
    }
}

/// Waits until the client sends bytes or ends, which is `None`, or until another event comes first.
async fn silence(stream: &TcpStream, opened: &Opened) -> Option<First> {
    tokio::select! {
        biased;
        why = opened.ticket.entry.until_cut() => Some(First::Over(Some(why))),
        // The following read finds an error.
        Ok(()) | Err(_) = stream.readable() => None,
        first = of_server(opened) => Some(first),
        over = opened.ticket.until_over() => Some(First::Over(over)),
    }
}

async fn of_server(opened: &Opened) -> First {
    if !opened.dialed.early.is_empty() {
        return First::Begin(Begin::Other);
    }
    match opened.dialed.stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => First::End,
        Ok(_) => First::Begin(Begin::Other),
    }
}

async fn first_of(stream: &mut TcpStream, held: &mut InBuf, opened: &Opened) -> First {
    let (mut from, _) = stream.split();
    let mut share = opened.ticket.shared.heads.share();
    let client = async {
        loop {
            match begin(held.bytes()) {
                Begin::More => {}
                started => return First::Begin(started),
            }
            match held.fill(&mut from).await {
                Ok(0) | Err(_) if held.is_empty() => return First::End,
                Ok(0) | Err(_) => return First::Begin(Begin::Other),
                Ok(_) if share.covers(held) => {}
                Ok(_) => return First::Over(Some(denials::too_many("the sandbox has too many unfinished requests"))),
            }
        }
    };
    let either = async {
        tokio::select! {
            biased;
            first = client => first,
            first = of_server(opened) => first,
        }
    };
    tokio::select! {
        biased;
        why = opened.ticket.entry.until_cut() => First::Over(Some(why)),
        first = timeout(opened.ticket.shared.limits.hello_time, either) => first.unwrap_or(First::Late),
        over = opened.ticket.until_over() => First::Over(over),
    }
}

/// Looks for `METHOD SP` behind empty lines and white space, which some servers skip. `PRI` begins HTTP/2 (RFC 9113,
/// 3.4), which is not read here. Some servers take other white space for the space, and any word for a method.
fn begin(bytes: &[u8]) -> Begin {
    let passed = bytes.iter().take_while(|byte| is_space(**byte)).count();
    let whole = bytes.len();
    let bytes = bytes.get(passed..).unwrap_or_default();
    let length = bytes.iter().take_while(|byte| byte.is_ascii_graphic()).count();
    let (word, rest) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
    match rest {
        // Servers skip white space before a request, of any length.
        [] | [b'\r'] if whole > LONGEST_METHOD && passed > 0 => Begin::Lenient,
        [] | [b'\r'] if whole > LONGEST_METHOD => Begin::Other,
        [] | [b'\r'] => Begin::More,
        [b'\n', ..] | [b'\r', b'\n', ..] => Begin::Other,
        [b' ', ..] if word == b"PRI" => Begin::Other,
        [b' ', ..] if word.iter().all(|byte| is_token(*byte)) => Begin::Http,
        [separator, ..] if !word.is_empty() && is_space(*separator) => Begin::Lenient,
        [_, ..] => Begin::Other,
    }
}

/// Reports whether some server takes the byte for white space between two words (among others Python's `str.split`).
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=b' ' | 0x85 | 0xa0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_recognized_by_its_method_at_every_length() {
        for (bytes, wanted) in [
            (&b"GET / HTTP/1.1\r\n"[..], Begin::Http),
            (b"x-own / HTTP/1.1\r\n", Begin::Http),
            (b"PRIX * HTTP/2.0\r\n", Begin::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Begin::Other),
            (b"PING\r\n", Begin::Other),
            (b" GET / HTTP/1.1\r\n", Begin::Http),
            (b"\nGET / HTTP/1.1\r\n", Begin::Http),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", Begin::Http),
            (b"\x16\x03\x01", Begin::Other),
            (b"AMQP\0", Begin::Other),
            (b"\x0b\x0c\x1f\x85\xa0GET / HTTP/1.1\r\n", Begin::Http),
            (b"GET\t/ HTTP/1.1\r\n", Begin::Lenient),
            (&[b' '; LONGEST_METHOD + 1], Begin::Lenient),
            (&[b'\n'; LONGEST_METHOD + 1], Begin::Lenient),
            (&[b'A'; LONGEST_METHOD + 1], Begin::Other),
            (b"GET\x0b/ HTTP/1.1\r\n", Begin::Lenient),
            (b"GET\r/\rHTTP/1.1\r\n", Begin::Lenient),
            (b"GET\x1c/ HTTP/1.1\r\n", Begin::Lenient),
            (b"GET\xa0/ HTTP/1.1\r\n", Begin::Lenient),
            (b"G(T / HTTP/1.1\r\n", Begin::Lenient),
            (b"A-METHOD-THAT-IS-LONGER-THAN-ANY-OTHER / HTTP/1.1", Begin::Http),
        ] {
            assert_eq!(begin(bytes), wanted, "{bytes:?}");
            for end in 0..bytes.len() {
                let so_far = begin(&bytes[..end]);
                assert!(so_far == wanted || so_far == Begin::More, "{bytes:?} up to {end}: {so_far:?}");
            }
        }
        assert_eq!(begin(b""), Begin::More);
        assert_eq!(begin(&[b'A'; LONGEST_METHOD]), Begin::More);
        assert_eq!(begin(&[b'A'; LONGEST_METHOD + 1]), Begin::Other);
    }
}
