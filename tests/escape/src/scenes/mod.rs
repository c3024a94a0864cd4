//! Scenes: what the suite plays from the host around a command. Each returns one observation per row.

mod detached;
mod lifetime;
mod options;
mod output;
mod protected;
mod refusals;
mod secrets;
mod terminal;
mod traces;

pub use options::Options;

use crate::answer::Seen;
use crate::host::bench::Bench;
use crate::host::world::WorldError;

/// Plays one vector's scene.
pub type Scene = fn(&Bench, &Options) -> Result<Vec<Seen>, WorldError>;

/// Scenes that mean something without a driver, too.
pub const WITHOUT_DRIVER: &[&str] = &["A10"];

/// Every scene with its vector.
pub const ALL: &[(&str, Scene)] = &[
    ("A10", terminal::forged_input),
    ("A11", lifetime::killed_supervisor),
    ("A14", refusals::missing_steps),
    ("B06", protected::protected_names),
    ("B07", protected::protected_links),
    ("B11", traces::between_runs),
    ("B13", refusals::working_directory),
    ("E06", lifetime::timeout),
    ("E07", lifetime::leader_ends),
    ("E08", lifetime::stdout_held),
    ("E09", lifetime::cancelled),
    ("E10", traces::fifty_runs),
    ("E11", output::flood),
    ("E12", output::exit_codes),
    ("G01", secrets::environment),
    ("N04", terminal::printed),
];
