//! Bounds what is kept of a run's report: `nexus ps` reads the endings of all sandboxes, and a command decides how
//! many paths it changes and how long their names are.

use serde_json::{Value, json};

/// Bytes of paths and their descriptions that are kept, of all lists together.
const MAX_LISTS: usize = 256 << 10;
/// The lists that a command can make long, in the order in which they are kept.
const LISTS: &[&str] = &["parked", "conflicts", "changes", "open_for_reading", "unprotected"];

/// Cuts the lists of a report; `changes.omitted` says how many entries are missing.
pub fn bounded(mut report: Value) -> Value {
    let Some(changes) = report.get_mut("changes").and_then(Value::as_object_mut) else { return report };
    let (mut left, mut omitted) = (MAX_LISTS, 0);
    for name in LISTS {
        let Some(list) = changes.get_mut(*name).and_then(Value::as_array_mut) else { continue };
        let fits = |item: &Value| {
            let rest = left.checked_sub(item.to_string().len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let kept = list.iter().map(fits).take_while(|fits| *fits).count();
        omitted += list.len() - kept;
        list.truncate(kept);
    }
    if omitted > 0 {
        changes.insert("omitted".to_owned(), json!(omitted));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_say_by_how_much() {
        let item = |number: usize| json!({"path": format!("{number}-{}", "x".repeat(1000))});
        let many: Vec<_> = (0..5000).map(item).collect();
        let report = json!({"exit_code": 0, "changes": {"state": "parked", "changes": many, "parked": [item(1)]}});
        let cut = bounded(report);
        let kept = cut["changes"]["changes"].as_array().unwrap().len();
        assert!(cut.to_string().len() < 300 << 10 && kept > 200, "{kept}");
        assert_eq!(cut["changes"]["omitted"], 5000 - kept);
        assert_eq!(cut["changes"]["parked"].as_array().unwrap().len(), 1, "what waits is kept first");
        assert_eq!(cut["changes"]["state"], "parked");
    }

    #[test]
    fn short_lists_and_other_documents_stay() {
        for report in [json!({"changes": {"changes": [1, 2], "parked": []}}), json!({"error": "x"}), Value::Null] {
            assert_eq!(bounded(report.clone()), report);
        }
    }
}
