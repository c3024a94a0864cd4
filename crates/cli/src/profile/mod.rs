//! Decides what a run may do, from profiles, the workspace's file, the operator's settings and the flags.
//!
//! ```text
//!  default, --profile … ─▶ chain ─▶ grants ─┬─▶ + nexus.yaml if trusted ─▶ + flags ─▶ ceilings ─▶ Resolution
//!                                           └─▶ + flags ─▶ narrowed by nexus.yaml ────▲
//!                                                              └─ it widens: refused, with the lines
//!  Resolution ─▶ toolchains found on this host ─▶ binds, PATH, variables      (run: `ResolvedRun`, explain: the same)
//! ```
//!
//! `nexus-policy` decides, `nexus-profiles` reads the files and looks at the host; here both meet the arguments.

mod auto;
pub mod command;
pub mod explain;
mod flags;
pub mod policy;
pub mod policy_command;
mod policy_fleet;
pub mod replay;
pub mod resolution;
pub mod trust_command;

pub use nexus_caller::profiles as caller;
