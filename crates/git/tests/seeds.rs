//! Tries the inputs that the fuzzer starts from and those that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/gitconfig.rs"]
mod gitconfig;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use nexus_git::config::{Setting, parse};
use std::process::Command;

#[test]
fn every_seed_of_the_git_configurations_holds_its_properties() {
    seeds::each("gitconfig", gitconfig::gitconfig);
}

#[test]
fn every_seed_of_the_files_of_git_holds_its_properties() {
    seeds::each("git_index", nexus_git::fuzz::git_index);
    seeds::each("git_refs", nexus_git::fuzz::git_refs);
    seeds::each("git_packs", nexus_git::fuzz::git_packs);
}

/// As `git config --list -z` writes it.
fn listed(one: &Setting) -> Vec<u8> {
    let part = one.subsection.iter().flat_map(|part| [b".", &part[..]].concat());
    let mut line: Vec<u8> = one.section.bytes().chain(part).chain(*b".").chain(one.name.bytes()).collect();
    if let Some(value) = &one.value {
        line.extend([b"\n", &value[..]].concat());
    }
    line
}

/// git does not obey a configuration that it refuses to read. A text that both read must give the same settings, or one could hide.
#[test]
fn where_git_reads_a_configuration_it_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let mut both = 0;
    for (path, text) in seeds::of("gitconfig") {
        let Ok(settings) = parse(&text) else { continue };
        std::fs::write(&file, &text).unwrap();
        let output = Command::new("git")
            .args(["config", "--no-includes", "--list", "-z", "--file"])
            .arg(&file)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(folder.path())
            .output()
            .unwrap();
        if output.status.success() {
            both += 1;
            let ours: Vec<u8> = settings.iter().flat_map(|one| [listed(one), vec![0]].concat()).collect();
            assert_eq!(ours.escape_ascii().to_string(), output.stdout.escape_ascii().to_string(), "{}", path.display());
        }
    }
    assert!(both > 5, "git read only {both} of them");
}
