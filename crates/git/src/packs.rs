//! Reads the objects of a repository, and verifies those that a run adds.
//!
//! ```text
//!  reader, history   the objects of a repository and of those that it borrows from; which of them a name needs
//!  pack, loose       verification: each object of a pack or of a file of its own has the hash that its id says
//!  known, store      the objects and the format of a repository or of a directory of objects
//!  problem           bounds of bytes, memory and time, and what was found
//! ```

pub mod built;
mod delta;
pub mod digits;
pub mod history;
pub mod index_file;
pub mod inflate;
pub mod known;
mod lenders;
pub mod loose;
pub mod object_id;
pub mod pack;
pub mod pack_index;
pub mod problem;
mod promisors;
pub mod reader;
pub mod store;
