//! From a plan to a journal: everything of a commit before its commit point. Nothing of the workspace changes here.
//!
//! * `copied_up`: triggers the copy-up of entries that a commit is about to displace, if the workspace itself lies on
//!   an overlay (in a container, for instance)
//! * `decision`: turns a plan into a journal, in two passes over its steps
//! * `immovable`: finds, before a commit is decided, the entries that the file system refuses to rename although
//!   layer and workspace are on one mount
//! * `steps_of_plan`: turns the decision about each entry into the steps of a commit
//! * `survey`: collects the resources that the steps of a plan need, and the obstacles to them

pub(crate) mod copied_up;
pub(crate) mod decision;
pub(crate) mod immovable;
pub(crate) mod steps_of_plan;
pub(crate) mod survey;
