//! Files that are of no use without another file, as a database and its log.
//!
//! * `sqlite_files`: tells a database of SQLite from files that only have such names
//! * `tied`: names of files that are of no use without others
//! * `with_log`: holds back a database or its log if the other one stays

pub(crate) mod sqlite_files;
pub(crate) mod tied;
pub(crate) mod with_log;
