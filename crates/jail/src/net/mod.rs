//! The sandbox's own network: loopback, and where the egress is asked for, the only way out.
//!
//! ```text
//!  lo up ─▶ every address is local, on lo ─▶ every TCP connection but 127/8 and ::1 goes to the transparent listener
//!                                        └─▶ listeners: HTTP proxy, SOCKS, DNS, transparent ─▶ handed to the host
//! ```
//! There is no device but `lo` and no right to make one, so nothing that is sent ever leaves the namespace; what goes
//! out goes through the listeners, which the host holds. When the host lets go of them, every connection is refused.
//! The rules are written while the set-up still has CAP_NET_ADMIN in the sandbox's own user namespace, and stand
//! because the command has no capability and cannot get a namespace of its own.

mod listeners;
mod loopback;
mod netlink;
mod redirect;

pub use listeners::{diagnosis, make, make_host_ports, name_socket};
pub use loopback::loopback_up;
pub use redirect::redirect;
