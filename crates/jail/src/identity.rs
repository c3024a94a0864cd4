//! Ids of a sandbox, on the host and inside.
//!
//! Rule 1: a sandbox's uid never maps to host uid 0, and never to the uid of the daemon. (With uid 0 mapped,
//! `/proc/sys/kernel/core_pattern` could be opened for writing: the CVE-2022-0492 family.)
//!
//! Rule 2: each sandbox of root has an id of its own. The kernel counts by the host's uid what is in flight over Unix
//! sockets (unix(7)), pages of pipes (pipe(7)), watches of epoll (epoll(7)) and keys (keyrings(7)): with one uid for all,
//! one sandbox would use up what the others have. The id is drawn, so that no file has to say which ones are taken, and two
//! sandboxes of the same time get the same one in one of 67 million cases: they then share these quotas, and nothing else.
//! Whatever reaches a disk is written with the owner that the workspace has, so that no id has to come again. An ordinary
//! user's sandboxes have that user's id: the kernel lets the user map no other one to it.

use crate::steps::{Step, StepError};
use nexus_model::plan::INNER_ID;

/// First host uid of sandboxes that root starts, unless configured.
pub const DEFAULT_UID_BASE: u32 = 1_000_000_000;
/// Smallest first host uid that an operator may configure for them.
pub const MIN_UID_BASE: u32 = 65_536;
/// Number of host uids from which the sandboxes that root starts draw theirs.
pub const UIDS: u32 = 1 << 26;

/// The ids of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Host uid that appears as 1000 inside.
    pub outer_uid: u32,
    /// Host gid that appears as 1000 inside.
    pub outer_gid: u32,
    /// Maps file owners: the launcher is root.
    pub by_root: bool,
}

impl Identity {
    /// The ids for a launcher with effective ids `uid` and `gid`. Root's sandbox gets one of the ids from `uid_base` on,
    /// which `drawn`, a random number, chooses.
    pub fn choose(uid: u32, gid: u32, uid_base: u32, drawn: u32) -> Result<Self, StepError> {
        if uid != 0 {
            if gid == 0 {
                return Err(StepError::new(Step::Identity, "an ordinary user whose group is root cannot be isolated"));
            }
            return Ok(Self { outer_uid: uid, outer_gid: gid, by_root: false });
        }
        // The last two ids mean "none" to some calls.
        let free = (u32::MAX - 1).saturating_sub(uid_base);
        if uid_base < MIN_UID_BASE || free == 0 {
            return Err(StepError::new(Step::Identity, format!("uid_base {uid_base} leaves no id for a sandbox")));
        }
        let id = uid_base + drawn % free.min(UIDS);
        Ok(Self { outer_uid: id, outer_gid: id, by_root: true })
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
    fn a_user_is_itself_and_root_is_another() {
        let user = Identity::choose(12345, 12345, DEFAULT_UID_BASE, 0).unwrap();
        assert_eq!((user.uid_map().as_str(), user.by_root), ("1000 12345 1", false));
        let root = Identity::choose(0, 0, DEFAULT_UID_BASE, 0).unwrap();
        assert_eq!((root.uid_map().as_str(), root.by_root), ("1000 1000000000 1", true));
    }

    #[test]
    fn each_sandbox_of_root_draws_an_id_of_its_range() {
        let drawn = |base, number| Identity::choose(0, 0, base, number).unwrap();
        let ids = [0, 1, UIDS - 1, UIDS, u32::MAX].map(|number| drawn(DEFAULT_UID_BASE, number).outer_uid);
        let last = DEFAULT_UID_BASE + UIDS - 1;
        assert_eq!(ids, [DEFAULT_UID_BASE, DEFAULT_UID_BASE + 1, last, DEFAULT_UID_BASE, last]);
        // At the end of all ids the range is what is left.
        for number in [0, 1, 2, u32::MAX] {
            let id = drawn(u32::MAX - 3, number);
            assert!((u32::MAX - 3..u32::MAX - 1).contains(&id.outer_uid) && id.outer_gid == id.outer_uid);
        }
        // A user's is the user's.
        assert_eq!(Identity::choose(12345, 12345, DEFAULT_UID_BASE, 77).unwrap().outer_uid, 12345);
    }

    #[test]
    fn no_configuration_maps_uid_zero_or_a_system_user() {
        for (base, drawn) in [(0, 0), (1000, 0), (u32::MAX, 0), (u32::MAX - 1, 1), (0, 100_000), (65_535, 7)] {
            assert!(Identity::choose(0, 0, base, drawn).is_err(), "{base}+{drawn}");
        }
        assert!(Identity::choose(1000, 0, DEFAULT_UID_BASE, 0).is_err());
    }
}
