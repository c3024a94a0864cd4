//! A YAML text as a tree in which every value knows its line and column.
//!
//! The text may come from a hostile workspace, so everything is bounded before it is kept: bytes, nodes, depth. There
//! are no anchors and no aliases at all: profiles do not need them, and they are how a short text becomes a huge one
//! (the "billion laughs" family, e.g. CVE-2019-11253).

use super::origin::Place;
use super::yaml_error;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Options, Spanned};
use std::fmt;

/// Longest document, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// A document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct DocumentError {
    /// The place of the fault.
    pub place: Place,
    /// The fault, and the text to write instead.
    pub message: String,
}

impl DocumentError {
    /// Makes an error at a place.
    pub(crate) fn at(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

/// A value with the place where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub place: Place,
    pub value: Value,
}

/// Value of a YAML node.
#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Place, String, Node)>),
}

impl Value {
    /// Returns the kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "keys with values",
        }
    }
}

/// Reads a whole document. An empty one is an empty map.
pub(crate) fn read(text: &str) -> Result<Node, DocumentError> {
    if text.len() > MAX_BYTES {
        let message = format!("the document has {} bytes; at most {MAX_BYTES} are read", text.len());
        return Err(DocumentError::at(Place { line: 1, column: 1 }, message));
    }
    let parsed: Result<Spanned<Value>, _> = serde_saphyr::from_str_with_options(text, options());
    match parsed {
        Ok(found) => Ok(node(found)),
        Err(error) => {
            let error = error.without_snippet();
            let place = error.location().map(place).unwrap_or_default();
            Err(DocumentError::at(place, yaml_error::sentence(error)))
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_events: 20_000,
            max_nodes: 10_000,
            max_depth: 16,
            max_documents: 1,
            max_total_scalar_bytes: MAX_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        // A tag asks for a type, which no value here has; ignored it would hide what the author meant.
        reject_unsupported_tags: true,
    }
}

fn place(location: serde_saphyr::Location) -> Place {
    Place { line: location.line(), column: location.column() }
}

fn node(found: Spanned<Value>) -> Node {
    Node { place: place(found.referenced), value: found.value }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true or false, a list, or keys with values")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(next) = list.next_element::<Spanned<Value>>()? {
            nodes.push(node(next));
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<Value>>()? {
            let key = node(key);
            let (Value::Text(name) | Value::Number(name)) = key.value else {
                return Err(A::Error::custom("a key must be a word"));
            };
            entries.push((key.place, name, node(map.next_value::<Spanned<Value>>()?)));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place() {
        let tree = read("a: 1\nb:\n  - x\n  - {c: \"2\"}\n").unwrap();
        let Value::Map(entries) = tree.value else { panic!("{tree:?}") };
        let places: Vec<_> = entries.iter().map(|(place, name, node)| (name.as_str(), *place, node.place)).collect();
        let at = |line, column| Place { line, column };
        assert_eq!(places, [("a", at(1, 1), at(1, 4)), ("b", at(2, 1), at(3, 3))]);
        let Value::List(list) = &entries[1].2.value else { panic!() };
        assert_eq!(list[1].place, at(4, 5));
        let Value::Map(inner) = &list[1].value else { panic!() };
        assert!(matches!(&inner[0].2.value, Value::Text(text) if text == "2"), "quotes make text of a number");
    }

    #[test]
    fn a_broken_text_is_refused_with_its_line() {
        for (text, line) in [("a: [1", 1), ("a: 1\n  b: 2\n", 2), ("a: 1\na: 2\n", 2), ("a: 1\n---\nb: 1\n", 0)] {
            let error = read(text).unwrap_err();
            assert!(error.place.line >= line, "{text:?}: {error}");
            assert!(!error.message.is_empty() && !error.message.contains(" at line "), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_our_words_with_line_and_column() {
        for (text, line, said) in [
            ("a: 1\nb: &x 1\n", 2, "anchors (&name) and aliases (*name) are not read here"),
            ("a: 1\nb: *x\n", 2, "anchors (&name) and aliases (*name) are not read here"),
            ("a: 1\n---\nb: 1\n", 2, "a file holds one document"),
            ("a: 1\na: 2\n", 2, "the key a stands here twice"),
            ("b: 1\n<<: {a: 1}\n", 2, "a key << that merges other keys is not read here"),
            ("changes: !!python/object review\n", 1, "the tag "),
            ("changes: !mine review\n", 1, "the tag "),
            ("a: !!int x\n", 1, "write it without a tag"),
            (&("a: ".to_owned() + &"[".repeat(20) + &"]".repeat(20)), 1, "values are nested too deep here"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(said), "{text:?}: {error}");
            assert!(error.place.line == line && error.place.column > 0, "{text:?}: {error}");
            for foreign in ["budget", "breached", "Options", "policy", "{ "] {
                assert!(!error.message.contains(foreign), "{text:?}: {error}");
            }
        }
    }

    #[test]
    fn aliases_depth_and_size_are_bounded() {
        let mut laughs = "a: &a [x, x]\n".to_owned();
        for (from, to) in ('a'..'k').zip('b'..'l') {
            laughs = format!("{laughs}{to}: &{to} [*{from}, *{from}, *{from}, *{from}, *{from}, *{from}]\n");
        }
        assert!(read(&laughs).is_err());
        assert!(read("a: &x 1\nb: 2\n").is_err(), "an anchor alone is refused as well");
        assert!(read(&"[".repeat(2000)).is_err());
        assert!(read(&format!("a: {}", "x".repeat(MAX_BYTES))).is_err());
        assert!(read(&format!("a: [{}]", "1,".repeat(MAX_BYTES / 3))).is_err());
        assert!(read("a: [1, 2]\n").is_ok());
    }
}
