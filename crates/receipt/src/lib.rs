//! Receipts: signed statements of what runs were and did.
//!
//! ```text
//!  a run ends ─▶ issue ─▶ form: document ─▶ seal with a key ─▶ store: receipts/RUN.json, linked to the one before
//!                                                                  │
//!  public keys ──────▶ keyring ─▶ verify: open ◀───────────────────┘─▶ chain: is one missing?
//! ```
//! The caller brings the state directory and the time; this crate prints nothing and reads no environment variable.
//! Error codes are stable: [`IssueError::code`], [`OpenError::code`], [`Invalid::code`] and their kind.
//!
//! * [`keys`]: Ed25519 keys, their text forms, and the keyring that says which signatures count. Pure.
//! * [`form`]: the document, the envelope (form of DSSE 1.0) around its exact bytes, and links from a key to its
//!   successor. Pure.
//! * [`chain`]: finds receipts that were taken out. Pure.
//! * [`store`]: the directories `keys` and `receipts` of a state directory, and files that only their owner can reach.
//! * [`mod@issue`]: makes and stores the receipt of a run that has ended.
//! * [`verify`]: compares a receipt with its run, with files and with a report, and all receipts with their chain.

#![forbid(unsafe_code)]

pub mod chain;
pub mod form;
pub mod issue;
pub mod keys;
pub mod store;
pub mod verify;

pub use chain::{ChainEnd, ChainProblem, ChainReport, Ring, check_chain};
pub use form::{
    Approved, AutoBind, Bounded, ChainPlace, Changes, Driver, Egress, EnvEntry, Exit, Link, LinkError, MAX_BYTES,
    Network, Nexus, Opened, Output, ProfileRef, Receipt, Request, SCHEMA, SCHEMAS, Sealed, Secret, StreamDigest,
    Timing, VerifyError, file_of, open, seal,
};
pub use issue::{IssueError, Issued, Issuer, Maker, OpenError, Statement, issue};
pub use keys::{KeyId, KeyTextError, Keyring, PublicKey, Seed};
pub use store::{Break, Breaks, DirectoryError, KeyDirectory, KeyError, Known, Store, StoreError, Stored};
pub use verify::{AllValid, Collected, Invalid, ReadError, Source};
