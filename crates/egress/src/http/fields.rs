//! Separates fields that are forwarded from fields of one connection only (RFC 9110, 7.6.1).
//!
//! Framing, `Host` and `Connection` are never copied: the proxy writes its own from its decision. So a client cannot
//! name `Host` in its `Connection` field to have it removed, and no framing reaches the server that was not read here.

use super::head::{Field, HeadError, Request, Response};

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

/// Returns the fields of a request that go to the server. Refuses an upgrade to anything except a WebSocket: the server
/// would use a protocol on the connection that the proxy cannot follow (h2c smuggling).
pub fn request_fields<'a>(request: &Request<'a>) -> Result<Forwarded<'a>, HeadError> {
    let forwarded = forwarded(&request.fields, request.minor);
    let asks = request.fields.iter().filter(|field| field.is("upgrade")).collect::<Vec<_>>();
    let allowed = match asks.as_slice() {
        [] => request.fields.iter().all(|field| !field.is("http2-settings")),
        [one] => one.value.eq_ignore_ascii_case(b"websocket") && request.method == "GET" && request.minor == 1,
        [_, _, ..] => false,
    };
    if allowed { Ok(forwarded) } else { Err(HeadError::Malformed("it asks for an upgrade other than WebSocket")) }
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
