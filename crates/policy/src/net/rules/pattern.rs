//! Patterns of names in rules: one name, or the names below one. There is no third form.

use crate::net::rules::name::{HostError, Name};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A name, or everything below a name but never that name itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// Exactly this name.
    Exact(Name),
    /// `*.NAME`: every name that ends in `.NAME`, at any depth; not `NAME`.
    Below(Name),
}

/// Reason why a text cannot be read as a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The name in it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A star elsewhere than as the whole first label.
    #[error("a star stands only in front, as in *.example.com")]
    Star,
    /// `*.com` would be a whole country or half of the internet.
    #[error("a wildcard needs at least two labels after the star, as in *.example.com")]
    TooWide,
    /// The text looks like a URL or a path.
    #[error("a rule is a host name, not a URL or a path")]
    Url,
}

impl Pattern {
    /// Reads `example.com` or `*.example.com`; both are stored in the canonical form of [`Name`].
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.contains('/') {
            return Err(PatternError::Url);
        }
        let Some(base) = text.strip_prefix("*.") else {
            return if text.contains('*') { Err(PatternError::Star) } else { Ok(Self::Exact(Name::parse(text)?)) };
        };
        if base.contains('*') {
            return Err(PatternError::Star);
        }
        let base = Name::parse(base)?;
        if base.labels() < 2 {
            return Err(PatternError::TooWide);
        }
        Ok(Self::Below(base))
    }

    /// Returns the name in the pattern, without a star.
    pub fn base(&self) -> &Name {
        match self {
            Self::Exact(name) | Self::Below(name) => name,
        }
    }

    /// Reports whether every name of `other` is one of this pattern.
    pub fn covers(&self, other: &Self) -> bool {
        let below = |base: &Name, name: &Name| {
            name.as_str().strip_suffix(base.as_str()).is_some_and(|rest| rest.ends_with('.'))
        };
        match (self, other) {
            (Self::Exact(known), Self::Exact(asked)) => known == asked,
            (Self::Below(known), Self::Exact(asked)) => below(known, asked),
            (Self::Below(known), Self::Below(asked)) => known == asked || below(known, asked),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }

    /// Reports whether some name is one of both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Below(base) => write!(f, "*.{base}"),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
