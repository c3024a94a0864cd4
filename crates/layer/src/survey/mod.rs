//! Reads a layer with all that is known about git, links, databases and special files: one verdict for each entry.
//!
//! * `reading`: reads a layer in stages: first its entries, then the verdict about each entry
//! * `scan`: searches a directory that a layer deletes or moves as a whole

pub(crate) mod reading;
pub(crate) mod scan;
