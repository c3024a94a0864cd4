//! JSON with one spelling, so that equal values have equal hashes: no white space, the members of an object ordered
//! by name, as RFC 8785 has it. Numbers are written as they are; the documents here hold whole numbers only, for
//! which that is the RFC's form too.

use serde_json::Value;

/// The one spelling.
#[must_use]
pub fn bytes(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

/// A member of an object that is written piece by piece.
pub enum Member<'a> {
    /// A value that is whole in memory.
    Value(Value),
    /// An array, of which one element at a time is in memory.
    List(Box<dyn Iterator<Item = serde_json::Result<Value>> + 'a>),
}

/// Hands the one spelling of an object to `sink`, piece by piece: the same bytes as [`bytes`], without the whole of a long
/// list in memory.
pub fn pieces(mut members: Vec<(&str, Member<'_>)>, sink: &mut dyn FnMut(&[u8])) -> serde_json::Result<()> {
    members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    for (index, (name, member)) in members.into_iter().enumerate() {
        sink(if index > 0 { b"," } else { b"{" });
        sink(&bytes(&Value::from(name)));
        sink(b":");
        match member {
            Member::Value(value) => sink(&bytes(&value)),
            Member::List(items) => {
                sink(b"[");
                for (index, item) in items.enumerate() {
                    if index > 0 {
                        sink(b",");
                    }
                    sink(&bytes(&item?));
                }
                sink(b"]");
            }
        }
    }
    sink(b"}");
    Ok(())
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            // Sorted here and not by trusting the map: a feature of serde_json that any crate may turn on changes it.
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (index, name) in names.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(Value::String(name.clone()).to_string().as_bytes());
                out.push(b':');
                write(&members[name], out);
            }
            out.push(b'}');
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            out.extend_from_slice(plain.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_ordered_and_nothing_is_added() {
        let value: Value = serde_json::from_str(r#" { "b" : [1, {"z":null, "a":"\u0001é"}], "a": true } "#).unwrap();
        assert_eq!(String::from_utf8(bytes(&value)).unwrap(), r#"{"a":true,"b":[1,{"a":"\u0001é","z":null}]}"#);
    }

    #[test]
    fn pieces_are_the_whole() {
        let value: Value = serde_json::from_str(r#"{"state":"a","changes":[{"b":1,"a":[2]},"x"],"none":[]}"#).unwrap();
        let list = |name: &str| Member::List(Box::new(value[name].as_array().unwrap().iter().cloned().map(Ok)));
        let state = Member::Value(value["state"].clone());
        let mut out = Vec::new();
        let members = vec![("state", state), ("none", list("none")), ("changes", list("changes"))];
        pieces(members, &mut |piece| out.extend_from_slice(piece)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(bytes(&value)).unwrap());
    }
}
