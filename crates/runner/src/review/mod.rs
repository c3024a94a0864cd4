//! The review of a run: its changes wait, and a command shows them or decides about them.
//!
//! ```text
//!  waiting ─▶ pending: layer, workspace, rules ─┬─▶ around ─▶ the workspace, journaled
//!                └ rejected, paths              └─▶ rejected: never offered again
//!  a commit that stopped half-way ─▶ take_back ─▶ discard: the layer is gone
//! ```

pub mod around;
pub mod discard;
pub mod error;
pub mod paths;
pub mod pending;
pub mod rejected;
pub mod take_back;
pub mod waiting;
