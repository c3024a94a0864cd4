//! States of a workspace around a run that writes straight into it (`nexus run --live`), and the way back.
//!
//! ```text
//!  take ─ scan of the workspace ─▶ objects/, synced ─▶ runs/RUN, renamed in ─▶ the command runs ─▶ end: a second state in runs/RUN
//!  undo ─ scan: the present state, kept in runs/RUN ─▶ undo/DIRECTORY: what goes back ─▶ entry by entry ─▶ undo/DIRECTORY removed
//!           └─ killed: the next undo in that directory keeps what it finds, and goes on
//! ```
//! `checkpoints/` lies in the state directory, closed to others:
//!
//! ```text
//!  objects/         a store of `nexus-snapshot`, for all workspaces
//!  runs/RUN         one record for each live run: the states of its workspace
//!  caches/DIRECTORY what the files of a workspace looked like at the last scan
//!  undo/DIRECTORY   an undo that has not ended
//! ```
//!
//! * [`record`]: the forms of the files. Pure.
//! * [`error`]: the error type.
//! * `files`: reads and writes these files.
//! * [`states`]: takes states, and compares them with the workspace.
//! * [`undo`]: brings a workspace back.

pub mod error;
mod files;
pub mod record;
pub mod states;
pub mod undo;

pub use error::CheckpointError;
pub use nexus_snapshot::put_back::{Aside, Left};
pub use nexus_snapshot::{FsTime, Most, SnapshotError};
pub use record::{LiveRun, State, Unfinished};
pub use states::{Checkpoints, Present, Subject, clock};
pub use undo::{UndoRequest, Undone};
