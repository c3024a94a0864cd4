//! Named sets of permissions: what a profile may say, how profiles combine, and what a workspace may narrow.
//!
//! ```text
//!  text ─▶ tree (bounded, every value with its line) ─▶ Document (typed, unknown keys refused)
//!
//!  --profile a, b   ─▶ chain (extends: parents first, cycles refused)
//!                        ─▶ Grants::add, one after the other, flags last ─▶ Grants
//!  nexus.yaml, trusted ─────────────▲ (as if it were the user's own)          │
//!  nexus.yaml, not trusted ─────────────────────────────────────────▶ narrow ─┴▶ Grants, or what it would widen
//! ```
//!
//! Nothing here touches a file, the environment or the clock: the command line reads and looks, this decides. Every
//! granted value carries its [`Origin`], so that `nexus explain` can say who granted it.

mod chain;
pub(crate) mod document;
mod grants;
mod limits;
mod narrow;
mod origin;
pub(crate) mod read;
mod schema;
mod suggest;
pub(crate) mod tree;
mod yaml_error;

pub use chain::{ChainError, Library, Link, Loaded, resolve};
pub use document::{
    BindRule, ChangesMode, Document, EnvPart, FsPart, HidePattern, LimitsPart, NetMode, NetPart, Toolchain,
};
pub use grants::{Grants, NetGrants, OnlyThese, ProfileName};
pub use limits::{LimitKind, LimitValues, format_limit};
pub use narrow::{Narrowed, Widening, narrow};
pub use origin::{Origin, Place, Sourced};
pub use read::parse;
pub use schema::{SCHEMA, schema};
pub use suggest::closest;
pub use tree::{DocumentError, MAX_BYTES};
