//! Decides what a commit does with each entry. No module here changes anything.
//!
//! * `incomplete`: holds back the changes that cannot be accepted from a layer that was saved only in part
//! * `object_steps`: decides which steps of a commit bring objects of git, and which steps need them
//! * `orphans`: finds entries that stay in the layer and may be copies of workspace entries that a commit removes
//! * `outside`: finds what another process did to the workspace while the run worked, beyond changed time stamps
//! * `partial`: prepares the rest of a layer for a later decision when only part of it is committed
//! * `plan`: decides what a commit does
//! * `renames`: maps paths of workspace entries to their paths after the renames and removals of a commit
//! * `report`: the lines of a report
//! * `sources`: finds the changes of a layer that remove a file from which another entry of the layer was copied
//! * `state`: the decision about an entry or a group of names, and what it does when it is committed
//! * `unmarked`: finds removed entries of which an entry without an origin attribute may be a copy

pub(crate) mod incomplete;
pub(crate) mod object_steps;
pub(crate) mod orphans;
pub(crate) mod outside;
pub(crate) mod partial;
pub mod plan;
pub(crate) mod renames;
pub(crate) mod report;
pub(crate) mod sources;
pub(crate) mod state;
pub(crate) mod unmarked;
