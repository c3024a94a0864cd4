//! Hostile probes with harmless twins, and the suite that plays them against the real program.
//!
//! `cases` is the table, `probes` are the attacks that run inside, `scenes` those played from the host, `report`
//! evaluates. Two programs use it: `nexus-escape`, which in continuous integration also shows without a sandbox and on a
//! driver that isolates nothing that each attack can succeed; and `nexus doctor --attack`, which plays the real
//! sandbox only, on a user's machine.

mod act;
mod answer;
mod attacker;
mod cases;
mod context;
mod host;
mod isolate;
mod keys;
pub mod leaky;
mod leave_out;
mod probes;
pub mod report;
mod scenes;
mod skips;
mod suite;
mod sys;

pub use answer::Answer;
pub use attacker::{Attacker, Ground, part};
pub use cases::{Case, Kind, Limit, VECTORS, Vector, all as cases, is_vector};
pub use host::world::WorldError;
pub use leave_out::{Noticed, play_confinement};
pub use report::{Column, Evaluated, Verdict};
pub use scenes::Options;
pub use suite::{Depth, Outcome, Plan, SuiteError, play};

/// Returns whether this program runs as root, which can play other users too.
#[must_use]
pub fn is_root() -> bool {
    sys::uid() == 0
}
