//! Budgets of one run.

use serde::Serialize;

/// Kind of a budget of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// Connections ever made.
    Connections,
    /// Bytes to and from the network together.
    EgressBytes,
}

impl BudgetKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Connections, Self::EgressBytes];

    /// Returns the key in a document.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::EgressBytes => "egress_bytes",
        }
    }

    /// Returns the flag of `nexus run` that sets it.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Connections => "--max-connections",
            Self::EgressBytes => "--max-egress-bytes",
        }
    }

    /// Returns the budget with this key.
    #[must_use]
    pub fn by_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.key() == key)
    }

    /// Reads its value.
    pub fn read(self, text: &str) -> Result<u64, String> {
        match self {
            Self::EgressBytes => nexus_model::units::parse_size(text).map_err(|error| error.to_string()),
            Self::Connections => text.parse().map_err(|_| format!("{text:?} is not a number of connections")),
        }
    }
}
