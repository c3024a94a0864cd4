//! Gets the value of a secret from its provider.

use crate::command::{self, CommandError};
use crate::file::{self, FileError};
use crate::reference::{Reference, Request};
use crate::source::{Source, Warning};
use crate::value::{MAX_BYTES, MIN_BYTES, SecretValue};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use zeroize::Zeroizing;

/// A value with what a person should know about its place.
#[derive(Debug)]
pub struct Fetched {
    /// Bytes of the secret.
    pub value: SecretValue,
    /// A weakness of its place that refuses nothing.
    pub warning: Option<Warning>,
}

/// The value of a secret could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The variable is not set.
    #[error("the secret {name} is to come from the variable {}, which is not set", variable.display())]
    Unset {
        /// The name of the secret.
        name: String,
        /// Name of the variable.
        variable: OsString,
    },
    /// The file cannot be used.
    #[error("the secret {name} cannot be read from its file: {source}")]
    File {
        /// The name of the secret.
        name: String,
        /// Answer of the provider.
        source: FileError,
    },
    /// The program gave no value.
    #[error("the secret {name} cannot be had from its command: {source}")]
    Command {
        /// The name of the secret.
        name: String,
        /// Answer of the provider.
        source: CommandError,
    },
    /// The value is shorter than what can be redacted.
    #[error(
        "the secret {name} has {bytes} bytes without the white space around it; output cannot be redacted for less than {MIN_BYTES}"
    )]
    TooShort {
        /// The name of the secret.
        name: String,
        /// The size without the white space around it.
        bytes: usize,
    },
    /// The value is longer than what a run carries.
    #[error("the secret {name} has more than {MAX_BYTES} bytes")]
    TooLong {
        /// The name of the secret.
        name: String,
    },
}

impl FetchError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unset { .. } => "secret_unset",
            Self::File { source: FileError::InWorkspace { .. }, .. }
            | Self::Command { source: CommandError::InWorkspace { .. }, .. } => "secret_in_workspace",
            Self::File { .. } => "secret_file",
            Self::Command { .. } => "secret_command",
            Self::TooShort { .. } => "secret_short",
            Self::TooLong { .. } => "secret_long",
        }
    }
}

/// Gets the value of one secret. Nothing is changed but what a program of the provider `cmd` changes.
pub fn fetch(request: &Request, source: &Source<'_>) -> Result<Fetched, FetchError> {
    let name = || request.name.clone();
    let (bytes, warning) = match &request.reference {
        Reference::Env(variable) => match source.variables.get(variable) {
            Some(value) if !value.is_empty() => (Zeroizing::new(value.as_bytes().to_vec()), None),
            _ => return Err(FetchError::Unset { name: name(), variable: variable.clone() }),
        },
        Reference::File(path) => {
            file::read(path, source).map_err(|source| FetchError::File { name: name(), source })?
        }
        Reference::Command(words) => {
            let bytes = command::run(words, source).map_err(|source| FetchError::Command { name: name(), source })?;
            (bytes, None)
        }
    };
    if bytes.len() > MAX_BYTES {
        return Err(FetchError::TooLong { name: name() });
    }
    match bytes.trim_ascii().len() {
        short if short < MIN_BYTES => Err(FetchError::TooShort { name: name(), bytes: short }),
        _ => Ok(Fetched { value: SecretValue::new(bytes), warning }),
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
