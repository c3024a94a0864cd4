//! The parent's half of a launch: it runs on the host, in a process with one thread.
//!
//! ```text
//!  launch ──▶ prepare (mounts of the host) ──▶ start (clone3, maps, group)     one sandbox, from a plan
//!     └─────▶ state ──▶ template, netpool, prefork                            what the next launch takes
//!                         ahead ──▶ state, start                               filling it while no request waits
//! ```

mod ahead;
mod idmap;
mod keyring;
pub mod launch;
mod lists;
pub mod netpool;
mod overlay_compat;
mod prefork;
mod prepare;
mod start;
pub mod state;
pub mod template;
