//! The hash that tells one report of an end from another.

use nexus_model::canonical;
use nexus_model::digest::Digest;
use serde_json::Value;

/// Members of `finished` that may differ between a report and its repetition.
const LEFT_OUT: &[&str] = &["finished_at", "timing", "receipt"];

/// Returns the hash of the body of `finished`: its canonical JSON without the time, the timing and the receipt, which a daemon
/// that starts again writes afresh. A member that is `null` is absent.
#[must_use]
pub fn hash(finished: &Value) -> Digest {
    let mut kept = finished.clone();
    if let Some(members) = kept.as_object_mut() {
        members.retain(|name, value| !value.is_null() && !LEFT_OUT.contains(&name.as_str()));
    }
    Digest::of(&canonical::bytes(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_of_the_same_end_has_the_same_hash() {
        let first =
            json!({"status": "failed", "exit_code": 1, "finished_at": "2026-01-01T00:00:00Z", "timing": {"ms": 1}});
        let again = json!({"receipt": {}, "exit_code": 1, "reason": null, "status": "failed", "finished_at": "2026-01-02T00:00:00Z"});
        assert_eq!(hash(&first), hash(&again));
    }

    #[test]
    fn a_report_of_another_end_has_another_hash() {
        let first = json!({"status": "failed", "exit_code": 1});
        for other in [
            json!({"status": "failed", "exit_code": 2}),
            json!({"status": "succeeded", "exit_code": 1}),
            json!({"status": "failed"}),
            json!({"status": "failed", "exit_code": 1, "x": 1}),
        ] {
            assert_ne!(hash(&first), hash(&other), "{other}");
        }
    }
}
