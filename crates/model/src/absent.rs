//! Reads fields of the contract for which `null` means that they are absent.

use serde::{Deserialize, Deserializer};

/// Reads a field; `null` means its default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(reader: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(reader)?.unwrap_or_default())
}
