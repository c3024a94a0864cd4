//! Reads from this host what a run may do: files of permissions, tools, and clients of package managers.
//!
//! ```text
//!  Host: variables, home, identity ─┬─▶ library: built-in, the user's and the machine's profiles ─┐
//!   (the caller brings it)          ├─▶ settings: config.toml of the operator and the user        ├─▶ policy documents
//!  workspace ─ nexus.yaml ──────────┼─▶ workspace_file: hostile bytes, read once                  ┘
//!                                   ├─▶ toolchains: tools on PATH ─┐
//!                                   └─▶ clients: indexes, mirrors ─┴─▶ Found: binds, PATH, variables, notes
//! ```
//! `nexus-policy` combines the documents and decides; this crate reads. It prints nothing and reads no variable of the
//! process: the caller hands over a [`Host`]. Each operation has one error type with a stable `code()`.
//!
//! * [`host`]: holds the environment of the calling process.
//! * [`owned`]: reads a configuration file that no other user can have written.
//! * [`document`]: reads one profile.
//! * [`library`]: finds profiles by name.
//! * [`settings`]: reads `config.toml`.
//! * [`policies`]: reads the policy documents of the machine, the user and the workspace.
//! * [`workspace_file`]: reads a workspace's `nexus.yaml`.
//! * [`toolchains`]: finds Python, Node, Rust, Go, Java and git, without the credentials beside them.
//! * [`clients`]: reads where pip, npm, cargo and apt fetch packages from.

#![forbid(unsafe_code)]

pub mod clients;
pub mod document;
pub mod host;
pub mod library;
pub mod owned;
pub mod policies;
pub mod settings;
pub mod toolchains;
pub mod workspace_file;

pub use document::BrokenDocument;
pub use host::{GitSetting, Host, ReadGitConfig, UnreadableGitConfig};
pub use library::{LibraryError, ProfileStore, built_in_names};
pub use owned::{ReadOwnedError, read_owned};
pub use policies::PoliciesError;
pub use settings::SettingsError;
pub use toolchains::{Found, FoundBind, FoundHome, FoundSource, Tool, ToolHost};
pub use workspace_file::{WorkspaceFile, WorkspaceFileError};
