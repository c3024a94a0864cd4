//! The name of this driver in configuration, handles and records.

/// Name of this driver in handles and receipts.
pub const NAME: &str = "namespace";
