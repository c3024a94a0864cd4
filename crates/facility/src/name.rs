//! Names of facilities, which become names of directories.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;

/// Name or id of a facility: letters, digits, `_` and `-`, so that it is never a path, a flag or a hidden file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FacilityName(String);

/// Reason for which a text cannot be the name of a facility.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} cannot name a facility: use 1 to {MAX_NAME} letters, digits, _ or -, beginning with a letter or a digit"
)]
pub struct NameError {
    /// The text, cut to a bounded length.
    pub text: String,
}

impl FacilityName {
    /// Returns the text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FacilityName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins_well && text.len() <= MAX_NAME && text.bytes().all(is_safe) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError { text: text.chars().take(MAX_NAME).collect() })
    }
}

impl TryFrom<String> for FacilityName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<FacilityName> for String {
    fn from(name: FacilityName) -> Self {
        name.0
    }
}

impl fmt::Display for FacilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_a_path_is_refused_and_an_id_is_taken() {
        for good in ["a", "my-project_2", "01890a5d-ac96-774b-bcce-b302099a8057", &"x".repeat(64)] {
            assert_eq!(good.parse::<FacilityName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "../x", "-rf", "_x", ".gone-x", "a b", "a\0", "ä", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<FacilityName>().is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<FacilityName>("\"../x\"").is_err());
    }
}
