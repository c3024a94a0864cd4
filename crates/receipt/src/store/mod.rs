//! The parts of a state directory that belong to receipts: `keys` and `receipts`.

mod breaks;
pub mod files;
mod key_directory;
mod receipts;

pub use breaks::{Break, Breaks};
pub use files::DirectoryError;
pub use key_directory::{KeyDirectory, KeyError, KeyFile, Known};
pub use receipts::{KEEP, Store, StoreError, Stored};
