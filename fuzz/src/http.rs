//! HTTP/1: what the strict readers take, another reader takes for the same, and it does not matter how it arrives.

use nexus_egress::Limits;
use nexus_egress::pure::{
    Body, ChunkEvent, Chunks, Field, Request, Response, parse_request, parse_response, request_body, request_fields,
    response_body, response_fields,
};

/// Small bounds, so that short inputs pass them.
fn limits() -> Limits {
    Limits { head_bytes: 600, target_bytes: 100, fields: 12, ..Limits::default() }
}

/// A head, of a request or of a response.
pub fn head(data: &[u8]) {
    let limits = limits();
    let request = parse_request(data, &limits);
    let response = parse_response(data, &limits);
    assert!(!matches!((&request, &response), (Ok(Some(_)), Ok(Some(_)))), "both a request and a response");
    for cut in cuts(data) {
        let part = &data[..cut];
        let seen = parse_request(part, &limits);
        match &request {
            Ok(Some(whole)) if whole.length <= cut => assert_eq!(seen, request, "cut at {cut}"),
            Ok(_) => assert_eq!(seen, Ok(None), "cut at {cut}"),
            Err(_) => assert!(!matches!(seen, Ok(Some(_))), "cut at {cut}: {seen:?}"),
        }
        let seen = parse_response(part, &limits);
        match &response {
            Ok(Some(whole)) if whole.length <= cut => assert_eq!(seen, response, "cut at {cut}"),
            Ok(_) => assert_eq!(seen, Ok(None), "cut at {cut}"),
            Err(_) => assert!(!matches!(seen, Ok(Some(_))), "cut at {cut}: {seen:?}"),
        }
    }
    if let Ok(Some(request)) = request {
        accepted_request(data, &request);
    }
    if let Ok(Some(response)) = response {
        accepted_response(data, &response);
    }
}

/// Where to cut: everywhere in what is short.
fn cuts(data: &[u8]) -> impl Iterator<Item = usize> {
    (0..data.len()).step_by(1 + data.len() / 200)
}

fn accepted_request(data: &[u8], request: &Request<'_>) {
    let start = format!("{} {} HTTP/1.{}", request.method, request.target, request.minor);
    let written = again(start.as_bytes(), &request.fields);
    let limits = Limits { head_bytes: 2000, ..limits() };
    let Ok(Some(second)) = parse_request(&written, &limits) else { panic!("{written:?} is no request") };
    assert_eq!((second.method, second.target, second.minor), (request.method, request.target, request.minor));
    assert_eq!((&second.fields, second.length), (&request.fields, written.len()));
    accepted_fields(data, &request.fields, request.length);

    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut other = httparse::Request::new(&mut fields);
    match other.parse(data) {
        Ok(httparse::Status::Complete(length)) => {
            assert_eq!(length, request.length, "another reader sees another end");
            let first = (other.method, other.path, other.version);
            assert_eq!(first, (Some(request.method), Some(request.target), Some(request.minor)));
            same_fields(&request.fields, other.headers);
        }
        // It knows fewer characters of a target.
        Err(httparse::Error::Token) => {
            let odd = |byte: u8| !byte.is_ascii_alphanumeric() && !b"!#$%&'()*+,-./:;=?@[]_~".contains(&byte);
            assert!(request.target.bytes().any(odd), "another reader refuses {:?}", request.target);
        }
        found => panic!("another reader: {found:?}"),
    }

    if let Ok(body) = request_body(request) {
        framed(&request.fields, body, false);
        assert_ne!(body, Body::UntilClose, "a request has an end");
    }
    if let Ok(forwarded) = request_fields(request) {
        forwarded_fields(&request.fields, &forwarded.fields);
        assert!(!forwarded.websocket || request.method == "GET");
    }
}

