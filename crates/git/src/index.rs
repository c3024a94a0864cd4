//! Reads an index of git.
//!
//! git checks the names of trees (`verify_path`) and believes those of the index. The reader takes what gitformat-index(5)
//! says, without git's leniency: what it does not understand is held back.
//!
//! ```text
//!  format              entries and extensions; split: an index that shares the entries of another one
//!  file, damage        the file, and whether git wrote it as it is
//!  flags, stat_data    what git would believe without looking at the files
//!  meaning, recorded   what an index says, and which objects it names (ids)
//!  lengths             the lengths of object ids that a configuration allows
//!  in_place            an index that a run wrote straight into a workspace
//! ```

pub mod damage;
pub mod file;
pub mod flags;
pub mod format;
mod hex;
pub mod ids;
pub mod in_place;
pub mod lengths;
pub mod meaning;
pub mod recorded;
mod sha1;
pub mod split;
pub mod stat_data;

pub use self::hex::hex;

#[cfg(test)]
mod tests;
