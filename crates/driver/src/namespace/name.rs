//! The name of this driver in configuration, handles and records.

/// The name.
pub const NAME: &str = "namespace";
