//! The conformance suite is sound: it passes a sound fake and notices a flawed one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_driver::conformance::{Fixture, violations};
use nexus_driver::fake::{Fake, Script};
use nexus_driver::{Driver, Event, NotStarted, REQUIRED, Session, Stdio};
use nexus_model::plan::PlanDraft;
use nexus_model::{Guarantee, Plan};
use rustix::fd::AsFd;
use std::collections::BTreeSet;
use std::path::Path;

fn plan(argv: &[&str], required: &[Guarantee]) -> Plan {
    let mut draft = PlanDraft::direct(Path::new("/srv/w"), argv.iter().copied(), Path::new("/nowhere"));
    draft.required = required.iter().copied().collect();
    Plan::new(draft).unwrap()
}

fn all_violations(driver: &Fake) -> Vec<String> {
    let fixture = Fixture {
        exit: &|code| plan(&["exit", &code.to_string()], &[]),
        stay: &|| plan(&["wait"], &[]),
        requiring: &|guarantee| plan(&["exit", "0"], &[guarantee]),
    };
    violations(driver, &fixture)
}

fn first_failure(script: Script) -> NotStarted {
    let driver = Fake::new(script);
    let plan = plan(&["exit", "0"], &[]);
    let handle = driver.prepare(&plan).unwrap();
    let sandbox = driver.start(&plan, &handle).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut session = Session::start(&sandbox, &plan, Stdio::Pipes([null.as_fd(); 3])).unwrap();
    loop {
        match session.recv() {
            Ok(Event::NotStarted(reason)) => return reason,
            Ok(Event::Ended(_)) => panic!("it ran"),
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

#[test]
fn a_sound_fake_conforms() {
    assert_eq!(all_violations(&Fake::new(Script::Obey)), [] as [String; 0]);
}

#[test]
fn a_driver_that_leaks_is_noticed() {
    let mut leaky = Fake::new(Script::Obey);
    leaky.dangerously_leaks = true;
    assert!(all_violations(&leaky).iter().any(|found| found.contains("inventory")));
}

#[test]
fn a_driver_that_states_what_its_probe_denies_is_noticed() {
    for states in [BTreeSet::from([Guarantee::KernelSeparate]), BTreeSet::new()] {
        let mut boastful = Fake::new(Script::Obey);
        boastful.states = Some(states);
        assert!(all_violations(&boastful).iter().any(|found| found.contains("stated")));
    }
}

#[test]
fn a_driver_without_a_guarantee_that_every_driver_gives_is_noticed() {
    let without = |one: &Guarantee| REQUIRED.iter().copied().filter(|other| other != one).collect::<BTreeSet<_>>();
    for missing in REQUIRED {
        let mut denies = Fake::new(Script::Obey);
        denies.claims = without(missing);
        assert!(all_violations(&denies).iter().any(|found| found.contains(&format!("the probe denies {missing}"))));
        let mut silent = Fake::new(Script::Obey);
        silent.states = Some(without(missing));
        assert!(all_violations(&silent).iter().any(|found| found.contains(&format!("without {missing}"))));
    }
}

#[test]
fn a_driver_whose_sandbox_never_stands_is_noticed() {
    assert!(!all_violations(&Fake::new(Script::SetUpFails)).is_empty());
    assert!(!all_violations(&Fake::new(Script::Vanishes)).is_empty());
}

#[test]
fn a_failed_set_up_a_silent_guest_and_a_lying_guest_never_count_as_a_run() {
    assert!(matches!(first_failure(Script::SetUpFails), NotStarted::SetUp { .. }));
    assert!(matches!(first_failure(Script::Vanishes), NotStarted::Lost(_)));
    assert!(matches!(first_failure(Script::Lies), NotStarted::Protocol(_)));
}

#[test]
fn no_command_starts_without_the_values_that_its_plan_names() {
    let mut draft = PlanDraft::from(plan(&["exit", "0"], &[]));
    draft.secrets = vec!["TOKEN".to_owned()];
    let plan = Plan::new(draft).unwrap();
    let driver = Fake::new(Script::Obey);
    let handle = driver.prepare(&plan).unwrap();
    let sandbox = driver.start(&plan, &handle).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let stdio = Stdio::Pipes([null.as_fd(); 3]);
    let started = Session::start(&sandbox, &plan, stdio);
    assert!(matches!(started, Err(NotStarted::Secrets { named: 1, given: 0 })));
    let started = Session::start_with(&sandbox, &plan, &[b"one", b"two"], stdio);
    assert!(matches!(started, Err(NotStarted::Secrets { named: 1, given: 2 })));
}
