//! The documents of `docs/protocol`, the table of routes and the types agree.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use nexus_api::routes::{Access, CONDUITS, MOTHERSHIP, Route};
use nexus_api::{ErrorBody, conduits, mothership};
use nexus_model::capability::{Capabilities, FsCapability, NetCapability};
use nexus_model::spec::{ArtifactRules, DirectiveLimits, DirectiveSpec, FacilityRef, RuntimeRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CONDUITS_TEXT: &str = include_str!("../../../docs/protocol/conduits_api_openapi.yaml");
const MOTHERSHIP_TEXT: &str = include_str!("../../../docs/protocol/mothership_api_openapi.yaml");
const NET_TEXT: &str = include_str!("../../../docs/protocol/directivespec_capabilities_net.schema.v1.json");

fn document(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Operations of a document: id, method, path, rights, whether a later part brings it.
fn operations(document: &Value) -> BTreeSet<(String, String, String, String, bool)> {
    let mut found = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let security = operation["security"].as_array().unwrap();
            let names: Vec<&str> =
                security.iter().flat_map(|entry| entry.as_object().unwrap().keys()).map(String::as_str).collect();
            let roles: Vec<&str> =
                operation["x-roles"].as_array().into_iter().flatten().map(|role| role.as_str().unwrap()).collect();
            let access = format!("{} {}", names.join("+"), roles.join(","));
            let later = operation.get("x-issue").is_some();
            found.insert((id, method.to_uppercase(), path.clone(), access, later));
        }
    }
    found
}

fn listed(routes: &[Route]) -> BTreeSet<(String, String, String, String, bool)> {
    let access = |access: Access| match access {
        Access::Public | Access::EnrollmentToken => " ".to_owned(),
        Access::Territory => "territory ".to_owned(),
        Access::Directive => "directiveToken+territory ".to_owned(),
        Access::Roles(roles) => {
            format!("apiKey {}", roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(","))
        }
    };
    let row = |route: &Route| {
        (route.id.to_owned(), route.method.name().to_owned(), route.path.to_owned(), access(route.access), route.later)
    };
    routes.iter().map(row).collect()
}

/// The order of the members of a security entry says nothing.
fn sorted(set: BTreeSet<(String, String, String, String, bool)>) -> BTreeSet<(String, String, String, String, bool)> {
    set.into_iter()
        .map(|(id, method, path, access, later)| {
            let (names, roles) = access.split_once(' ').unwrap();
            let names: BTreeSet<&str> = names.split('+').collect();
            let access = format!("{} {roles}", names.into_iter().collect::<Vec<_>>().join("+"));
            (id, method, path, access, later)
        })
        .collect()
}

#[test]
fn every_route_stands_in_its_document_with_its_rights() {
    assert_eq!(sorted(operations(&document(CONDUITS_TEXT))), sorted(listed(CONDUITS)));
    assert_eq!(sorted(operations(&document(MOTHERSHIP_TEXT))), sorted(listed(MOTHERSHIP)));
}

