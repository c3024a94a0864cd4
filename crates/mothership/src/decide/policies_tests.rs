use super::*;
use serde_json::{Value, json};

fn document(level: &str, rest: &Value) -> String {
    let mut all = json!({"policy": "nexus.policy/1", "id": "own", "level": level});
    all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    all.to_string()
}

fn effective(rest: &Value) -> Effective {
    Effective::of(&[LoadedPolicy::read("a", &document("account", rest)).unwrap()])
}

fn spec(change: &Value) -> DirectiveSpec {
    let mut all = json!({
        "directive_id": nexus_model::ids::DirectiveId::new(),
        "facility": {"id": nexus_model::ids::FacilityId::new()},
        "command": "make", "changes": "discard",
        "capabilities": {"net": {"mode": "none"}, "fs": {"read": ["workspace:**"], "write": ["workspace:**"]}},
    });
    all.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

#[test]
fn a_claim_is_held_against_the_documents_of_its_moment() {
    let plain = spec(&json!({}));
    let denied =
        |policies: &Value, spec: &DirectiveSpec, approvers| match at_claim(&effective(policies), spec, approvers) {
            AtClaim::Denied(why) => why,
            other => panic!("{other:?}"),
        };
    assert_eq!(at_claim(&Effective::default(), &plain, None), AtClaim::Same);
    assert!(denied(&json!({"commands": {"forbidden": ["make"]}}), &plain, None).contains("forbidden"));
    let asks = json!({"approval": {"exec": "needs_approval", "quorum": 2}});
    assert!(denied(&asks, &plain, None).contains("without a request"));
    let hostile = spec(&json!({"command": "rm -rf / # s3cret"}));
    for policies in [&asks, &json!({"approval": {"exec": "forbidden"}})] {
        assert!(!denied(policies, &hostile, None).contains("s3cret"), "the audit chain holds no command");
    }
    assert!(denied(&asks, &plain, Some(1)).starts_with("2 users must approve it now, and 1 did"));
    assert_eq!(at_claim(&effective(&asks), &plain, Some(2)), AtClaim::Same);
    // A limit that it named is its own, and one that it did not name is the policy's.
    let limits = json!({"limits": {"memory": "1G"}});
    assert!(denied(&limits, &spec(&json!({"limits": {"memory_mb": 2048}})), None).contains("memory"));
    assert_eq!(at_claim(&effective(&limits), &spec(&json!({"limits": {"memory_mb": 5}})), None), AtClaim::Same);
    let AtClaim::Lowered(lowered) = at_claim(&effective(&limits), &plain, None) else { panic!("the limit is lost") };
    assert_eq!(lowered.limits.memory_mb, Some(1024));
    assert!(denied(&limits, &plain, Some(1)).contains("what was approved"));
}

#[test]
fn a_candidate_that_would_not_hold_is_refused_with_its_place() {
    let operator = LoadedPolicy::read("/etc/p.yaml", &document("account", &json!({"secrets": ["ONE"]}))).unwrap();
    let policies = Policies::new(PolicySet::build(vec![operator]).unwrap());
    let refused = |text: &str| {
        let refusal = policies.candidate("account@1", text).unwrap_err();
        (refusal.code(), refusal.to_string())
    };
    let other = |rest: Value| document("account", &rest).replace("\"own\"", "\"other\"");
    for (text, code, said) in [
        ("no document".to_owned(), "policy_document", "account@1:1:1"),
        (document("account", &json!({})), "policy_document", "/etc/p.yaml"),
        (document("global", &json!({})), "policy_level", "not global"),
        (other(json!({"budgets": {"connections": 1}})), "policy_not_held", "budgets.connections (account@1:1:"),
        (
            other(json!({"limits": {"memory": "1G"}, "tests": {"match": ["limit memory=2G"]}})),
            "policy_document",
            "should match",
        ),
        (other(json!({"description": "x".repeat(MAX_POLICY_BYTES)})), "policy_document", "at most"),
    ] {
        let (found, why) = refused(&text);
        assert!(found == code && why.contains(said), "{found} {why}");
    }
    policies.candidate("account@1", &other(json!({"secrets": ["ONE", "TWO"]}))).unwrap();
}

#[test]
fn a_stored_document_counts_as_the_generation_that_it_is() {
    let policies = Policies::new(PolicySet::default());
    let account = AccountId::new();
    let text = |name: &str| document("account", &json!({"secrets": [name]}));
    let generation = |number, text: &str| Generation { number, hash: Some(Digest::of(text.as_bytes())) };
    let of = |generation: &Generation, text: &str| {
        policies.of::<PolicyRefusal>(account, generation, || Ok(text.to_owned())).map(|set| set.hash())
    };
    let first = of(&generation(1, &text("ONE")), &text("ONE")).unwrap();
    let second = of(&generation(2, &text("TWO")), &text("TWO")).unwrap();
    assert_ne!(first, second);
    // What is known is not read again, and is that of one account alone.
    let again = policies.of::<PolicyRefusal>(account, &generation(2, &text("TWO")), || panic!("it is known"));
    assert_eq!(again.unwrap().hash(), second);
    let removed = Generation { number: 3, hash: None };
    assert!(
        policies.of::<PolicyRefusal>(account, &removed, || panic!("there is none")).unwrap().documents().is_empty()
    );
    let changed = of(&generation(4, &text("ONE")), &text("TWO")).unwrap_err();
    assert_eq!(changed.code(), "policy_document");
}
