//! Exactly what an approval of a directive is for.

use crate::digest::Digest;
use crate::ids::TerritoryId;
use crate::spec::DirectiveSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A directive as it is handed out, and where it may run. Command, shell, directory, environment, permissions, limits, the
/// facility and the directive's own id stand in the specification: an approval lets no other directive run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveSubject {
    /// The specification, as a daemon gets it.
    pub spec: DirectiveSpec,
    /// Labels that the territory must have.
    #[serde(default, deserialize_with = "crate::absent::or_default")]
    pub labels: BTreeMap<String, String>,
    /// The only territory that may run it; absent when each one with the labels may.
    #[serde(default)]
    pub territory_id: Option<TerritoryId>,
}

impl DirectiveSubject {
    /// Returns the hash that an approval names; `None` for a specification that has no canonical JSON.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        Digest::of_json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_part_of_a_directive_and_its_place_is_part_of_what_is_approved() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let whole = json!({
            "spec": {
                "directive_id": id, "facility": {"id": id}, "command": "make", "cwd": "a", "timeout_seconds": 60,
                "capabilities": {"net": {"mode": "none"}, "fs": {"read": [], "write": []}, "env": {"A": "1"}},
            },
            "labels": {"zone": "a"}, "territory_id": id,
        });
        let digest = |value: &serde_json::Value| {
            serde_json::from_value::<DirectiveSubject>(value.clone()).unwrap().digest().unwrap()
        };
        let first = digest(&whole);
        assert_eq!(
            digest(&serde_json::to_value(serde_json::from_value::<DirectiveSubject>(whole.clone()).unwrap()).unwrap()),
            first
        );
        let other = "01890a5d-ac96-774b-bcce-b302099a8058";
        for (place, value) in [
            ("/spec/directive_id", json!(other)),
            ("/spec/facility/id", json!(other)),
            ("/spec/command", json!("make ")),
            ("/spec/cwd", json!("b")),
            ("/spec/timeout_seconds", json!(61)),
            ("/spec/capabilities/net/mode", json!("unrestricted")),
            ("/spec/capabilities/fs/write", json!(["workspace:**"])),
            ("/spec/capabilities/env/A", json!("2")),
            ("/labels/zone", json!("b")),
            ("/territory_id", json!(other)),
            ("/territory_id", json!(null)),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(place).unwrap() = value;
            assert_ne!(digest(&changed), first, "{place}");
        }
    }
}
