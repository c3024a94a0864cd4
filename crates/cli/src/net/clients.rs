//! Package groups.

use crate::failure::Failure;
use crate::profile::Found;
use nexus_policy::net::Groups;
use nexus_policy::profile::Sourced;
use std::path::Path;

/// The groups that are read from clients.
pub const GROUPS: [&str; 0] = [];

/// Reads.
pub fn read(_: &[Sourced<String>], _: &Path, _: &mut Groups, _: &mut Found) -> Result<(), Failure> {
    Ok(())
}
