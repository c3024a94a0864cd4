//! The parent's half of a launch: it runs on the host, in a process with one thread.
//!
//! ```text
//!  launch ──▶ prepare (mounts of the host) ──▶ start (clone3, maps, group)     one sandbox, from a plan
//!     └─────▶ kept ──▶ template, netpool, begun                               what the next launch takes
//!                        ahead ──▶ kept, start                                 filling it while nobody waits
//! ```

mod ahead;
mod apart;
mod begun;
mod idmap;
pub mod kept;
mod keyring;
pub mod launch;
pub mod netpool;
mod prepare;
mod start;
mod template;
