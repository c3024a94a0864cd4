//! Names of changes, as reports write them: `{"text": …}`, or `{"base64": …}` where a name is not UTF-8. Pure.

use serde_json::Value;

/// Returns the name as text. One that is not UTF-8 is shown as it is written, and no tool takes it.
pub fn text(name: &Value) -> String {
    match name.get("text").unwrap_or(name) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the changes with their names as plain text where they are UTF-8.
pub fn plain(changes: &Value) -> Vec<Value> {
    let mut all = changes.as_array().cloned().unwrap_or_default();
    for change in &mut all {
        if let Some(text) = change["path"].get("text").cloned() {
            change["path"] = text;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_plain_where_they_are_utf_8() {
        let changes =
            json!([{ "path": { "text": "a" }, "size": 1 }, { "path": { "base64": "/w==" } }, { "path": "b" }]);
        let expected =
            [json!({ "path": "a", "size": 1 }), json!({ "path": { "base64": "/w==" } }), json!({ "path": "b" })];
        assert_eq!(plain(&changes), expected);
        assert_eq!(plain(&Value::Null), [Value::Null; 0]);
        let texts: Vec<String> = plain(&changes).iter().map(|change| text(&change["path"])).collect();
        assert_eq!(texts, ["a", r#"{"base64":"/w=="}"#, "b"]);
        assert_eq!(text(&json!({ "text": "c" })), "c");
    }
}
