//! The groups `pkg:pip`, `pkg:npm`, `pkg:cargo` and `pkg:apt`: what a package manager needs, read from the
//! configuration of the user's own client.
//!
//! ```text
//!  texts of the client's files, environment ─▶ Needs ─rules─▶ rules of the group, and what they cannot cover
//!                                               │
//!                                               └─ default_index: Ask ─(the text of the client's own file)─▶ add_default
//! ```
//!
//! No host is written down here: a mirror, a private index and the client's own default all come from the client, so
//! the group never allows a host that the user's client would not use. Reading the files is the caller's work.
//! Credentials are split off at once and never shown.

mod apt;
mod built_in;
mod cargo;
mod endpoint;
mod ini;
mod needs;
mod npm;
mod pip;

pub use apt::{read_apt_auth, read_apt_conf, read_apt_sources, read_deb822};
pub use built_in::{npm_default, pip_default};
pub use cargo::{read_cargo_config, read_cargo_index};
pub use endpoint::{Credential, Endpoint, EndpointError, Login, Scheme, Secret};
pub use needs::{Client, DefaultIndex, Needs, NotCovered, PackagesError, Setting};
pub use npm::read_npm;
pub use pip::read_pip;
