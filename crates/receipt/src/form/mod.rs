//! The written form of receipts, and of links between keys.

mod document;
mod envelope;
mod link;

pub use document::{
    Approved, AutoBind, Bounded, ChainPlace, Changes, Driver, Egress, EnvEntry, Exit, MAX_LISTED_BYTES, Network, Nexus,
    Output, ProfileRef, Receipt, Request, SCHEMA, SCHEMAS, Secret, StreamDigest, Timing,
};
pub use envelope::{MAX_BYTES, Opened, PAYLOAD_TYPE, Sealed, VerifyError, file_of, open, pre_authentication, seal};
pub use link::{Link, LinkError};
