//! SOCKS5 (RFC 1928): CONNECT with names and addresses. SOCKS4, BIND and UDP ASSOCIATE are refused.

pub(crate) mod frame;
pub(crate) mod serve;
