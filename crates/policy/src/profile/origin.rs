//! Origin of a value: the file and line, or the flag.

use serde::{Serialize, Serializer};
use std::fmt;

/// A place in a text; both count from 1. The line 0 means that the place is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Origin of a grant or of a narrowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The standard permissions of every sandbox.
    Standard,
    /// A flag of the command line, as it is spelt there.
    Flag(String),
    /// A profile, the workspace's file or the operator's settings: its name for people, and where in it.
    File {
        /// A path, or `built-in profile NAME`.
        name: String,
        /// The place in the file.
        place: Place,
    },
    /// Found for a toolchain that another origin asked for.
    Toolchain {
        /// The name of the toolchain.
        name: &'static str,
        /// The origin that asked for it.
        asked: Box<Origin>,
    },
    /// Found because the caller's own PATH or environment leads to it.
    Auto {
        /// The entry of PATH, or the variable.
        because: String,
    },
}

impl Origin {
    /// Reports whether the user typed it for this run.
    #[must_use]
    pub fn is_flag(&self) -> bool {
        matches!(self, Self::Flag(_))
    }

    /// Returns the entry of PATH or the variable of the caller that led to it, if no file and no flag asked for it.
    #[must_use]
    pub fn auto_reason(&self) -> Option<&str> {
        match self {
            Self::Auto { because } => Some(because),
            Self::Toolchain { asked, .. } => asked.auto_reason(),
            Self::Standard | Self::Flag(_) | Self::File { .. } => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("always"),
            Self::Flag(flag) => f.write_str(flag),
            Self::File { name, place } => write!(f, "{name}:{place}"),
            Self::Auto { because } => write!(f, "auto, {because}"),
            Self::Toolchain { name, asked } => write!(f, "toolchain {name}, {asked}"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    /// The value that was set.
    pub value: T,
    /// The origin of the value.
    pub from: Origin,
}

impl<T> Sourced<T> {
    /// Puts both together.
    pub fn new(value: T, from: Origin) -> Self {
        Self { value, from }
    }
}
