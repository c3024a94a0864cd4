//! Which ids a sandbox has on the host and inside.
//!
//! Rule 1: a sandbox's uid never maps to host uid 0, and never to the uid of the daemon. (With uid 0 mapped,
//! `/proc/sys/kernel/core_pattern` could be opened for writing: the CVE-2022-0492 family.)

use crate::steps::{Step, StepError};
use nexus_model::plan::INNER_ID;

/// First host uid of sandboxes that root starts, unless configured.
pub const DEFAULT_UID_BASE: u32 = 1_000_000_000;

/// The ids of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Host uid that appears as 1000 inside.
    pub outer_uid: u32,
    /// Host gid that appears as 1000 inside.
    pub outer_gid: u32,
    /// Whether the launcher is root, and so maps file owners.
    pub by_root: bool,
}

impl Identity {
    /// The ids for a launcher with effective ids `uid` and `gid`; `tenant` is who root acts for (0 = itself).
    pub fn choose(uid: u32, gid: u32, uid_base: u32, tenant: u32) -> Result<Self, StepError> {
        if uid != 0 {
            if gid == 0 {
                return Err(StepError::new(Step::Identity, "an ordinary user whose group is root cannot be isolated"));
            }
            return Ok(Self { outer_uid: uid, outer_gid: gid, by_root: false });
        }
        let outer = uid_base.checked_add(tenant).filter(|id| *id >= 65_536 && *id < u32::MAX - 1);
        match outer {
            Some(id) => Ok(Self { outer_uid: id, outer_gid: id, by_root: true }),
            None => Err(StepError::new(Step::Identity, format!("uid_base {uid_base} leaves no id for user {tenant}"))),
        }
    }

    /// `/proc/PID/uid_map` of the sandbox.
    #[must_use]
    pub fn uid_map(&self) -> String {
        format!("{INNER_ID} {} 1", self.outer_uid)
    }

    /// `/proc/PID/gid_map` of the sandbox.
    #[must_use]
    pub fn gid_map(&self) -> String {
        format!("{INNER_ID} {} 1", self.outer_gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_itself_and_root_is_somebody_else() {
        let user = Identity::choose(12345, 12345, DEFAULT_UID_BASE, 0).unwrap();
        assert_eq!((user.uid_map().as_str(), user.by_root), ("1000 12345 1", false));
        let root = Identity::choose(0, 0, DEFAULT_UID_BASE, 0).unwrap();
        assert_eq!((root.uid_map().as_str(), root.by_root), ("1000 1000000000 1", true));
        let tenant = Identity::choose(0, 0, DEFAULT_UID_BASE, 1001).unwrap();
        assert_eq!(tenant.outer_uid, 1_000_001_001);
    }

    #[test]
    fn no_configuration_maps_uid_zero_or_a_system_user() {
        for (base, tenant) in [(0, 0), (1000, 0), (u32::MAX, 0), (u32::MAX - 1, 1), (0, 1000)] {
            assert!(Identity::choose(0, 0, base, tenant).is_err(), "{base}+{tenant}");
        }
        assert!(Identity::choose(1000, 0, DEFAULT_UID_BASE, 0).is_err());
    }
}
