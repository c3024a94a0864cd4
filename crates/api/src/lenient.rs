//! Reads fields that inform and decide nothing: a value of an unexpected form counts as absent, so that an independently
//! written daemon is not refused for it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Reads a field; a value of another form is `None`.
pub fn field<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Option<T>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(reader)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

pub use nexus_model::absent::or_default;
