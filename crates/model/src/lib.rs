//! Pure types that every part of Nexus shares: no I/O, no clock, no environment.
//!
//! * [`ids`] – one newtype per id.
//! * [`directive`] – the state machine of a directive.
//! * [`spec`] – `DirectiveSpec`, the wire form of one execution, with its frozen field names.
//! * [`subject`] – exactly what an approval of a directive is for.
//! * [`capability`] – what a directive may ask for.
//! * [`name_pattern`] – how people write names that are to be protected.
//! * [`limits`], [`units`] – resource limits and how people write them.
//! * [`guarantee`] – the named promises that a driver can give.
//! * [`exit`] – how a command ended, exit codes, typed reasons.
//! * [`plan`] – the validated order that a driver gets.
//! * [`bytes`] – byte strings that are text most of the time (paths, output).
//! * [`digest`], [`canonical`] – hashes as Nexus writes them, and the JSON spelling that is hashed.
//! * [`stamp`] – how long a change may share its time stamp with the next one.
//! * [`absent`] – fields for which `null` means that they are absent.

#![forbid(unsafe_code)]

pub mod absent;
pub mod approval;
pub mod bytes;
pub mod canonical;
pub mod capability;
pub mod digest;
pub mod directive;
pub mod exit;
pub mod guarantee;
pub mod ids;
pub mod limits;
pub mod mount_table;
pub mod moving;
pub mod name_pattern;
pub mod network;
pub mod plan;
pub mod proof;
pub mod spec;
pub mod stamp;
pub mod subject;
pub mod units;

pub use bytes::ByteText;
pub use digest::Digest;
pub use exit::{ExitReason, ExitStatus};
pub use guarantee::Guarantee;
pub use ids::RunId;
pub use limits::Limits;
pub use plan::Plan;
