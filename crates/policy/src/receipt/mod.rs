//! The signed statement of what a run was and did.
//!
//! ```text
//!  Receipt ── JSON ─▶ payload ── seal(key) ─▶ envelope file ── open(keyring) ─▶ Verified | why not
//!                        └── BLAKE3 ─▶ the hash that the next receipt names: the chain
//! ```
//! Everything here is pure: the caller brings keys, bytes and times.
//!
//! * [`Receipt`]: the document.
//! * [`seal`], [`open`]: the envelope (form of DSSE 1.0) around the exact bytes of the document.
//! * [`PublicKey`], [`Seed`], [`Keyring`], [`Link`]: keys, their text forms, and how a new key follows an old one.
//! * [`check_chain`]: whether a receipt was taken out.

mod chain;
mod document;
mod envelope;
mod keys;
mod link;

pub use chain::{ChainEnd, ChainProblem, ChainReport, Ring, check_chain};
pub use document::{
    Bounded, ChainPlace, Changes, Driver, Egress, EnvEntry, Exit, MAX_LISTED_BYTES, Network, Nexus, Output, ProfileRef,
    Receipt, Request, SCHEMA, SCHEMAS, StreamDigest, Timing,
};
pub use envelope::{MAX_BYTES, Opened, PAYLOAD_TYPE, Sealed, VerifyError, open, pre_authentication, seal};
pub use keys::{KeyId, KeyTextError, Keyring, PRIVATE_KEY_BYTES, PublicKey, Seed};
pub use link::{Link, LinkError};
