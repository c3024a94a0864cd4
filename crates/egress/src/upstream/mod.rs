//! The side of the network: resolves names, and dials. `dial` is the only place that connects.

pub(crate) mod answers;
pub(crate) mod dial;
pub(crate) mod proxy;
pub(crate) mod scripted;
pub(crate) mod sockets;
pub(crate) mod system;