/// A value with every member of a schema.
fn sample(schemas: &Map<String, Value>, schema: &Value) -> Value {
    // The second form of a member that may be absent is null.
    if let Some(form) = schema["anyOf"].get(0) {
        return sample(schemas, form);
    }
    if let Some(name) = schema["$ref"].as_str() {
        return match name.strip_prefix("#/components/schemas/") {
            Some(name) => sample(schemas, &schemas[name]),
            None => {
                json!({"mode": "allowlist", "preset": "strict", "allow": ["example.com:443"], "ttl_seconds": 5, "x_ext": {"x_a": 1}})
            }
        };
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[0].clone();
    }
    if let Some(example) = schema.get("example") {
        return example.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match (kind, schema["format"].as_str(), schema["contentEncoding"].as_str()) {
        (Some("string"), Some("uuid"), _) => json!("01890a5d-ac96-774b-bcce-b302099a8057"),
        (Some("string"), Some("date-time"), _) => json!("2026-01-01T00:00:00.000Z"),
        (Some("string"), _, Some(_)) => json!("YQ=="),
        (Some("string"), ..) => json!("text"),
        (Some("integer"), ..) => json!(1),
        (Some("boolean"), ..) => json!(true),
        (Some("array"), ..) => json!([sample(schemas, &schema["items"])]),
        (Some("object"), ..) if schema.get("properties").is_some() => {
            let members = schema["properties"].as_object().unwrap();
            members.iter().map(|(name, member)| (name.clone(), sample(schemas, member))).collect()
        }
        (Some("object"), ..) if schema["additionalProperties"].is_object() => {
            json!({"a": sample(schemas, &schema["additionalProperties"])})
        }
        _ => json!({"any": "thing"}),
    }
}

/// Reads a value by a type and writes it again.
type Pass = fn(Value) -> Value;

fn pass<T: DeserializeOwned + Serialize>(value: Value) -> Value {
    let text = value.to_string();
    serde_json::to_value(serde_json::from_value::<T>(value).unwrap_or_else(|error| panic!("{error}: {text}"))).unwrap()
}

fn conduits_types() -> BTreeMap<&'static str, Pass> {
    use conduits::{
        ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, CaAnswer, Capacity, CertificateAnswer,
        CertificateRequest, ClaimApproval, ClaimedDirective, ConnectionAnswer, ConnectionRequest, DirectiveBeat,
        DirectiveVerdict, EnrollAnswer, EnrollMetadata, EnrollRequest, EventsAnswer, EventsRequest, FinishedAnswer,
        FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkAnswer, LogChunkRequest, PollAnswer, PollRequest,
        Progress, StartedAnswer, StartedRequest, TerritoryConfig, TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
    };
    BTreeMap::from([
        ("ArtifactAnswer", pass::<ArtifactAnswer> as Pass),
        ("ArtifactChunkRequest", pass::<ArtifactChunkRequest>),
        ("ArtifactRequest", pass::<ArtifactRequest>),
        ("Artifacts", pass::<ArtifactRules>),
        ("CaAnswer", pass::<CaAnswer>),
        ("Capabilities", pass::<Capabilities>),
        ("Capacity", pass::<Capacity>),
        ("CertificateAnswer", pass::<CertificateAnswer>),
        ("CertificateRequest", pass::<CertificateRequest>),
        ("ClaimApproval", pass::<ClaimApproval>),
        ("ClaimedDirective", pass::<ClaimedDirective>),
        ("ConnectionAnswer", pass::<ConnectionAnswer>),
        ("ConnectionRequest", pass::<ConnectionRequest>),
        ("ConnectionSubject", pass::<nexus_model::subject::ConnectionSubject>),
        ("DirectiveBeat", pass::<DirectiveBeat>),
        ("DirectiveSpec", pass::<DirectiveSpec>),
        ("DirectiveVerdict", pass::<DirectiveVerdict>),
        ("EnrollAnswer", pass::<EnrollAnswer>),
        ("EnrollMetadata", pass::<EnrollMetadata>),
        ("EnrollRequest", pass::<EnrollRequest>),
        ("Error", pass::<ErrorBody>),
        ("EventsAnswer", pass::<EventsAnswer>),
        ("EventsRequest", pass::<EventsRequest>),
        ("FacilityRef", pass::<FacilityRef>),
        ("FinishedAnswer", pass::<FinishedAnswer>),
        ("FinishedRequest", pass::<FinishedRequest>),
        ("FsCapability", pass::<FsCapability>),
        ("HeartbeatAnswer", pass::<HeartbeatAnswer>),
        ("HeartbeatRequest", pass::<HeartbeatRequest>),
        ("Limits", pass::<DirectiveLimits>),
        ("LogChunkAnswer", pass::<LogChunkAnswer>),
        ("LogChunkRequest", pass::<LogChunkRequest>),
        ("PollAnswer", pass::<PollAnswer>),
        ("PollRequest", pass::<PollRequest>),
        ("Progress", pass::<Progress>),
        ("Runtime", pass::<RuntimeRequest>),
        ("StartedAnswer", pass::<StartedAnswer>),
        ("StartedRequest", pass::<StartedRequest>),
        ("TerritoryConfig", pass::<TerritoryConfig>),
        ("TerritoryHeartbeatAnswer", pass::<TerritoryHeartbeatAnswer>),
        ("TerritoryHeartbeatRequest", pass::<TerritoryHeartbeatRequest>),
    ])
}

