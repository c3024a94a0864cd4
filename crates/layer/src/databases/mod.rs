//! Files that are of no use without another file, as a database and its log.
//!
//! * `companions`: names of files that are of no use without others
//! * `sqlite_files`: tells a database of SQLite from files that only have such names
//! * `with_log`: holds back a database or its log if the other one stays

pub(crate) mod companions;
pub(crate) mod sqlite_files;
pub(crate) mod with_log;
