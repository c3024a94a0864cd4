//! The child's half of a launch: it runs in the new namespaces, until the guest takes over.
//!
//! ```text
//!  setup ──▶ system, etc ──▶ rootfs ──▶ workspace, binds, covers, limits ──▶ descriptors ──▶ walls
//! ```

mod binds;
pub mod confinement;
mod covers;
mod descriptors;
pub mod etc;
mod limits;
pub mod rootfs;
pub mod setup;
pub mod system;
mod workspace;
