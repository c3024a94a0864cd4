//! Shows a layer before the decision, to a person or a program, and merges versions in conflict.
//!
//! * `after_run`: lists and opens the files of a workspace as a run left them
//! * `diff`: the lines that a run changed, for a person or a program
//! * `keep_yours`: saves the workspace's version of a file beside it, so that a commit may put the run's version in
//!   its place
//! * `merge`: merges two versions of a text that came from one base
//! * `merge_yours`: merges the two versions of a file in conflict, where it is known what both were made of

pub mod after_run;
pub mod diff;
pub(crate) mod keep_yours;
pub(crate) mod merge;
pub(crate) mod merge_yours;
