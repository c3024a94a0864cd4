//! The namespace driver: `nexus-jail` sets the sandbox up, `nexus-guest` is its PID 1.
//!
//! ```text
//!  Namespace ──clone3 from this process, which has one thread──▶ sandbox
//!  Launcher  ──plan, handle──▶ launcher process (serve) ──clone3──▶ sandbox
//!  WarmDriver ──plan, handle──▶ launcher process of the user's other runs, or as Namespace
//! ```
//! [`Namespace`] implements the trait of `nexus-driver`. The other functions are system calls that a program needs around
//! a sandbox and that only `nexus-jail` may make.

#![forbid(unsafe_code)]

mod closer;
mod core_pattern;
mod driver;
mod expectations;
mod guarantees;
mod inventory;
pub mod launcher;
#[cfg(feature = "inject")]
mod leave_out;
mod members;
mod name;
mod probe;
mod process;
mod state;
pub mod warm;

pub use driver::{Lingering, Namespace};
#[cfg(feature = "inject")]
pub use leave_out::leave_out;
pub use name::NAME;
pub use nexus_jail::disposition::{is_ignored, while_held};
pub use nexus_jail::lease::{read_lease, write_lease};
#[cfg(feature = "inject")]
pub use nexus_jail::leave_out::VARIABLE as LEAVE_OUT;
pub use nexus_jail::{DEFAULT_UID_BASE, Faults, Step, Wall, hand_on_nothing, landlock_abi};
