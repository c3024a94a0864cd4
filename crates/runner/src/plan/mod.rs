//! Turns a request into a plan: looks at the paths that a request names, and refuses what cannot be run.
//!
//! ```text
//!  workspace ─▶ mounts, fit: can it carry a layer? ─┐
//!            └▶ direct ◀─ protect ◀─ git_host       ├─▶ Plan
//!                 └─ scan ─▶ watch                  │
//!  hide, guarded, credential ───────────────────────┘
//! ```

pub mod credential;
pub mod direct;
pub mod fit;
pub mod git_host;
pub mod guarded;
pub mod hide;
pub mod mounts;
pub mod protect;
pub mod scan;
pub mod watch;
pub mod workspace;
