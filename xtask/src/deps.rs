//! `check-deps`: reads what the rules of [`crate::rules`] judge.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::rules;
use crate::workspace::Workspace;

/// Compares the workspace with the dependency rules; every violation is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut found = rules::forbidden_edges(&workspace.packages);
    found.extend(rules::magnet_names(&workspace.packages));
    for package in &workspace.packages {
        if !rules::takes_workspace_lints(&read(&package.manifest)?) {
            found.push(format!("{}: Cargo.toml lacks `[lints] workspace = true`", package.name));
        }
        for root in &package.roots {
            if !rules::keeps_unsafe_out(&package.name, &read(root)?) {
                found.push(format!("{}: {} lacks #![forbid(unsafe_code)]", package.name, root.display()));
            }
        }
    }
    found.extend(rules::banned_in_lock(&read(&workspace.root.join("Cargo.lock"))?));
    if found.is_empty() {
        println!("check-deps: {} crates keep the rules", workspace.packages.len());
        return Ok(());
    }
    Err(Failure::new(
        format!("the architecture is not kept:\n  {}", found.join("\n  ")),
        "take the dependency out; if the design changed, change ARCHITECTURE.md and xtask/src/rules.rs together",
    ))
}

/// Reads a text file; a file that cannot be read fails the check that asked for it.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()), "the check needs this file: restore it from git")
    })
}
