//! Reads the arguments of a tool. Pure.

use nexus_caller::failure::Failure;
use serde_json::{Map, Value};

/// The arguments of one call; a name that no tool has is refused at the end.
#[derive(Debug)]
pub struct Params {
    left: Map<String, Value>,
}

fn wrong(name: &str, what: &str) -> Failure {
    Failure::usage("arguments", format!("The argument {name} must be {what}"), "See the schema of the tool.")
}

impl Params {
    /// Takes the arguments of a call; none at all count as an empty object.
    pub fn new(arguments: Value) -> Result<Self, Failure> {
        match arguments {
            Value::Object(left) => Ok(Self { left }),
            Value::Null => Ok(Self { left: Map::new() }),
            _ => Err(wrong("list", "an object")),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "a string")),
        }
    }

    /// Takes a text that must be there.
    pub fn needed(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| wrong(name, "there"))
    }

    /// Takes a number that is not negative.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| wrong(name, "a whole number that is not negative")),
        }
    }

    /// Takes yes or no; what is not there is no.
    pub fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    /// Takes a list of texts; `None` where it is not there.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let Value::Array(all) = value else { return Err(wrong(name, "a list of strings")) };
        let texts = all.into_iter().map(|one| match one {
            Value::String(text) => Ok(text),
            _ => Err(wrong(name, "a list of strings")),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Refuses what is left: a mistyped limit must not be quietly ignored.
    pub fn end(self) -> Result<(), Failure> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => {
                let message = format!("The tool has no argument {name:?}");
                Err(Failure::usage("arguments", message, "See the schema of the tool."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_have_their_types_and_no_others_are_taken() {
        let mut params =
            Params::new(json!({"a": "x", "n": 3, "f": true, "l": ["p"], "null": null, "typo": 1})).unwrap();
        assert_eq!(params.text("a").unwrap().as_deref(), Some("x"));
        assert_eq!(params.number("n").unwrap(), Some(3));
        assert!(params.flag("f").unwrap() && !params.flag("g").unwrap());
        assert_eq!(params.texts("l").unwrap(), Some(vec!["p".to_owned()]));
        assert_eq!(params.text("null").unwrap(), None);
        assert!(params.end().unwrap_err().message.contains("typo"));
        for wrong in [json!({"a": 1}), json!({"a": ["x"]})] {
            assert!(Params::new(wrong).unwrap().text("a").is_err());
        }
        for wrong in [json!({"n": -1}), json!({"n": 1.5}), json!({"n": "1"})] {
            assert!(Params::new(wrong).unwrap().number("n").is_err());
        }
        assert!(Params::new(json!({"l": [1]})).unwrap().texts("l").is_err());
        assert!(Params::new(json!([])).is_err());
        assert!(Params::new(json!({})).unwrap().needed("a").is_err());
    }
}