fn mothership_types() -> BTreeMap<&'static str, Pass> {
    use mothership::{
        AccountPolicy, ApiKey, ApiKeyList, Approval, ApprovalList, ApproveRequest, Artifact, ArtifactList,
        CancelRequest, CreateApiKey, CreateDirective, CreateEnrollmentToken, CreateFacility, CreatedApiKey,
        CreatedDirective, CreatedFacility, Directive, DirectiveEvent, DirectiveList, DirectiveStateAnswer,
        EffectivePolicy, EnrollmentToken, Facility, FacilityList, LogChunk, LogChunks, PolicyAnswer, PolicyInfo,
        PolicyList, PolicyValue, PutPolicy, RejectRequest, RequestedCapabilities, Requirements, Territory,
        TerritoryList,
    };
    BTreeMap::from([
        ("AccountPolicy", pass::<AccountPolicy> as Pass),
        ("ApiKey", pass::<ApiKey>),
        ("ApiKeyList", pass::<ApiKeyList>),
        ("Approval", pass::<Approval>),
        ("ApprovalList", pass::<ApprovalList>),
        ("ApproveRequest", pass::<ApproveRequest>),
        ("Artifact", pass::<Artifact>),
        ("ArtifactList", pass::<ArtifactList>),
        ("Artifacts", pass::<ArtifactRules>),
        ("AuditActor", pass::<nexus_api::audit::Actor>),
        ("AuditEvent", pass::<nexus_api::audit::AuditEvent>),
        ("AuditEventList", pass::<nexus_api::audit::AuditEventList>),
        ("AuditHead", pass::<nexus_api::audit::AuditHead>),
        ("CancelRequest", pass::<CancelRequest>),
        ("Capacity", pass::<conduits::Capacity>),
        ("CreateApiKey", pass::<CreateApiKey>),
        ("CreateDirective", pass::<CreateDirective>),
        ("CreateEnrollmentToken", pass::<CreateEnrollmentToken>),
        ("CreateFacility", pass::<CreateFacility>),
        ("CreatedApiKey", pass::<CreatedApiKey>),
        ("CreatedDirective", pass::<CreatedDirective>),
        ("CreatedFacility", pass::<CreatedFacility>),
        ("Directive", pass::<Directive>),
        ("DirectiveEvent", pass::<DirectiveEvent>),
        ("DirectiveList", pass::<DirectiveList>),
        ("DirectiveStateAnswer", pass::<DirectiveStateAnswer>),
        ("EffectivePolicy", pass::<EffectivePolicy>),
        ("EnrollmentToken", pass::<EnrollmentToken>),
        ("Error", pass::<ErrorBody>),
        ("EventList", pass::<nexus_api::events::EventList>),
        ("Facility", pass::<Facility>),
        ("FacilityList", pass::<FacilityList>),
        ("FsCapability", pass::<FsCapability>),
        ("Limits", pass::<DirectiveLimits>),
        ("LogChunk", pass::<LogChunk>),
        ("LogChunks", pass::<LogChunks>),
        ("PolicyAnswer", pass::<PolicyAnswer>),
        ("PolicyInfo", pass::<PolicyInfo>),
        ("PolicyList", pass::<PolicyList>),
        ("PolicyValue", pass::<PolicyValue>),
        ("PutPolicy", pass::<PutPolicy>),
        ("RejectRequest", pass::<RejectRequest>),
        ("RequestedCapabilities", pass::<RequestedCapabilities>),
        ("Requirements", pass::<Requirements>),
        ("SignedHead", pass::<nexus_api::audit_head::SignedHead>),
        ("Territory", pass::<Territory>),
        ("TerritoryList", pass::<TerritoryList>),
    ])
}

