//! The state directory: where it is, and the records, notes and locks that a run keeps there.
//!
//! ```text
//!  directory ─┬─ runs/RUN     record: one live run, locked by its owner; first_process: its sandbox, if that outlived the run
//!             ├─ layers/RUN   note: the run of a layer; homes: the directories of other runs
//!             ├─ locks/…      commit_lock: one commit at a time on a workspace, which identity names
//!             ├─ approvals/ID approvals: what waits for an answer, or was granted
//!             ├─ generated/…  generated: files that are made for sandboxes
//!             └─ searches.json  searches: where the last runs searched for logins
//! ```

pub mod approvals;
pub mod commit_lock;
pub mod container;
pub mod directory;
pub mod first_process;
pub mod generated;
pub mod homes;
pub mod identity;
pub mod note;
pub mod project_cache;
pub mod record;
pub mod searches;
pub mod trust;
