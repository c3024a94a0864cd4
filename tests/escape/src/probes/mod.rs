//! The attacks, one function per case, grouped by what they attack.

pub mod a_ipc;
pub mod a_kernel;
pub mod a_process;
pub mod a_syscalls;
pub mod a_tracing;
pub mod b_files;
pub mod b_modes;
pub mod b_view;
pub mod confinement;
pub mod e_limits;
pub mod mounts;
