//! The HTTP proxy: CONNECT and absolute-form requests of HTTP/1.
//!
//! * `head`, `framing`, `fields`: pure, strict readers. What two programs could read in two ways is refused, since a
//!   request that the proxy and the server read differently is a way around the proxy (request smuggling).
//! * `serve`: one client connection; `exchange`: one request on it, `body`: its bytes, `reply`: what the proxy says itself; `order`: what a request asks for.

mod body;
pub(crate) mod exchange;
pub(crate) mod fields;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod order;
pub(crate) mod reply;
pub(crate) mod serve;
