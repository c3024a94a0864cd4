//! Values between rows and types.

use crate::store::error::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sixteen bytes of an id.
pub type Id = [u8; 16];
/// Pin of a directive that any territory may claim.
pub const ANY: Id = [0; 16];

pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(error.to_string()))
}

pub fn text<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::corrupt(error.to_string()))
}

/// Reads the name of a value with a unit variant for each name.
pub fn named<T: DeserializeOwned>(name: &str) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|error| StoreError::corrupt(error.to_string()))
}

/// Turns no row into `None`.
pub fn optional<T>(result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
