//! Labels of a territory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Labels by name. A list of `name=value` or `name` is read too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(from = "Written")]
pub struct Labels(pub BTreeMap<String, String>);

/// Labels as a program may write them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Map(BTreeMap<String, serde_json::Value>),
    List(Vec<String>),
}

impl From<Written> for Labels {
    fn from(written: Written) -> Self {
        Self(match written {
            Written::Map(map) => map.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect(),
            Written::List(list) => list
                .into_iter()
                .map(|item| match item.split_once('=') {
                    Some((name, value)) => (name.to_owned(), value.to_owned()),
                    None => (item, String::new()),
                })
                .collect(),
        })
    }
}

fn text(value: serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text),
        plain @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => Some(plain.to_string()),
        _ => None,
    }
}

impl Labels {
    /// Returns whether every label of `wanted` stands here with the same value.
    #[must_use]
    pub fn contain(&self, wanted: &Self) -> bool {
        wanted.0.iter().all(|(name, value)| self.0.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_a_map_and_from_a_list() {
        let map: Labels = serde_json::from_str(r#"{"zone":"a","gpu":true,"n":3,"deep":{}}"#).unwrap();
        let list: Labels = serde_json::from_str(r#"["zone=a","gpu=true","n=3"]"#).unwrap();
        assert_eq!(map, list);
        assert!(map.contain(&serde_json::from_str(r#"["zone=a"]"#).unwrap()));
        assert!(!map.contain(&serde_json::from_str(r#"["zone=b"]"#).unwrap()));
    }
}