fn hold(text: &str, types: &BTreeMap<&'static str, Pass>) {
    let document = document(text);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let with_members: BTreeSet<&str> = schemas
        .iter()
        .filter(|(_, schema)| schema.get("properties").is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(with_members, types.keys().copied().collect(), "each schema with members has a type");
    let mut refused = Vec::new();
    for (name, pass) in types {
        let whole = sample(schemas, &schemas[*name]);
        let pass = *pass;
        assert_eq!(pass(whole.clone()), whole, "{name}: a member is lost, renamed or of another form");
        // The required members alone are enough, and unknown ones are ignored where the schema says so.
        let required: BTreeSet<&str> = schemas[*name]["required"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|member| member.as_str().unwrap())
            .collect();
        let mut small = whole.clone();
        small.as_object_mut().unwrap().retain(|member, _| required.contains(member.as_str()));
        pass(small.clone());
        // Null means absent.
        for member in whole.as_object().unwrap().keys().filter(|member| !required.contains(member.as_str())) {
            let mut null = small.clone();
            null[member] = Value::Null;
            if std::panic::catch_unwind(|| pass(null)).is_err() {
                refused.push(format!("{name}.{member}"));
            }
        }
        if schemas[*name].get("additionalProperties").is_none() {
            small["from_the_future"] = json!(1);
            pass(small.clone());
        }
    }
    assert_eq!(refused, [""; 0], "null means absent");
}

#[test]
fn every_schema_of_conduits_is_the_form_of_its_type() {
    hold(CONDUITS_TEXT, &conduits_types());
}

#[test]
fn every_schema_of_mothership_is_the_form_of_its_type() {
    hold(MOTHERSHIP_TEXT, &mothership_types());
}

/// Every object schema in a document, at any depth.
fn objects<'a>(schema: &'a Value, found: &mut Vec<&'a Value>) {
    match schema {
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object) {
                found.push(schema);
            }
            members.values().for_each(|member| objects(member, found));
        }
        Value::Array(list) => list.iter().for_each(|one| objects(one, found)),
        _ => {}
    }
}

#[test]
fn a_member_that_may_be_absent_may_be_null() {
    for text in [CONDUITS_TEXT, MOTHERSHIP_TEXT] {
        let document = document(text);
        let mut found = Vec::new();
        objects(&document["components"]["schemas"], &mut found);
        assert!(found.len() > 20);
        for schema in found {
            let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
            for (name, member) in schema["properties"].as_object().unwrap() {
                let is_required = required.iter().any(|one| *one == name);
                let has_null = |list: &Value| list.as_array().is_some_and(|list| list.contains(&json!("null")));
                let takes_null = has_null(&member["type"])
                    || member["anyOf"].as_array().is_some_and(|forms| forms.contains(&json!({"type": "null"})))
                    // A member without a type takes everything.
                    || (member.get("type").is_none() && member.get("anyOf").is_none() && member.get("$ref").is_none());
                assert!(is_required || takes_null, "{name}: {member}");
                if has_null(&member["type"]) && member.get("enum").is_some() {
                    assert!(member["enum"].as_array().unwrap().contains(&Value::Null), "{name}: {member}");
                }
            }
        }
    }
}

#[test]
fn every_call_documents_the_form_of_its_other_answers() {
    for text in [CONDUITS_TEXT, MOTHERSHIP_TEXT] {
        let document = document(text);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let other = &operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(other, "#/components/schemas/Error", "{method} {path}");
            }
        }
    }
}

