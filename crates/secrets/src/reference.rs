//! Reads `NAME=provider:reference`, the text that names a secret and the provider that has its value.
//!
//! An error shows nothing after the `=`: a person who writes the value there by mistake must not find it in a log.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// A place that has the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The content of a file of the host.
    File(PathBuf),
    /// A variable of the caller's environment.
    Env(OsString),
    /// The standard output of a program of the host: its words, without a shell.
    Command(Vec<String>),
}

impl Reference {
    /// Returns the name of the provider, as it is written before the colon.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Env(_) => "env",
            Self::Command(_) => "cmd",
        }
    }
}

/// A secret that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name of the secret, which is also that of its file inside.
    pub name: String,
    /// The place that has its value.
    pub reference: Reference,
}

/// A text that names no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text has no name, or no `=`.
    #[error("it has to be NAME=PROVIDER:REFERENCE")]
    Form,
    /// The name cannot be the name of a file inside.
    #[error(
        "the name {name:?} may have letters, digits, '.', '_' and '-' only, no '.' or '-' at its start, and at most {MAX_NAME} of them"
    )]
    Name {
        /// The name as it was written.
        name: String,
    },
    /// The provider does not exist.
    #[error("{name} names no provider that exists")]
    Provider {
        /// The name of the secret.
        name: String,
    },
    /// The reference is empty or cannot be read.
    #[error("{name}: {why}")]
    Reference {
        /// The name of the secret.
        name: String,
        /// The reason, which shows nothing of the reference.
        why: &'static str,
    },
}

impl ParseError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "secret"
    }
}

impl Request {
    /// Reads the text of a flag.
    pub fn parse(text: &OsStr) -> Result<Self, ParseError> {
        let bytes = text.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=').ok_or(ParseError::Form)?;
        let (name, rest) = (&bytes[..at], &bytes[at + 1..]);
        let name = check_name(name)?;
        let (provider, reference) = match rest.iter().position(|byte| *byte == b':') {
            Some(colon) => (&rest[..colon], &rest[colon + 1..]),
            None => return Err(ParseError::Provider { name }),
        };
        let refused = |why| ParseError::Reference { name: name.clone(), why };
        let reference = match provider {
            b"file" if reference.is_empty() => return Err(refused("file: needs the path of a file")),
            b"file" => Reference::File(Path::new(OsStr::from_bytes(reference)).to_owned()),
            b"env" if reference.is_empty() || reference.contains(&b'=') => {
                return Err(refused("env: needs the name of a variable"));
            }
            b"env" => Reference::Env(OsString::from_vec(reference.to_vec())),
            b"cmd" => {
                let text = str::from_utf8(reference).map_err(|_| refused("cmd: needs a command in UTF-8"))?;
                let words = shlex::split(text).ok_or_else(|| refused("cmd: has a quote that is not closed"))?;
                if words.first().is_none_or(String::is_empty) {
                    return Err(refused("cmd: needs a command"));
                }
                Reference::Command(words)
            }
            _ => return Err(ParseError::Provider { name }),
        };
        Ok(Self { name, reference })
    }
}

fn check_name(name: &[u8]) -> Result<String, ParseError> {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let begins = name.first().is_some_and(|byte| !b".-".contains(byte));
    let text = String::from_utf8_lossy(name).into_owned();
    if begins && name.len() <= MAX_NAME && name.iter().all(is_fine) {
        return Ok(text);
    }
    if name.is_empty() { Err(ParseError::Form) } else { Err(ParseError::Name { name: text }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, ParseError> {
        Request::parse(OsStr::new(text))
    }

    #[test]
    fn each_provider_has_its_form() {
        let of = |text: &str| parse(text).unwrap().reference;
        assert_eq!(of("A=file:/x/y:z=1"), Reference::File("/x/y:z=1".into()));
        assert_eq!(of("a.b-c_1=env:TOKEN"), Reference::Env("TOKEN".into()));
        assert_eq!(
            of("A=cmd:op read 'op://a vault/x'"),
            Reference::Command(vec!["op".into(), "read".into(), "op://a vault/x".into()])
        );
        assert_eq!(["A=file:x", "A=env:x", "A=cmd:x"].map(|text| of(text).provider()), ["file", "env", "cmd"]);
    }

    #[test]
    fn a_wrong_text_is_refused_and_not_shown() {
        for text in [
            "",
            "A",
            "=file:/x",
            "A=hunter2",
            "A=hunter2:x",
            "A=file:",
            "A=env:",
            "A=env:hunter2=x",
            "A=cmd:",
            "A=cmd:''",
            "A=cmd:'hunter2",
            "A/b=hunter2:x",
            "..=file:/x",
            "-a=file:/x",
            "A=FILE:/hunter2",
            "A B=file:/x",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.code(), "secret");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(parse(&format!("{}=file:/x", "n".repeat(65))).is_err());
        assert!(parse(&format!("{}=file:/x", "n".repeat(64))).is_ok());
    }
}
