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
}