#[test]
fn the_schema_of_networks_and_the_type_refuse_the_same() {
    let validator = jsonschema::validator_for(&serde_json::from_str(NET_TEXT).unwrap()).unwrap();
    for good in [
        json!({"mode": "none"}),
        json!({"mode": "unrestricted", "ttl_seconds": 1}),
        json!({"mode": "allowlist", "allow": []}),
        json!({"mode": "allowlist", "preset": "custom", "allow": ["a.example:1", "*.b.example:65535"], "x_ext": {"x_a": {}}}),
    ] {
        assert!(validator.is_valid(&good), "schema: {good}");
        assert!(serde_json::from_value::<NetCapability>(good.clone()).is_ok(), "type: {good}");
    }
    for bad in [
        json!({}),
        json!({"mode": "open"}),
        json!({"mode": "none", "alow": []}),
        json!({"mode": "none", "preset": "tight"}),
        json!({"mode": "allowlist", "allow": "a.example:1"}),
    ] {
        assert!(!validator.is_valid(&bad), "schema: {bad}");
        assert!(serde_json::from_value::<NetCapability>(bad.clone()).is_err(), "type: {bad}");
    }
    for bad in [
        json!({"mode": "allowlist"}),
        json!({"mode": "none", "allow": []}),
        json!({"mode": "allowlist", "allow": ["1.2.3.4:443"]}),
        json!({"mode": "allowlist", "allow": ["[::1]:443"]}),
        json!({"mode": "allowlist", "allow": ["a.example"]}),
        json!({"mode": "allowlist", "allow": ["a.example:0"]}),
        json!({"mode": "allowlist", "allow": ["a.example:65536"]}),
        json!({"mode": "allowlist", "allow": ["a.*.example:1"]}),
        json!({"mode": "none", "ttl_seconds": 86_401}),
        json!({"mode": "none", "x_ext": {"a": 1}}),
    ] {
        assert!(!validator.is_valid(&bad), "schema: {bad}");
    }
}

const EVENTS_TEXT: &str = include_str!("../../../docs/protocol/events.schema.v1.json");

/// An event of each type.
fn every_event() -> Vec<nexus_api::events::EventBody> {
    use nexus_api::events::{EventBody, ProofStep};
    let text = || "text".to_owned();
    vec![
        EventBody::Prepared { run_id: text(), ms: 1 },
        EventBody::SandboxStarted {
            driver: text(),
            guarantees: vec![text()],
            proof: vec![ProofStep { check: text(), seen: text() }],
        },
        EventBody::EnvironmentSet { names: vec![text()] },
        EventBody::CommandStarted { ms: 1 },
        EventBody::Output { stream: "stdout".to_owned(), chunk: 0, bytes: 1 },
        EventBody::EgressDecision { destination: text(), code: text(), allowed: false },
        EventBody::Approval { question: text(), granted: true },
        EventBody::Signal { number: 15, cause: text() },
        EventBody::LimitHit { limit: text() },
        EventBody::ChangeSet {
            state: "committed".to_owned(),
            added: 1,
            modified: 0,
            deleted: 0,
            parked: 0,
            conflicts: 0,
        },
        EventBody::Finished { status: "succeeded".to_owned(), exit_code: Some(0), reason: None, ms: 1 },
    ]
}

#[test]
fn every_typed_event_has_the_form_of_its_schema() {
    let schema: Value = serde_json::from_str(EVENTS_TEXT).unwrap();
    assert_eq!(schema["$id"], nexus_api::events::SCHEMA);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut types = BTreeSet::new();
    for (seq, body) in every_event().into_iter().enumerate() {
        let event = nexus_api::events::TypedEvent { seq: seq as u64, at: nexus_api::Timestamp(0), body };
        let value = serde_json::to_value(&event).unwrap();
        assert!(validator.is_valid(&value), "{value}");
        assert_eq!(serde_json::from_value::<nexus_api::events::TypedEvent>(value.clone()).unwrap(), event);
        for member in value.as_object().unwrap().keys() {
            let mut without = value.clone();
            without.as_object_mut().unwrap().remove(member);
            assert!(!validator.is_valid(&without), "{value} without {member}");
        }
        types.insert(value["type"].as_str().unwrap().to_owned());
    }
    let listed: BTreeSet<String> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["properties"]["type"]["const"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(types, listed, "each type of the list has a form, and the other way round");
}

#[test]
fn the_served_documents_are_those_of_the_contract() {
    for (text, served) in [
        (CONDUITS_TEXT, nexus_api::documents::CONDUITS),
        (MOTHERSHIP_TEXT, nexus_api::documents::MOTHERSHIP),
        (EVENTS_TEXT, nexus_api::documents::EVENTS),
    ] {
        let served: Value = serde_json::from_str(served).unwrap();
        assert_eq!(served, document(text), "cargo xtask sync-schema writes the copies");
    }
}
