//! The notes that a commit leaves in the directory of a layer beside the journal, for a later pass or a later
//! command.
//!
//! * `empty_directories`: removes directories of a layer that hold nothing but overlay's marks
//! * `kept_objects`: keeps git objects in a layer while refs, logs or indexes that may lead to them wait there
//! * `marks_back`: restores overlay's attributes on entries that a commit stripped of them and then left in the layer
//! * `only_copies`: the entries that may be the only copy of a file which a partial commit removed
//! * `removing`: the time stamp changes that the removal of displaced directories itself causes
//! * `returned`: the entries that a rollback moved back, with the ctime that each move set
//! * `uncopied`: the git objects that could not be copied to a layer, and disk space for these notes
//! * `withdrawn`: marks a layer whose commit was rolled back

pub(crate) mod empty_directories;
pub(crate) mod kept_objects;
pub(crate) mod marks_back;
pub(crate) mod only_copies;
pub(crate) mod removing;
pub(crate) mod returned;
pub(crate) mod uncopied;
pub(crate) mod withdrawn;
