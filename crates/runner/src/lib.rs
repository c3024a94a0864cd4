//! The engine of one run. The command line and the daemon call it; it talks to none of their users.
//!
//! ```text
//!  Host: variables, home, identity (the caller brings it)
//!    ├─▶ plan: RunRequest ─▶ the paths that it names, looked at ─▶ ResolvedRun with its Plan
//!    ├─▶ run: ResolvedRun ─▶ Prepared ─▶ Running ─▶ Finished ─▶ RunReport
//!    │     ├─▶ live: sandbox ◀─▶ pump ◀─▶ attendant: a person, the clients of a session, or a sender
//!    │     └─▶ settle: changes ─▶ workspace, or waiting, or gone
//!    └─▶ state: the state directory with its records, notes and locks
//! ```
//! This crate prints nothing, reads no variable of the process and changes nothing process-wide. Each operation has one error
//! type with named fields and a stable `code()`; the caller turns a code into advice.
//!
//! * [`causes`]: spells an error with its causes.
//! * [`change_text`]: describes changes and conflicts in one line.
//! * [`host`]: carries what the calling process brings along.
//! * [`live`]: moves bytes between a running command and the attendant of the run.
//! * [`net`]: reads the rules of a run's network, and serves it.
//! * [`notices`]: names what the engine reports while it works.
//! * [`plan`]: turns a request into a plan.
//! * [`recover`]: clears up after runs whose caller was killed.
//! * [`request`]: asks for one run.
//! * [`review`]: shows the changes of a run that wait, and decides about them.
//! * [`run`]: takes a resolved run to its report.
//! * [`session`]: keeps detached sandboxes, serves their clients, and is the client's side too.
//! * [`settle`]: makes the layer of a run, and settles its changes.
//! * [`state`]: owns every path of the state directory that a run uses.

#![forbid(unsafe_code)]

pub mod causes;
pub mod change_text;
pub mod held_text;
pub mod host;
pub mod live;
pub mod net;
pub mod notices;
pub mod plan;
pub mod recover;
pub mod request;
pub mod review;
pub mod run;
pub mod secrets;
pub mod session;
pub mod settle;
pub mod state;
