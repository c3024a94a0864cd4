//! The profile of Nexus itself, as data and as a program made in advance.
//!
//! `profiles/default.json` is the source. Reading and compiling it takes 0.17
//! ms, which every start of a sandbox would pay, so the program is checked in
//! (`generated.rs`) and a test holds it equal to what the compiler makes of the
//! JSON today.

use std::borrow::Cow;

use super::compile::Program;
use super::generated::{DEBUG, DEFAULT, LAYERED, LAYERED_DEBUG};
use super::oci::{self, ProfileError};
use super::profile::SeccompProfile;

const DEFAULT_JSON: &str = include_str!("../../profiles/default.json");
const DEBUG_JSON: &str = include_str!("../../profiles/debug.json");
const LAYERED_JSON: &str = include_str!("../../profiles/layered.json");

/// Permissions of a sandbox beyond the default profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Tracing processes of the same sandbox, for debuggers and LeakSanitizer.
    pub debug: bool,
    /// Allows calls that are harmless where all writes go to a layer: setgid directories.
    pub layered: bool,
}

impl Permissions {
    /// All combinations of the permissions.
    pub const ALL: [Self; 4] = [
        Self { debug: false, layered: false },
        Self { debug: true, layered: false },
        Self { debug: false, layered: true },
        Self { debug: true, layered: true },
    ];
}

impl SeccompProfile {
    /// The profile of Nexus, read from its JSON files.
    pub fn builtin(permissions: Permissions) -> Result<Self, ProfileError> {
        let parts = [(permissions.debug, DEBUG_JSON), (permissions.layered, LAYERED_JSON)];
        let wanted = parts.into_iter().filter(|(wanted, _)| *wanted);
        wanted
            .into_iter()
            .try_fold(oci::read(DEFAULT_JSON, 0)?, |profile, (_, part)| Ok(profile.replaced_by(oci::read(part, 0)?)))
    }
}

impl Program {
    /// Returns the filter that was compiled in advance from [`SeccompProfile::builtin`].
    #[must_use]
    pub const fn builtin(permissions: Permissions) -> Self {
        Self(Cow::Borrowed(match permissions {
            Permissions { debug: false, layered: false } => DEFAULT,
            Permissions { debug: true, layered: false } => DEBUG,
            Permissions { debug: false, layered: true } => LAYERED,
            Permissions { debug: true, layered: true } => LAYERED_DEBUG,
        }))
    }
}
