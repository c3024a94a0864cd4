//! HTTP/1: the proxy with CONNECT and absolute-form requests, and the inside of connections to port 80.
//!
//! * `head`, `framing`, `fields`: pure, strict readers. A message that two programs could read in two ways is refused,
//!   since a request that the proxy and the server read differently is a way around the proxy (request smuggling).
//! * `serve`: one client connection; `exchange`: one request on it; `body`: its bytes; `reply`: answers of the proxy
//!   itself; `proxy_request`: the target and head of a request.
//! * `carry`: an allowed connection of any way in: HTTP, or a tunnel.

mod body;
pub(crate) mod carry;
pub(crate) mod exchange;
pub(crate) mod fields;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod proxy_request;
pub(crate) mod reply;
pub(crate) mod serve;
