//! Builds and sends the answers of the proxy itself.

use crate::decide::open::Refusal;
use crate::upstream::dial::DialError;
use nexus_policy::net::Denial;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Answer to CONNECT.
pub(crate) const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Time and number of bytes for which the egress reads from a client that still sends, so that it sees the answer.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 1024 * 1024);

/// Returns a text as one line of ASCII: clients print it, and the text names what the client or a server sent.
fn one_ascii_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => line.push(character),
            _ if character.is_control() => line.push(' '),
            _ => line.extend(character.escape_unicode()),
        }
    }
    line
}

/// Builds an answer with one line of text. `head_only` is for HEAD requests.
pub(crate) fn answer(status: u16, code: &str, text: &str, close: bool, head_only: bool) -> Vec<u8> {
    let line = one_ascii_line(text);
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        408 => "Request Timeout",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        504 => "Gateway Timeout",
        _ => "Error",
    };
    let connection = if close { "Connection: close\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status} {reason}\r\nx-proxy-error: {code}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nCache-Control: no-store\r\n{connection}\r\n",
        length = line.len() + 1
    )
    .into_bytes();
    if !head_only {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Returns the sentence about a denial, with the flag that would allow the attempt.
pub(crate) fn sentence(denial: &Denial) -> String {
    match &denial.allow_with {
        Some(flag) => format!("nexus: {}; {flag} would allow it", denial.explanation),
        None => format!("nexus: {}", denial.explanation),
    }
}

/// Builds the answer to a denial.
pub(crate) fn denied(denial: &Denial, close: bool, head_only: bool) -> Vec<u8> {
    answer(denial.http_status(), denial.code.as_str(), &sentence(denial), close, head_only)
}

/// Builds the answer to a refusal of any kind.
pub(crate) fn refused(refusal: &Refusal, close: bool, head_only: bool) -> Vec<u8> {
    match refusal {
        Refusal::Denied(denial) => denied(denial, close, head_only),
        Refusal::Unreachable(error) => {
            let status = match error {
                DialError::TimedOut { .. } => 504,
                DialError::Connect { .. } | DialError::Upstream { .. } => 502,
            };
            answer(status, "OTHER", &format!("nexus: {error}"), close, head_only)
        }
    }
}

/// Sends the last answer of a connection. A close with unread bytes would be a reset that overtakes the answer.
pub(crate) async fn last(stream: &mut TcpStream, bytes: &[u8]) {
    let said = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        let mut left = LINGER.1;
        while left > 0 {
            match stream.read(&mut rest).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        std::io::Result::Ok(())
    };
    // The client is gone or does not read: nothing more can be sent to it.
    if let Ok(Err(error)) | Err(error) = timeout(LINGER.0, said).await.map_err(std::io::Error::from) {
        drop(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_answer_is_one_line_of_ascii() {
        let bytes = answer(403, "X", "a\r\nb\u{9b}31m\u{202e}\u{fc} ~", true, false);
        let text = String::from_utf8(bytes).unwrap_or_default();
        assert_eq!(text.split_once("\r\n\r\n").map(|(_, body)| body), Some("a  b 31m\\u{202e}\\u{fc} ~\n"));
        assert!(text.contains("Content-Length: 25\r\n"), "{text}");
    }
}
