use super::*;
use std::slice::from_ref;

fn class(profile: &str, guarantees: &[&str], labels: &str) -> ClassRequirements {
    ClassRequirements {
        profile: profile.to_owned(),
        guarantees: guarantees.iter().map(|name| (*name).to_owned()).collect(),
        labels: serde_json::from_str(labels).unwrap(),
    }
}

fn territory() -> TerritoryFacts {
    TerritoryFacts {
        id: TerritoryId::new(),
        active: true,
        online: true,
        profiles: vec!["untrusted".to_owned()],
        guarantees: vec!["net.none".to_owned()],
        labels: serde_json::from_str(r#"{"zone":"a"}"#).unwrap(),
        capacity: 2,
        open: 0,
    }
}

#[test]
fn a_directive_goes_only_where_every_demand_is_met() {
    let here = territory();
    assert!(fits(&class("untrusted", &["net.none"], r#"{"zone":"a"}"#), &here));
    assert!(!fits(&class("trusted", &[], "{}"), &here));
    assert!(!fits(&class("untrusted", &["kernel.separate"], "{}"), &here));
    assert!(!fits(&class("untrusted", &[], r#"{"zone":"b"}"#), &here));
}

#[test]
fn a_waiting_directive_says_why_it_waits() {
    let because =
        |class: &ClassRequirements, pin, territories: &[TerritoryFacts]| queued_because(class, pin, territories);
    let plain = class("untrusted", &[], "{}");
    let here = territory();
    assert_eq!(because(&plain, None, &[]), "No territory is online.");
    assert!(because(&plain, Some(TerritoryId::new()), from_ref(&here)).contains("does not exist"));
    let offline = TerritoryFacts { online: false, ..here.clone() };
    assert!(because(&plain, Some(offline.id), from_ref(&offline)).contains("offline"));
    let draining = TerritoryFacts { active: false, ..here.clone() };
    assert!(because(&plain, Some(draining.id), from_ref(&draining)).contains("no new directives"));
    assert!(because(&class("trusted", &[], "{}"), None, from_ref(&here)).contains("profile trusted"));
    assert!(because(&class("untrusted", &[], r#"{"zone":"b"}"#), None, from_ref(&here)).contains("zone=b"));
    assert!(
        because(&class("untrusted", &["kernel.separate"], "{}"), None, from_ref(&here)).contains("kernel.separate")
    );
    let full = TerritoryFacts { open: 2, ..here.clone() };
    assert!(because(&plain, None, &[full]).contains("full"));
    assert!(because(&plain, None, &[here]).contains("has not asked"));
}

#[test]
fn a_profile_with_an_unhealthy_driver_gets_no_work() {
    let offered = ["untrusted".to_owned(), "trusted".to_owned()];
    let read = |text: &str| -> Vec<String> { healthy_profiles(&offered, &serde_json::from_str(text).unwrap()) };
    assert_eq!(read("{}"), offered);
    assert_eq!(
        read(r#"{"untrusted_driver":"namespace","sandbox_health":{"namespace":{"healthy":false}}}"#),
        ["trusted"]
    );
    assert_eq!(read(r#"{"untrusted_driver":"namespace","sandbox_health":{"namespace":{"healthy":true}}}"#), offered);
    assert_eq!(read(r#"{"supported_profiles":["untrusted"]}"#), ["untrusted"]);
    assert!(read(r#"{"sandbox_health":{"x":{"healthy":false}},"supported_profiles":["untrusted"]}"#).is_empty());
}

#[test]
fn a_territory_without_capacity_holds_as_many_as_it_asks_for() {
    let offer = |max| Offer { profiles: Vec::new(), guarantees: None, max, poll_id: None };
    assert_eq!(room(&Capacity::default(), &offer(1)), 1);
    let large = Capacity { max_concurrent: Some(4), ..Capacity::default() };
    assert_eq!((room(&large, &offer(1)), room(&large, &offer(5))), (4, 5));
}
