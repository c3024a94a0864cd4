//! seccomp: which system calls a sandboxed process may make.
//!
//! The rules are data (`profiles/*.json`, in the format of the OCI runtime
//! specification, each entry with the reason for it), and one compiler turns
//! any such profile into a filter program for the kernel:
//!
//! | file | content |
//! |---|---|
//! | `profile.rs` | what a profile is and what it means |
//! | `oci.rs` | its JSON form, read strictly |
//! | `table.rs` | names and numbers of the calls |
//! | `plan.rs`, `outcome.rs` | from rules to ranges of call numbers with one outcome each |
//! | `compile.rs`, `assembler.rs` | from the plan to a program: a search tree with the argument checks at its leaves |
//! | `builtin.rs` | the profile of Nexus itself, and its program compiled in advance |
//! | `install.rs` | the system call that hands a program to the kernel |
//!
//! A filter sees the registers of a call and never memory behind a pointer.
//! Calls whose dangerous part sits there (clone3, openat2, fchmodat2) are
//! answered with ENOSYS, so that libc takes the older call, which can be read.

mod assembler;
mod builtin;
mod compile;
#[rustfmt::skip]
#[allow(clippy::unreadable_literal, reason = "numbers written by a test, for the kernel")]
mod generated;
mod install;
mod oci;
mod outcome;
mod plan;
mod profile;
#[rustfmt::skip]
pub mod table;

#[cfg(test)]
mod tests;

pub use builtin::Permissions;
pub use compile::{CompileError, Program, compile};
pub use install::install;
pub use oci::ProfileError;
pub use profile::{Action, Condition, Rule, SeccompProfile, Test};
