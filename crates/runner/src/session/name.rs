//! Names of detached sandboxes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Length of the longest name, in bytes.
const MAX: usize = 64;

/// A name: letters, digits, `_`, `-` and `.`, and a letter or digit first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Error: a text that is not a valid name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a name: letters, digits, _, - and . are, with a letter or digit first, at most {MAX}")]
pub struct ParseNameError {
    text: String,
}

impl FromStr for Name {
    type Err = ParseNameError;
    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        // An id as a name would be another sandbox's id for its reader.
        if first && text.len() <= MAX && text.bytes().all(fine) && text.parse::<nexus_model::RunId>().is_err() {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseNameError { text: text.to_owned() })
        }
    }
}

impl TryFrom<String> for Name {
    type Error = ParseNameError;
    fn try_from(text: String) -> Result<Self, ParseNameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain_and_no_id() {
        assert!("web-1.a_b".parse::<Name>().is_ok());
        for bad in ["", "-a", ".", "a b", "a/b", "é", "01890a5d-ac96-774b-bcce-b302099a8057", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
