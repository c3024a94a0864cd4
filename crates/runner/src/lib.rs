//! The engine of one run. The command line, the daemon and the gateways call it; it talks to none of their users.
//!
//! ```text
//!  Host: variables, home, identity (the caller brings it)
//!    ├─▶ plan: RunRequest ─▶ the paths that it names, looked at ─▶ ResolvedRun with its Plan
//!    ├─▶ live: sandbox ◀─▶ pump ◀─▶ attendant: a terminal, or the clients of a session
//!    └─▶ state: the state directory with its records, notes and locks
//! ```
//! This crate prints nothing, reads no variable of the process and changes nothing process-wide. Each operation has one error
//! type with named fields and a stable `code()`; the caller turns a code into advice.
//!
//! * [`causes`]: spells an error with its causes.
//! * [`host`]: carries what the calling process brings along.
//! * [`live`]: moves bytes between a running command and the attendant of the run.
//! * [`net`]: the record of the network of a run, and the addresses of this host.
//! * [`plan`]: turns a request into a plan.
//! * [`request`]: asks for one run.
//! * [`state`]: owns every path of the state directory that a run uses.

#![forbid(unsafe_code)]

pub mod causes;
pub mod host;
pub mod live;
pub mod net;
pub mod plan;
pub mod request;
pub mod state;
