//! A host path that is shown inside.

use nexus_model::plan::Bind;
use nexus_policy::profile::Origin;

/// A bind with the flag or file that asked for it.
pub struct Shown {
    /// The bind; a file that Nexus makes has its content here and no source yet.
    pub bind: Bind,
    /// The content of a file that is made for the run.
    pub made: Option<Vec<u8>>,
    /// The description of a toolchain's path.
    pub why: Option<&'static str>,
    /// The flag or file that asked for it.
    pub from: Origin,
    /// True if it is shown only because the operator opened it.
    pub by_operator: bool,
}
