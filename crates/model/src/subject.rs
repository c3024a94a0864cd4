//! Exactly what an approval of a directive, or of a connection of one, is for.

use crate::digest::Digest;
use crate::directive::Fence;
use crate::ids::{DirectiveId, TerritoryId};
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

/// A connection of a directive that runs. The claim and the machine are part of it: no answer outlives the claim that asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSubject {
    /// Directive whose command connects.
    pub directive_id: DirectiveId,
    /// Number of the claim.
    pub fence: Fence,
    /// Territory on which the command runs.
    pub territory_id: TerritoryId,
    /// Destination, as `host:port`.
    pub destination: String,
    /// The only program that may connect, where the network policy tells programs apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Hash of the specification, with command, directory, paths, network and names of secrets.
    pub spec: Digest,
}

impl ConnectionSubject {
    /// Returns the hash that an approval names; `None` for a subject that has no canonical JSON.
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

    #[test]
    fn each_part_of_a_connection_is_part_of_what_is_approved() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let other = "01890a5d-ac96-774b-bcce-b302099a8058";
        let whole = json!({
            "directive_id": id, "fence": 1, "territory_id": id, "destination": "a.test:443", "program": "/usr/bin/curl",
            "spec": Digest::of(b"a"),
        });
        let digest = |value: &serde_json::Value| {
            serde_json::from_value::<ConnectionSubject>(value.clone()).unwrap().digest().unwrap()
        };
        let first = digest(&whole);
        for (name, value) in [
            ("directive_id", json!(other)),
            ("fence", json!(2)),
            ("territory_id", json!(other)),
            ("destination", json!("a.test:444")),
            ("destination", json!("b.test:443")),
            ("program", json!("/usr/bin/wget")),
            ("program", json!(null)),
            ("spec", json!(Digest::of(b"b"))),
        ] {
            let mut changed = whole.clone();
            changed[name] = value;
            assert_ne!(digest(&changed), first, "{name}");
        }
    }
}
