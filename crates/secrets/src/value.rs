//! The bytes of a secret.

use std::fmt;
use zeroize::Zeroizing;

/// Minimum size of a value without the white space around it: a shorter one would be found in output that does not have it.
pub const MIN_BYTES: usize = 4;
/// Maximum size of a value.
pub const MAX_BYTES: usize = 64 << 10;

/// The value of a secret. It is wiped when it is dropped; it has no `Display`, and its `Debug` shows nothing of it.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Takes bytes over.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the one place that they are for.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_shown_by_debug() {
        let value = SecretValue::new(Zeroizing::new(b"hunter2hunter2".to_vec()));
        assert_eq!(format!("{value:?} {:?}", Some(&value)), "SecretValue(..) Some(SecretValue(..))");
    }
}
