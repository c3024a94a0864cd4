//! The processes of a fleet: the control plane, the daemon, and both in one.
//!
//! * `bucket`: the bucket of `nexus mothership serve`, and the key for it
//! * `database`: the address of the database of `nexus mothership serve`
//! * `serve`: `nexus mothership serve` and `nexus daemon run`: the two halves of a fleet, apart
//! * `tls_files`: files of a server that other users must not read or change: the proxy's secret, the TLS key, the
//!   certificate
//! * `up`: `nexus up`: a control plane and a daemon in one process, for one machine

pub(crate) mod bucket;
pub(crate) mod database;
pub(crate) mod serve;
pub(crate) mod tls_files;
pub(crate) mod up;
