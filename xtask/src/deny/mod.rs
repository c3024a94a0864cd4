//! `check-deny`: licences, bans and sources of the dependencies, by the rules of `deny.toml`.
//!
//! cargo-deny reads the same file and runs too where it is installed. CI does not install it: its build takes longer than
//! all other checks together, while these three need no more than what cargo prints. The advisory database is left out,
//! since it has to be fetched.

mod license;
mod rules;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::deps::{self, read};
use crate::failure::Failure;
use crate::workspace::{Workspace, cargo};
use rules::Rules;

/// Compares all dependencies with `deny.toml`; every violation is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let advice = "take the dependency out, or change deny.toml on purpose";
    let rules = Rules::read(&read(&workspace.root.join("deny.toml"))?)
        .map_err(|what| Failure::new(format!("deny.toml: {what}"), "correct the file"))?;
    let packages = rules::packages(&metadata(workspace, &rules)?)
        .ok_or_else(|| Failure::new("cargo metadata has another form than format version 1", advice))?;
    let mut found = rules.unfit_licenses(&packages);
    found.extend(rules.banned(&deps::built(workspace)?));
    found.extend(rules::foreign_sources(&packages));
    if !found.is_empty() {
        return Err(Failure::new(format!("dependencies that are not allowed:\n  {}", found.join("\n  ")), advice));
    }
    println!("check-deny: {} packages keep licences, bans and sources; advisories are not checked", packages.len());
    cargo_deny(workspace)
}

/// Runs cargo-deny with the same three checks where it is installed.
fn cargo_deny(workspace: &Workspace) -> Result<(), Failure> {
    let deny = |words: &[&str]| {
        let mut command = Command::new(cargo());
        command.arg("deny").args(words).current_dir(&workspace.root).stdin(Stdio::null());
        command
    };
    let is_there = deny(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        println!("check-deny: cargo-deny is not installed and did not check the same");
        return Ok(());
    }
    let advice = "read what cargo-deny names above";
    let status = deny(&["--locked", "check", "bans", "licenses", "sources"])
        .status()
        .map_err(|error| Failure::new(format!("cargo deny did not start: {error}"), advice))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("cargo deny: {status}"), advice)) }
}

fn metadata(workspace: &Workspace, rules: &Rules) -> Result<Value, Failure> {
    let advice = "run `cargo metadata --locked` in the checkout and repair what it reports";
    let output = Command::new(cargo())
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &rules.target])
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("cargo metadata did not start: {error}"), advice))?;
    if !output.status.success() {
        return Err(Failure::new(format!("cargo metadata: {}", output.status), advice));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("cargo metadata wrote no JSON: {error}"), advice))
}
