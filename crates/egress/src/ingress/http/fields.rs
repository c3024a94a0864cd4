//! Separates fields that are forwarded from fields of one connection only (RFC 9110, 7.6.1).
//!
//! Framing, `Host` and `Connection` are never copied: the proxy writes its own from its decision. So a client cannot
//! name `Host` in its `Connection` field to have it removed, and no framing reaches the server that was not read here.

use super::head::{Field, HeadError, Request, Response, is_token};

/// Fields of a head that are forwarded, and what the head asks for its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded<'a> {
    /// Fields to forward, in order.
    pub fields: Vec<Field<'a>>,
    /// True if this side asks to end the connection after this message.
    pub close: bool,
    /// True if a WebSocket is asked for, or agreed to.
    pub websocket: bool,
}

/// Names of fields that are never forwarded, whatever `Connection` says.
const OF_ONE_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "content-length",
    "host",
    // The proxy writes this field itself; a server must not be able to send it in its place.
    "x-proxy-error",
];

/// Returns the fields of a request that go to the server. An upgrade to another protocol than WebSocket is taken out,
/// as a server may leave one out (RFC 9110, 7.8), and the request goes on as HTTP/1.1: on the connection the server
/// would use a protocol that the proxy cannot follow (h2c smuggling).
pub fn request_fields<'a>(request: &Request<'a>) -> Result<Forwarded<'a>, HeadError> {
    let settings = request.fields.iter().filter(|field| field.is("http2-settings")).collect::<Vec<_>>();
    let upgrades = request.fields.iter().filter(|field| field.is("upgrade")).collect::<Vec<_>>();
    let is_clear = match (upgrades.as_slice(), settings.as_slice()) {
        ([], []) => true,
        ([upgrade], []) if upgrade.value.eq_ignore_ascii_case(b"websocket") => {
            request.method == "GET" && request.minor == 1
        }
        ([upgrade], []) => is_other_upgrade(upgrade.value),
        ([upgrade], [settings]) => names_h2c(upgrade.value) && is_base64url(settings.value),
        _ => false,
    };
    if is_clear {
        Ok(forwarded(&request.fields, request.minor))
    } else {
        Err(HeadError::Malformed("it asks for an upgrade that cannot be read in one way alone"))
    }
}

/// Names of the fields that ask a server to take the request for one with another method, by their letters.
const METHOD_OVERRIDES: &[&[u8]] = &[b"xhttpmethodoverride", b"xhttpmethod", b"xmethodoverride"];

/// Returns the methods that fields of a request put in place of its own, escaped where they are not ASCII. Letters and digits of a name
/// count alone: a server that hands fields on as variables (CGI, WSGI) makes `_` of `-`, and some of every other sign.
pub fn overriding_methods(request: &Request<'_>) -> Vec<String> {
    let is_override = |name: &[u8]| {
        let letters: Vec<u8> = name.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
        METHOD_OVERRIDES.iter().any(|known| letters.eq_ignore_ascii_case(known))
    };
    let overriding = request.fields.iter().filter(|field| is_override(field.name));
    overriding.map(|field| field.value.escape_ascii().to_string()).collect()
}

/// Reports whether a value of `Upgrade` is a list of protocols (RFC 9110, 7.8) without WebSocket, which is asked for on
/// its own.
fn is_other_upgrade(value: &[u8]) -> bool {
    protocols(value).all(|protocol| {
        let mut parts = protocol.split(|byte| *byte == b'/');
        let name = parts.next().unwrap_or_default();
        let version = parts.next();
        let is_token = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| is_token(*byte));
        is_token(name)
            && version.is_none_or(is_token)
            && parts.next().is_none()
            && !name.eq_ignore_ascii_case(b"websocket")
    })
}

/// Reports whether a list of protocols offers HTTP/2 without TLS, the protocol that `HTTP2-Settings` belongs to.
fn names_h2c(value: &[u8]) -> bool {
    is_other_upgrade(value) && protocols(value).any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}

fn protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Reports whether a value has the form of `HTTP2-Settings` (RFC 7540, 3.2.1).
fn is_base64url(value: &[u8]) -> bool {
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (digits, padding) = value.split_at(end);
    !digits.is_empty()
        && padding.len() <= 2
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
}

/// Returns the fields of a response that go to the client.
pub fn response_fields<'a>(response: &Response<'a>) -> Forwarded<'a> {
    forwarded(&response.fields, response.minor)
}

fn forwarded<'a>(fields: &[Field<'a>], minor: u8) -> Forwarded<'a> {
    let named: Vec<&[u8]> = fields
        .iter()
        .filter(|field| field.is("connection") || field.is("proxy-connection"))
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let names = |token: &str| named.iter().any(|name| name.eq_ignore_ascii_case(token.as_bytes()));
    let websocket = names("upgrade")
        && fields.iter().any(|field| field.is("upgrade") && field.value.eq_ignore_ascii_case(b"websocket"));
    let kept = fields.iter().filter(|field| {
        !OF_ONE_HOP.iter().any(|name| field.is(name)) && !named.iter().any(|name| field.name.eq_ignore_ascii_case(name))
    });
    Forwarded {
        fields: kept.cloned().collect(),
        close: names("close") || (minor == 0 && !names("keep-alive")),
        websocket,
    }
}
