//! Images: read from hostile archives, verified, and unpacked into a store of the state directory.
//!
//! ```text
//!  import ─▶ archive    the files of a layout directory or of an archive, by name
//!         ├▶ document   manifests and configurations: which one serves this machine, what it says (no I/O)
//!         ├▶ store      blobs by digest, unpacked roots by their chain, names, locks, removal
//!         └▶ layer ─▶ entry (no I/O), tree, inflate     one layer after the other into a tree below a descriptor
//! ```
//! Everything in an archive is hostile: a blob counts when its digest and size are right, a layer is unpacked below a
//! directory descriptor over no link, and every size has a bound ([`Limits`]).

#![forbid(unsafe_code)]

mod archive;
mod digest;
mod document;
mod entry;
mod error;
mod files;
mod import;
mod inflate;
mod layer;
mod limits;
mod store;
mod tree;

pub use digest::{Digest, DigestForm};
pub use document::{Platform, Settings};
pub use error::ImageError;
pub use import::{Imported, Progress, import};
pub use layer::Unpacked;
pub use limits::Limits;
pub use store::{HeldRoot, Image, Removed, Store};
