//! In pairs: what is allowed passes, its forbidden neighbour fails.

use std::path::PathBuf;

use super::*;

fn package(name: &str, uses: &[(&str, EdgeKind)]) -> Package {
    Package {
        name: name.to_owned(),
        manifest: PathBuf::new(),
        roots: Vec::new(),
        uses: uses.iter().map(|(used, kind)| ((*used).to_owned(), *kind)).collect(),
    }
}

#[test]
fn an_edge_of_the_list_passes() {
    let driver = package("nexus-driver", &[("nexus-channel", EdgeKind::Shipped), ("nexus-model", EdgeKind::Shipped)]);
    assert_eq!(forbidden_edges(&[driver]), Vec::<String>::new());
}

#[test]
fn an_edge_outside_the_list_fails_and_is_named() {
    let model = package("nexus-model", &[("nexus-driver", EdgeKind::Shipped)]);
    assert_eq!(forbidden_edges(&[model]), ["model: depends on driver, which it may not"]);
}

#[test]
fn the_edge_of_the_list_turned_round_fails() {
    let jail = package("nexus-jail", &[("nexus-driver", EdgeKind::Shipped)]);
    assert_eq!(forbidden_edges(&[jail]).len(), 1);
}

#[test]
fn the_control_plane_never_uses_a_driver() {
    let allowed = package("nexus-mothership", &[("nexus-policy", EdgeKind::Shipped)]);
    let forbidden = package("nexus-mothership", &[("nexus-driver", EdgeKind::Shipped)]);
    assert!(forbidden_edges(&[allowed]).is_empty());
    assert_eq!(forbidden_edges(&[forbidden]).len(), 1);
}

#[test]
fn only_the_doctor_carries_the_attacks() {
    let doctor = package("nexus-doctor", &[("nexus-escape", EdgeKind::Shipped)]);
    let driver = package("nexus-driver", &[("nexus-escape", EdgeKind::Shipped)]);
    assert!(forbidden_edges(&[doctor]).is_empty());
    assert_eq!(forbidden_edges(&[driver]), ["driver: depends on escape, which it may not"]);
}

#[test]
fn no_crate_of_commands_needs_another() {
    for (one, other) in [("fleet", "doctor"), ("sessions", "changes"), ("history", "warm"), ("caller", "fleet")] {
        let forbidden = package(&format!("nexus-{one}"), &[(&format!("nexus-{other}"), EdgeKind::Shipped)]);
        assert_eq!(forbidden_edges(&[forbidden]), [format!("{one}: depends on {other}, which it may not")]);
    }
}

#[test]
fn what_tests_of_a_crate_may_use_is_not_for_what_is_shipped() {
    let test = package("nexus-escape", &[("nexus-driver-namespace", EdgeKind::Dev)]);
    let shipped = package("nexus-escape", &[("nexus-driver-namespace", EdgeKind::Shipped)]);
    assert!(forbidden_edges(&[test]).is_empty());
    assert_eq!(forbidden_edges(&[shipped]), ["escape: depends on driver-namespace, which it may not"]);
}

#[test]
fn an_edge_or_a_row_that_no_crate_has_is_named() {
    let with =
        |kind| unused_edges(&[package("nexus-git", &[("nexus-beneath", kind), ("nexus-model", EdgeKind::Shipped)])]);
    let of_git = |found: Vec<String>| found.into_iter().filter(|one| one.starts_with("git:")).collect::<Vec<_>>();
    assert_eq!(of_git(with(EdgeKind::Shipped)), Vec::<String>::new());
    assert_eq!(of_git(with(EdgeKind::Dev)), ["git: may depend on beneath, and does not"]);
    assert_eq!(of_git(unused_edges(&[])), ["git: is in the list of xtask/src/rules.rs, and there is no such crate"]);
    let tests = "layer: its tests may use jail, and do not".to_owned();
    assert!(with(EdgeKind::Shipped).contains(&tests));
}

#[test]
fn a_dev_dependency_does_not_turn_the_architecture_round() {
    let layer = package("nexus-layer", &[("nexus-driver", EdgeKind::Dev)]);
    let expected = ["layer: has a dev-dependency on driver, which it may not"];
    assert_eq!(forbidden_edges(&[layer]), expected);
}

#[test]
fn a_crate_that_the_list_does_not_know_fails() {
    assert_eq!(forbidden_edges(&[package("nexus-new", &[])]).len(), 1);
}

#[test]
fn a_crate_named_for_what_it_does_passes_and_a_magnet_fails() {
    assert!(magnet_names(&[package("nexus-jail", &[])]).is_empty());
    assert_eq!(magnet_names(&[package("nexus-common", &[]), package("utils", &[])]).len(), 2);
}

#[test]
fn a_root_that_forbids_unsafe_passes_and_one_that_only_talks_about_it_fails() {
    assert!(keeps_unsafe_out("nexus-model", "//! Docs\n#![forbid(unsafe_code)]\n"));
    assert!(!keeps_unsafe_out("nexus-model", "//! has #![forbid(unsafe_code)]\n// #![forbid(unsafe_code)]\n"));
}

#[test]
fn unsafe_is_left_to_the_launcher_pid_one_and_the_hostile_tests() {
    let free: Vec<_> = MAY_USE.iter().map(|(name, _)| *name).filter(|name| keeps_unsafe_out(name, "")).collect();
    assert_eq!(free, ["jail", "guest", "escape"]);
}

#[test]
fn a_manifest_with_the_workspace_lints_passes_and_others_fail() {
    assert!(takes_workspace_lints("[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n"));
    assert!(!takes_workspace_lints("[package]\nversion.workspace = true\n"));
    assert!(!takes_workspace_lints("[lints]\n[dependencies]\nworkspace = true\n"));
}

#[test]
fn every_circle_of_modules_is_refused() {
    let circle = |modules: &[&str]| modules.iter().map(|module| (*module).to_owned()).collect::<Vec<_>>();
    let crates =
        [("layer".to_owned(), vec![circle(&["a", "b"]), circle(&["c", "d", "e"])]), ("model".to_owned(), Vec::new())];
    assert_eq!(circles_of_modules(&crates), ["layer: 5 modules stand in circles: a, b; c, d, e"]);
    assert_eq!(circles_of_modules(&crates[1..]), Vec::<String>::new());
}
