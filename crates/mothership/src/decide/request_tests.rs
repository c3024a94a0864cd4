use super::*;
use serde_json::json;

fn build_json(role: Role, value: serde_json::Value) -> Result<NewDirective, String> {
    let request: CreateDirective = serde_json::from_value(value).map_err(|error| format!("json: {error}"))?;
    let facility =
        FacilityRef { id: nexus_model::ids::FacilityId::new(), mount: "/workspace".to_owned(), repo_url: None };
    build(request, facility, role, &Effective::default(), 1000).map_err(|rejection| rejection.code().to_owned())
}

#[test]
fn a_plain_request_gets_the_defaults_of_the_contract() {
    let new = build_json(Role::Agent, json!({"command": "make"})).unwrap();
    assert_eq!((new.spec.timeout_seconds, new.spec.shell.as_str()), (Some(300), "/bin/sh"));
    assert_eq!(new.spec.limits, DirectiveLimits::default(), "limits that no caller set are not sent");
    assert_eq!(new.spec.capabilities.net.mode, NetMode::None);
    assert_eq!(new.class.profile, "untrusted");
}

#[test]
fn a_request_outside_its_bounds_is_refused() {
    for (body, code) in [
        (json!({"command": " "}), "invalid_field"),
        (json!({"command": "a\u{0}b"}), "invalid_field"),
        (json!({"command": "x", "timeout_seconds": 0}), "invalid_field"),
        (json!({"command": "x", "timeout_seconds": 604_801}), "invalid_field"),
        (json!({"command": "x", "cwd": "/etc"}), "invalid_field"),
        (json!({"command": "x", "cwd": "/workspaces"}), "invalid_field"),
        (json!({"command": "x", "cwd": "a/../../b"}), "invalid_field"),
        (json!({"command": "x", "shell": "sh"}), "invalid_field"),
        (json!({"command": "x", "limits": {"cpu": 0}}), "invalid_field"),
        (json!({"command": "x", "limits": {"max_diff_bytes": 1_000_000_000}}), "invalid_field"),
        (json!({"command": "x", "requirements": {"guarantees": ["fs.everything"]}}), "invalid_field"),
        (json!({"command": "x", "requested_capabilities": {"fs": {"read": ["workspace:x"]}}}), "invalid_field"),
        (json!({"command": "x", "requested_capabilities": {"env": {"A-B": "1"}}}), "invalid_field"),
        (json!({"command": "x", "requested_capabilities": {"net": {"mode": "allowlist"}}}), "invalid_field"),
        (
            json!({"command": "x", "requested_capabilities": {"net": {"mode": "allowlist", "allow": ["1.2.3.4:443"]}}}),
            "invalid_field",
        ),
        (json!({"command": "x", "artifacts": {"collect": ["/etc/*"]}}), "invalid_field"),
        (json!({"command": "x", "artifacts": {"collect": ["a/../../b"]}}), "invalid_field"),
        (json!({"command": "x", "artifacts": {"collect": vec!["a"; 65]}}), "invalid_field"),
        (json!({"command": "x", "sandbox_profile": "host"}), "unavailable"),
        (
            json!({"command": "x", "sandbox_profile": "trusted", "requested_capabilities": {"fs": {"read": ["host:/etc"]}}}),
            "unavailable",
        ),
        (json!({"command": "x", "requested_capabilities": {"secrets": ["TOKEN"]}}), "unavailable"),
        (json!({"command": "x", "env_refs": {"A": "b"}}), "unavailable"),
    ] {
        assert_eq!(build_json(Role::Owner, body.clone()).unwrap_err(), code, "{body}");
    }
    for body in [
        json!({"command": "x", "cwd": "/workspace/a"}),
        json!({"command": "x", "cwd": "a/b"}),
        json!({"command": "x", "cwd": "/workspace"}),
        json!({"command": "x", "artifacts": {"collect": ["out/", "**/*.log"]}}),
    ] {
        assert!(build_json(Role::Agent, body.clone()).is_ok(), "{body}");
    }
    let misspelt = json!({"command": "x", "requested_capabilities": {"nett": {"mode": "none"}}});
    assert!(build_json(Role::Owner, misspelt).unwrap_err().starts_with("json:"));
}

#[test]
fn only_a_role_that_may_approve_asks_for_more_network() {
    for net in [
        json!({"mode": "unrestricted"}),
        json!({"mode": "allowlist", "allow": ["*.example.com:443"]}),
        json!({"mode": "allowlist", "allow": ["example.com:22"]}),
    ] {
        let body = json!({"command": "x", "requested_capabilities": {"net": net}});
        assert_eq!(build_json(Role::Agent, body.clone()).unwrap_err(), "approval_required", "{body}");
        assert!(!build_json(Role::Operator, body).unwrap().approval_reasons.is_empty());
    }
    let usual =
        json!({"command": "x", "requested_capabilities": {"net": {"mode": "allowlist", "allow": ["example.com:443"]}}});
    assert!(build_json(Role::Agent, usual).unwrap().approval_reasons.is_empty());
}

#[test]
fn a_policy_refuses_what_it_forbids_and_lowers_what_was_not_named() {
    use nexus_policy::document::LoadedPolicy;
    let text = r#"{"policy": "nexus.policy/1", "id": "a", "level": "global", "net": {"allow": ["a.test"]},
                   "limits": {"memory": "1G", "timeout": "1m", "max_output": "1K"}}"#;
    let policies = Effective::of(&[LoadedPolicy::read("a.yaml", text).unwrap()]);
    let built = |value: serde_json::Value| {
        let facility =
            FacilityRef { id: nexus_model::ids::FacilityId::new(), mount: "/workspace".to_owned(), repo_url: None };
        build(serde_json::from_value(value).unwrap(), facility, Role::Owner, &policies, 1000)
    };
    let plain = built(json!({"command": "make"})).unwrap();
    assert_eq!(
        (plain.spec.timeout_seconds, plain.spec.limits.memory_mb, plain.log_limit),
        (Some(60), Some(1024), 1024)
    );
    assert_eq!(plain.timeout_ms, 60_000);
    for wide in [
        json!({"command": "x", "timeout_seconds": 61}),
        json!({"command": "x", "limits": {"memory_mb": 1025}}),
        json!({"command": "x", "requested_capabilities": {"net": {"mode": "unrestricted"}}}),
        json!({"command": "x", "requested_capabilities": {"net": {"mode": "allowlist", "allow": ["b.test:443"]}}}),
    ] {
        let refused = built(wide.clone()).unwrap_err();
        assert_eq!(refused.code(), "policy", "{wide}: {refused}");
        assert!(refused.to_string().contains("(global policy a, a.yaml:"), "{refused}");
    }
}
