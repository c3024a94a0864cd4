//! A DNS name in its one canonical spelling.
//!
//! Two spellings of one name that a rule and a dialler read differently are a way around every deny rule
//! (CVE-2022-24825: a trailing dot; upper case; an internationalised label against its `xn--` form). So text becomes a
//! [`Name`] once, here, and everything after compares bytes.

use crate::net::rules::literal;
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::fmt;

/// Maximum length of a text that is read, in bytes; IDNA can shorten a text, but no honest name is longer.
const MAX_INPUT: usize = 1024;

/// Reason why a text cannot be read as a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is empty.
    #[error("the host is empty")]
    Empty,
    /// Longer than any name.
    #[error("the host has {bytes} bytes, a name has at most 253")]
    TooLong {
        /// The length of the host in bytes.
        bytes: usize,
    },
    /// The bytes are not UTF-8.
    #[error("the host is not text")]
    NotText,
    /// A byte that no name and no address contains.
    #[error("the host contains {character:?}")]
    Forbidden {
        /// The first such character.
        character: char,
    },
    /// A label is empty, too long, begins or ends with a hyphen, or is not a valid IDNA label.
    #[error("the host is not a valid DNS name (letters, digits and inner hyphens; labels of 1 to 63, 253 in all)")]
    NotAName,
    /// The last label is a number, so that programs read an address, but the text is not an address.
    #[error("the host looks like an address but is none")]
    NotAnAddress,
    /// An address where only a name can stand.
    #[error("the host is an address, not a name")]
    Address,
}

/// A canonical DNS name: ASCII, lower case, no trailing dot, LDH labels, never an address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

impl Name {
    /// Reads a name in any spelling. An address in any spelling is refused with [`HostError::Address`].
    pub fn parse(text: &str) -> Result<Self, HostError> {
        match canonical(text)? {
            Canonical::Name(name) => Ok(name),
            Canonical::V4(_) => Err(HostError::Address),
        }
    }

    /// Returns the canonical text, without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text for a resolver: with the trailing dot, so that no search domain is ever appended.
    pub fn fqdn(&self) -> String {
        format!("{}.", self.0)
    }

    /// Returns the names above this one, nearest first: `b.c` and `c` for `a.b.c`.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('.').map(|(dot, _)| &self.0[dot + 1..])
    }

    /// Returns the number of labels.
    pub fn labels(&self) -> usize {
        self.0.split('.').count()
    }
}

/// A name or an IPv4 address: the possible results of a text without colons and brackets.
pub(in crate::net) enum Canonical {
    Name(Name),
    V4(std::net::Ipv4Addr),
}

/// Reads a text as a name or an IPv4 address. No other function does.
pub(in crate::net) fn canonical(text: &str) -> Result<Canonical, HostError> {
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.len() > MAX_INPUT {
        return Err(HostError::TooLong { bytes: text.len() });
    }
    // Looked at before IDNA, which would drop or map some of them: an error that names the character helps more.
    if let Some(character) = text.chars().find(|c| forbidden(*c)) {
        return Err(HostError::Forbidden { character });
    }
    // Non-transitional UTS 46; first and last hyphens are refused, inner double ones are not (they exist in the wild).
    let ascii = Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::VerifyAllowRootDot)
        .map_err(|_| HostError::NotAName)?;
    let ascii = ascii.strip_suffix('.').unwrap_or(&ascii);
    if ascii.is_empty() || ascii.len() > 253 {
        return Err(HostError::NotAName);
    }
    // After IDNA, because full-width digits become digits there.
    if literal::ends_in_a_number(ascii) {
        return literal::parse_v4(ascii).map(Canonical::V4).ok_or(HostError::NotAnAddress);
    }
    Ok(Canonical::Name(Name(ascii.into())))
}

/// Reports whether `c` cannot be in a host: controls, white space, and separators of a URL or a zone.
fn forbidden(c: char) -> bool {
    c.is_control() || c.is_whitespace() || "%@[]/\\:?#<>\"'`{}|^*,;&=+$!()~_".contains(c)
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}
