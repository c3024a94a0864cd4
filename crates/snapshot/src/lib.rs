//! Trees of files kept by content, each distinct piece once.
//!
//! ```text
//!  scan ── names sorted, below descriptors ──▶ tree objects ┐                      ┌─ DIR/packs/HASH  compressed blocks and an index
//!    │  unchanged by the cache: not read                    ├─▶ Writer ─▶ blocks ──┤                  written, synced, then named
//!    └─ changed files ──▶ pieces by content ────────────────┘                      └─ DIR/lock        shared: in use; exclusive: gc
//!
//!  build: objects ─▶ a new directory      compare: two trees ─▶ paths that differ      mark + sweep: what no root reaches goes
//! ```
//! The trees that are read were written by a hostile process: the scan follows no link, and opens regular files and directories alone. Of
//! an entry it keeps the type, content, mode, owner, time of change and extended attributes. The store is closed to other users. Every
//! read of it is checked against a hash all the same, so that bytes which a disk damaged are an error and reach no tree.
//!
//! * [`object`]: the forms of objects and their names. Pure.
//! * `pieces`: cuts a large file by its content. Pure.
//! * `sparse`: reads a file without its holes.
//! * `pack`: the form of a pack: blocks, index, end.
//! * [`store`]: all packs of a directory, reading, and the lock.
//! * [`writer`]: adds objects, in a new pack.
//! * [`sweep()`]: removes objects that nothing reaches.
//! * `attributes`: extended attributes of entries.
//! * [`cache`]: remembers files from one scan to the next.
//! * [`scan()`]: reads a tree into a store.
//! * [`build()`]: makes a tree of objects again.
//! * [`put_back`]: brings a directory that is in use back to a kept tree, entry by entry.
//! * [`compare()`]: compares two kept trees.
//! * [`reach()`]: all objects of a tree.
//! * [`error`]: the error type.

#![forbid(unsafe_code)]

mod attributes;
pub mod build;
pub mod cache;
pub mod compare;
pub mod error;
pub mod object;
mod pack;
mod pieces;
pub mod put_back;
pub mod reach;
pub mod scan;
mod sparse;
pub mod store;
pub mod sweep;
pub mod writer;

pub use build::build;
pub use cache::Cache;
pub use compare::{Change, ChangeKind, compare};
pub use error::SnapshotError;
pub use nexus_beneath::meta::FsTime;
pub use object::ObjectId;
pub use reach::reach;
pub use scan::{LeftOut, Most, ScanOptions, Scanned, scan};
pub use store::{Hold, Store};
pub use sweep::{Swept, sweep};
pub use writer::Writer;
