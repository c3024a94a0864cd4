//! The list of allowed and refused calls in `calls.txt` and the compiled filter say the same.
//!
//! The program in `generated.rs` is written again after each change of the profile; this list is not, so that a call which
//! becomes allowed by mistake is seen.

use std::collections::{BTreeMap, BTreeSet};

use super::interpret::{SeccompData, run};
use super::{Action, Permissions, Program, SeccompProfile};
use crate::seccomp::table;

const LIST: &str = include_str!("calls.txt");
const BY_ARGUMENTS: &str = "by arguments";
/// Calls that another permission moves to another part of the list, with the permission. Arguments that `LAYERED` allows are held
/// by `builtin.rs`.
const OPENED: [(&str, Permissions); 5] =
    [("ptrace", DEBUG), ("process_vm_readv", DEBUG), ("process_vm_writev", DEBUG), ("kcmp", DEBUG), ("sync", LAYERED)];
const DEBUG: Permissions = Permissions { debug: true, layered: false };
const LAYERED: Permissions = Permissions { debug: false, layered: true };

/// The answer to each call, as the list says.
fn listed() -> BTreeMap<&'static str, &'static str> {
    let mut all = BTreeMap::new();
    let mut answer = None;
    for line in LIST.lines().skip_while(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("# ") {
            let (name, reason) = head.split_once(": ").unwrap_or_else(|| panic!("{line}: no reason"));
            assert!(["allowed", BY_ARGUMENTS, "ENOSYS", "EPERM"].contains(&name), "{line}");
            assert!(reason.len() >= 20, "{line}: too short for a reason");
            answer = Some(name);
            continue;
        }
        for call in line.split_whitespace() {
            let before = all.insert(call, answer.expect("an answer stands above the calls"));
            assert_eq!(before, None, "{call} stands twice");
        }
    }
    all
}

/// The answer to each call as the rules of a profile give it.
fn ruled(profile: &SeccompProfile) -> BTreeMap<&str, &'static str> {
    let mut all = BTreeMap::new();
    for rule in profile.rules() {
        let answer = match (rule.conditions.is_empty(), rule.action) {
            (true, Action::Allow) => "allowed",
            (true, Action::Errno(1)) => "EPERM",
            (true, Action::Errno(38)) => "ENOSYS",
            _ => BY_ARGUMENTS,
        };
        for name in &rule.names {
            let entry = all.entry(name.as_str()).or_insert(answer);
            if *entry != answer {
                *entry = BY_ARGUMENTS;
            }
        }
    }
    all
}

fn differences<'a>(one: &BTreeMap<&'a str, &str>, other: &BTreeMap<&'a str, &str>) -> Vec<String> {
    let names: BTreeSet<&str> = one.keys().chain(other.keys()).copied().collect();
    let (one, other) =
        (|name: &str| one.get(name).copied().unwrap_or("-"), |name: &str| other.get(name).copied().unwrap_or("-"));
    names
        .into_iter()
        .filter(|name| one(name) != other(name))
        .map(|name| format!("{name}: {} in calls.txt, {} in the filter", one(name), other(name)))
        .collect()
}

#[test]
fn the_list_of_allowed_calls_is_the_filter() {
    let listed = listed();
    let profile = SeccompProfile::builtin(Permissions::default()).expect("the embedded profile is valid");
    let wrong = differences(&listed, &ruled(&profile));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The program itself, whatever the reader of profiles and the compiler made of the rules.
    let program = Program::builtin(Permissions::default());
    for (call, number) in table::all() {
        let wanted = match listed[call] {
            "allowed" => Action::Allow,
            "EPERM" => Action::Errno(1),
            "ENOSYS" => Action::Errno(38),
            _ => continue,
        };
        for arguments in [[0; 6], [u64::MAX; 6], [1; 6], [1 << 31; 6], [0x7e02_0000; 6]] {
            assert_eq!(run(&program, &SeccompData::native(number, &arguments)).action, wanted, "{call}");
        }
    }
}

#[test]
fn a_further_allowed_call_is_noticed() {
    let mut profile = SeccompProfile::builtin(Permissions::default()).expect("the embedded profile is valid");
    let before = profile.rules.iter().position(|rule| rule.names == ["memfd_secret"]).expect("it has its own rule");
    profile.rules[before].action = Action::Allow;
    let wrong = differences(&listed(), &ruled(&profile));
    assert_eq!(wrong, ["memfd_secret: ENOSYS in calls.txt, allowed in the filter"]);
}

#[test]
fn a_permission_changes_the_calls_that_are_named_alone() {
    let listed = listed();
    for permissions in Permissions::ALL {
        let profile = SeccompProfile::builtin(permissions).expect("the embedded profile is valid");
        let changed: BTreeSet<String> = differences(&listed, &ruled(&profile))
            .into_iter()
            .map(|line| line.split(':').next().unwrap_or_default().to_owned())
            .collect();
        let has = |asked: Permissions| (!asked.debug || permissions.debug) && (!asked.layered || permissions.layered);
        let known: BTreeSet<String> =
            OPENED.iter().filter(|(_, asked)| has(*asked)).map(|(call, _)| (*call).to_owned()).collect();
        assert_eq!(changed, known, "{permissions:?}");
    }
}