fn accepted_response(data: &[u8], response: &Response<'_>) {
    let start = [format!("HTTP/1.{} {} ", response.minor, response.status).as_bytes(), response.reason].concat();
    let written = again(&start, &response.fields);
    let limits = Limits { head_bytes: 2000, ..limits() };
    let Ok(Some(second)) = parse_response(&written, &limits) else { panic!("{written:?} is no response") };
    assert_eq!((second.status, second.reason, second.minor), (response.status, response.reason, response.minor));
    assert_eq!((&second.fields, second.length), (&response.fields, written.len()));
    accepted_fields(data, &response.fields, response.length);

    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut other = httparse::Response::new(&mut fields);
    match other.parse(data) {
        Ok(httparse::Status::Complete(length)) => {
            assert_eq!(length, response.length, "another reader sees another end");
            assert_eq!((other.code, other.version), (Some(response.status), Some(response.minor)));
            same_fields(&response.fields, other.headers);
        }
        Err(httparse::Error::Status) => {
            // It refuses control characters there; ours is written again for the client.
            assert!(response.reason.iter().any(|byte| !(0x20..0x7f).contains(byte)), "{:?}", response.reason);
        }
        found => panic!("another reader: {found:?}"),
    }

    for method in ["GET", "HEAD"] {
        if let Ok(body) = response_body(response, method) {
            let without = method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304);
            assert!(!without || body == Body::None);
            if !without {
                framed(&response.fields, body, true);
            }
        }
    }
    forwarded_fields(&response.fields, &response_fields(response).fields);
}

