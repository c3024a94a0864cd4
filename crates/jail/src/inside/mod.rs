//! The child's half of a launch: it runs in the new namespaces, until the guest takes over.
//!
//! ```text
//!  setup ──▶ system, etc ──▶ rootfs ──▶ limits (the cgroup, shown) ──▶ workspace, binds (pins)
//!        ──▶ covers (closed) ──▶ second_search (mounted) ──▶ quotas ──▶ descriptors ──▶ confinement
//! ```

mod answers;
mod binds;
mod birth;
mod closed;
pub mod confinement;
mod covers;
mod descriptors;
pub mod etc;
pub(crate) mod image;
mod limits;
mod mounted;
mod pins;
mod places;
pub mod rootfs;
mod second_search;
mod secrets;
pub mod setup;
pub mod system;
mod workspace;
