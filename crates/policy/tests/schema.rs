//! The JSON Schema and the reader agree about what a profile is.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_policy::profile::{parse, schema};
use serde_json::json;

/// Documents as JSON, which is YAML too.
fn good() -> Vec<serde_json::Value> {
    vec![
        json!({}),
        json!({"extends": ["default", "python"], "description": "x"}),
        json!({"fs": {"ro": ["~/datasets", {"src": "/opt/models", "dst": "/models"}], "rw": [], "hide": [".env*"]}}),
        json!({"env": {"pass": ["CI"], "set": {"PIP_NO_INPUT": "1"}, "drop": ["TZ"]}}),
        json!({"net": "none"}),
        json!({"net": {"mode": "allowlist", "allow": ["github.com:443"], "deny": ["x.example"], "groups": ["pkg:pip"]}}),
        json!({"net": {"methods": "read_only"}}),
        json!({"limits": {"memory": "2G", "pids": 512, "disk": 1024, "timeout": "10m", "cpus": 1.5, "max_output": 0}}),
        json!({"limits": {"timeout": 30, "cpus": "2"}}),
        json!({"debug": true}),
        json!({"debug": false}),
        json!({"cache": true}),
        json!({"cache": false}),
        json!({"auto": true}),
        json!({"toolchains": ["ruby", "php", "perl"]}),
        json!({"protect": ["Makefile", "*.code-workspace", "deploy/*.sh", ".a*b", "a b"]}),
        json!({"changes": "review", "toolchains": ["rust", "git"], "etc": ["apt", "java-17-openjdk"], "path": ["~/bin"]}),
    ]
}

fn bad() -> Vec<serde_json::Value> {
    vec![
        json!([]),
        json!({"extend": []}),
        json!({"extends": "default"}),
        json!({"extends": ["../x"]}),
        json!({"extends": [""]}),
        json!({"toolchains": ["cobol"]}),
        json!({"fs": {"read": []}}),
        json!({"fs": {"ro": ["data"]}}),
        json!({"fs": {"ro": ["/a/../b"]}}),
        json!({"fs": {"ro": [{"dst": "/a"}]}}),
        json!({"fs": {"ro": [{"src": "/a", "to": "/b"}]}}),
        json!({"fs": {"hide": [" "]}}),
        json!({"env": {"set": {"A": 1}}}),
        json!({"env": {"set": {"A-B": "1"}}}),
        json!({"env": {"pass": ["A=B"]}}),
        json!({"net": "all"}),
        json!({"net": {"mode": "allowlist", "ports": []}}),
        json!({"net": {"methods": "read-only"}}),
        json!({"net": {"methods": ["any"]}}),
        json!({"limits": {"memory": "2GB"}}),
        json!({"limits": {"memory": true}}),
        json!({"limits": {"pids": 0}}),
        json!({"limits": {"swap": "1G"}}),
        json!({"changes": "keep"}),
        json!({"debug": "true"}),
        json!({"debug": 1}),
        json!({"cache": "true"}),
        json!({"auto": "no"}),
        json!({"etc": ["shadow"]}),
        json!({"etc": ["ssl/private"]}),
        json!({"etc": ["../home"]}),
        json!({"path": ["bin"]}),
        json!({"protect": "Makefile"}),
        json!({"protect": [""]}),
        json!({"protect": ["*"]}),
        json!({"protect": ["a/**"]}),
        json!({"protect": ["/a"]}),
        json!({"protect": ["a/"]}),
        json!({"protect": ["a/../b"]}),
        json!({"protect": ["."]}),
        json!({"protect": ["!.envrc"]}),
        json!({"protect": ["a?"]}),
        json!({"protect": ["[ab]"]}),
        json!({"protect": ["a\\b"]}),
        json!({"protect": ["a\nb"]}),
        json!({"protect": ["x".repeat(1025)]}),
    ]
}

#[test]
fn the_schema_and_the_reader_take_and_refuse_the_same_documents() {
    let validator = jsonschema::validator_for(&schema().unwrap()).unwrap();
    for document in good() {
        let text = document.to_string();
        assert!(parse(&text).is_ok(), "reader: {text}: {}", parse(&text).unwrap_err());
        assert!(validator.is_valid(&document), "schema: {text}");
    }
    for document in bad() {
        let text = document.to_string();
        assert!(parse(&text).is_err(), "reader: {text}");
        assert!(!validator.is_valid(&document), "schema: {text}");
    }
}

#[test]
fn every_key_of_the_schema_is_one_of_the_reader_and_the_other_way_round() {
    // A key that only the reader knows would be refused by editors; one that only the schema knows, by the reader.
    let schema = schema().unwrap();
    let keys = |pointer: &str| -> Vec<String> {
        schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
    };
    for (pointer, before) in [
        ("/properties", ""),
        ("/properties/fs/properties", "fs"),
        ("/properties/env/properties", "env"),
        ("/properties/net/oneOf/1/properties", "net"),
        ("/properties/limits/properties", "limits"),
    ] {
        let mut known = keys(pointer);
        known.sort();
        let unknown = if before.is_empty() { json!({"zzzzzzzz": 1}) } else { json!({before: {"zzzzzzzz": 1}}) };
        let said = parse(&unknown.to_string()).unwrap_err().message;
        let mut told: Vec<String> =
            said.split_once("the keys here are ").unwrap().1.split(", ").map(str::to_owned).collect();
        told.sort();
        assert_eq!(told, known, "{pointer}");
    }
}
