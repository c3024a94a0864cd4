//! The side of the sandbox: accepts connections and reads what they ask for.
//!
//! ```text
//!  accept ─▶ http, socks, transparent, host_port ─▶ an attempt for `decide` ─▶ carry ─▶ http, or tunnel (tls)
//!        └─▶ dns, which opens no connection
//! ```

pub(crate) mod accept;
pub(crate) mod dns;
pub(crate) mod host_port;
pub(crate) mod http;
pub(crate) mod socks;
pub(crate) mod stop;
pub(crate) mod stub_addresses;
pub(crate) mod tls;
pub(crate) mod transparent;
pub(crate) mod tunnel;