fn again(start: &[u8], fields: &[Field<'_>]) -> Vec<u8> {
    let mut text = [start, b"\r\n"].concat();
    for field in fields {
        text.extend_from_slice(&[field.name, b": ", field.value, b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn accepted_fields(data: &[u8], fields: &[Field<'_>], length: usize) {
    assert!(fields.len() <= limits().fields && length <= limits().head_bytes);
    let head = &data[..length];
    assert!(head.ends_with(b"\r\n\r\n") && !head.contains(&0));
    assert_eq!(head.windows(4).position(|four| four == b"\r\n\r\n"), Some(length - 4), "it goes on behind its end");
    let alone = |at: usize| match head[at] {
        b'\r' => head.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || head[at - 1] != b'\r',
        _ => false,
    };
    assert!(!(0..length).any(alone), "a line ends with half of CR LF");
    for field in fields {
        let bad = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
        assert!(!field.name.is_empty() && field.name.iter().all(u8::is_ascii_graphic), "{field:?}");
        assert!(!field.name.contains(&b':') && !field.value.iter().any(bad), "{field:?}");
    }
}

fn same_fields(ours: &[Field<'_>], others: &[httparse::Header<'_>]) {
    let ours: Vec<_> = ours.iter().map(|field| (field.name, field.value)).collect();
    let others: Vec<_> = others.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    assert_eq!(ours, others);
}

/// The framing is what every reader would take from the fields: one of the two kinds at most, and that one once. A
/// response may repeat its length, which goes on once.
fn framed(fields: &[Field<'_>], body: Body, may_repeat: bool) {
    let named = |name: &str| -> Vec<&[u8]> {
        fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| field.value)
            .collect()
    };
    let mut lengths = named("content-length");
    if may_repeat {
        lengths = lengths.iter().flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).collect();
        lengths.dedup();
    }
    match (lengths.as_slice(), named("transfer-encoding").as_slice(), body) {
        ([], [], Body::None | Body::UntilClose) => {}
        ([], [coding], Body::Chunked) => assert!(coding.eq_ignore_ascii_case(b"chunked")),
        ([digits], [], body) => {
            let length: u64 = match std::str::from_utf8(digits).map(str::parse) {
                Ok(Ok(length)) if digits.iter().all(u8::is_ascii_digit) => length,
                found => panic!("{digits:?}: {found:?}"),
            };
            assert_eq!(body, if length == 0 { Body::None } else { Body::Length(length) });
        }
        found => panic!("two programs could read this in two ways: {found:?}"),
    }
}

fn forwarded_fields(fields: &[Field<'_>], forwarded: &[Field<'_>]) {
    const OURS: &[&str] = &["connection", "proxy-connection", "transfer-encoding", "content-length", "host", "upgrade"];
    let mut rest = fields.iter();
    for field in forwarded {
        assert!(!OURS.iter().any(|name| field.name.eq_ignore_ascii_case(name.as_bytes())), "{field:?} went on");
        assert!(rest.any(|one| one == field), "{field:?} is new or in another place");
    }
}

/// A chunked body. Its first byte says how many bytes arrive at once.
pub fn chunks(data: &[u8]) {
    let Some((step, wire)) = data.split_first() else { return };
    let whole = read(wire, wire.len().max(1));
    assert_eq!(read(wire, usize::from(*step) + 1), whole, "cut into {}", usize::from(*step) + 1);
    assert_eq!(naive(wire), whole, "another reader of chunks");
    if let Seen::Body { content, .. } = whole {
        let mut written = Vec::new();
        for part in content.chunks(usize::from(*step) + 1) {
            written.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            written.extend_from_slice(part);
            written.extend_from_slice(b"\r\n");
        }
        written.extend_from_slice(b"0\r\n\r\n");
        let length = written.len();
        assert_eq!(read(&written, length), Seen::Body { content, length });
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Body { content: Vec<u8>, length: usize },
    More,
    Wrong,
}

/// As an exchange of the egress reads, with so many bytes at a time.
fn read(wire: &[u8], step: usize) -> Seen {
    let (mut chunks, mut content, mut at, mut seen) = (Chunks::default(), Vec::new(), 0, 0);
    loop {
        let held = &wire[at..seen];
        let used = match chunks.next(held) {
            Err(_) => return Seen::Wrong,
            Ok(ChunkEvent::More) if seen == wire.len() => return Seen::More,
            Ok(ChunkEvent::More) => {
                seen = (seen + step).min(wire.len());
                continue;
            }
            Ok(ChunkEvent::Skip(used)) => used,
            Ok(ChunkEvent::Data(used)) => {
                content.extend_from_slice(&held[..used]);
                used
            }
            Ok(ChunkEvent::End(used)) => return Seen::Body { content, length: at + used },
        };
        assert!(used > 0 && used <= held.len());
        at += used;
    }
}

/// Written from RFC 9112, 7.1, with what ours refuses: extensions, more than fifteen digits, trailers over 8 KiB.
fn naive(wire: &[u8]) -> Seen {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let rest = &wire[at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let end = &rest[digits..];
        if digits > 15 || (!end.starts_with(b"\r\n") && !b"\r\n".starts_with(end)) {
            return Seen::Wrong;
        }
        if end.len() < 2 {
            return Seen::More;
        }
        let Ok(Ok(size)) = std::str::from_utf8(&rest[..digits]).map(|text| u64::from_str_radix(text, 16)) else {
            return Seen::Wrong;
        };
        at += digits + 2;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some(chunk) = wire[at..].get(..size) else { return Seen::More };
        content.extend_from_slice(chunk);
        at += size;
        let end = &wire[at..];
        if !end.starts_with(b"\r\n") {
            return if b"\r\n".starts_with(end) { Seen::More } else { Seen::Wrong };
        }
        at += 2;
    }
    let trailer = at;
    loop {
        let line = &wire[at..];
        let Some(end) = line.iter().position(|byte| b"\r\n\0".contains(byte)) else {
            return if line.len() + at - trailer > 8192 { Seen::Wrong } else { Seen::More };
        };
        match &line[end..] {
            [b'\r', b'\n', ..] => {}
            [b'\r'] => return Seen::More,
            _ => return Seen::Wrong,
        }
        at += end + 2;
        if end == 0 {
            return Seen::Body { content, length: at };
        }
        let mut fields = [httparse::EMPTY_HEADER; 1];
        let one = [&line[..end + 2], b"\r\n"].concat();
        if at - trailer > 8192
            || !matches!(httparse::parse_headers(&one, &mut fields), Ok(httparse::Status::Complete(_)))
        {
            return Seen::Wrong;
        }
    }
}
