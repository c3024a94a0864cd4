//! Reads fields that inform and decide nothing: a value of an unexpected form counts as absent, so that an independently
//! written daemon is not refused for it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Reads a field; a value of another form is `None`.
pub fn field<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Option<T>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(reader)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// Reads a field for which `null` means the default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(reader: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(reader)?.unwrap_or_default())
}
