//! The record of an egress: its events, repeated lines that share one, the file, and the summary at the end.

pub(crate) mod event;
pub(crate) mod file_sink;
pub(crate) mod record;
pub(crate) mod repeats;
pub(crate) mod summary;
