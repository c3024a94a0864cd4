//! One newtype per id, so that a directive's id can never be passed where a territory's is meant.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// An id was not a UUID in the usual hyphenated form.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not an id (a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057)")]
pub struct ParseIdError {
    /// Text that is not an id.
    pub text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, ordered by time (UUIDv7).
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// Returns the id with these bytes, as a store holds it.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Returns the bytes of the id, in the order in which ids sort.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                // Only the one form that `Display` writes: ids become file names.
                match Uuid::try_parse(text) {
                    Ok(id) if id.hyphenated().to_string() == text => Ok(Self(id)),
                    _ => Err(ParseIdError { text: text.to_owned() }),
                }
            }
        }
    };
}

id!(
    /// One `nexus run` on this machine.
    RunId
);
id!(
    /// One directive of a fleet.
    DirectiveId
);
id!(
    /// A persistent workspace of a fleet.
    FacilityId
);
id!(
    /// A machine of a fleet that runs directives.
    TerritoryId
);
id!(
    /// An approval in a control plane.
    ApprovalId
);
id!(
    /// An account of a control plane; everything belongs to one.
    AccountId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_writes() {
        let id = RunId::new();
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
    }

    #[test]
    fn an_id_is_never_a_path() {
        for text in
            ["", "..", "../x", "a/b", "01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a8057}"]
        {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        let first = RunId::new();
        let second = RunId::new();
        assert!(first < second);
    }
}
