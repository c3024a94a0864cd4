//! The number that tells the claims of a directive apart.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a claim: each claim of a directive has a larger one than all claims before it.
///
/// The upper part is the epoch of the store, so that a store restored from a backup does not issue a number twice. A
/// fence stays below 2^53: programs that read numbers as floating point read it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// Bits of a fence below the epoch of the store.
const BELOW_EPOCH: u32 = 32;
/// Number that every fence is below.
const LIMIT: u64 = 1 << 53;

impl Fence {
    /// Returns the fence of the next claim; `None` when the numbers are used up.
    #[must_use]
    pub fn next(self, store_epoch: u64) -> Option<Self> {
        let base = store_epoch.checked_mul(1 << BELOW_EPOCH)?;
        let next = self.0.checked_add(1)?.max(base);
        (next < LIMIT).then_some(Self(next))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
