//! TLS as far as it is sent in clear: reads ClientHellos (`hello`, pure) and holds them until their name is checked.

pub(crate) mod handshake;
pub(crate) mod hello;
