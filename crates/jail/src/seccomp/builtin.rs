//! The profile of Nexus itself, as data and as a program made in advance.
//!
//! `profiles/default.json` is the source. Reading and compiling it takes 0.17
//! ms, which every start of a sandbox would pay, so the program is checked in
//! (`generated.rs`) and a test holds it equal to what the compiler makes of the
//! JSON today.

use std::borrow::Cow;

use super::compile::Program;
use super::generated::{DEBUG, DEFAULT};
use super::oci::{self, ProfileError};
use super::profile::SeccompProfile;

const DEFAULT_JSON: &str = include_str!("../../profiles/default.json");
const DEBUG_JSON: &str = include_str!("../../profiles/debug.json");

/// What a sandbox may do beyond the default profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Tracing processes of the same sandbox, for debuggers and LeakSanitizer.
    pub debug: bool,
}

impl SeccompProfile {
    /// The profile of Nexus, read from its JSON files.
    pub fn builtin(permissions: Permissions) -> Result<Self, ProfileError> {
        let profile = oci::read(DEFAULT_JSON, 0)?;
        if permissions.debug {
            return Ok(profile.replaced_by(oci::read(DEBUG_JSON, 0)?));
        }
        Ok(profile)
    }
}

impl Program {
    /// The compiled form of [`SeccompProfile::builtin`], at no cost.
    #[must_use]
    pub const fn builtin(permissions: Permissions) -> Self {
        Self(Cow::Borrowed(if permissions.debug { DEBUG } else { DEFAULT }))
    }
}
