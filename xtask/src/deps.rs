//! `check-deps`: reads the files that the rules of [`crate::rules`] evaluate.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::circles;
use crate::crate_table;
use crate::failure::Failure;
use crate::rules::{self, CirclesOf};
use crate::sources;
use crate::workspace::{Workspace, cargo};

/// Compares the workspace with the dependency rules; every violation is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut found = rules::forbidden_edges(&workspace.packages);
    found.extend(rules::unused_edges(&workspace.packages));
    found.extend(rules::magnet_names(&workspace.packages));
    found.extend(crate_table::differences(&read(&workspace.root.join("ARCHITECTURE.md"))?, rules::MAY_USE));
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
    let circles = circles_of(workspace)?;
    found.extend(rules::circles_of_modules(&circles));
    if found.is_empty() {
        println!("check-deps: {} crates keep the rules", workspace.packages.len());
        return Ok(());
    }
    Err(Failure::new(
        format!("the architecture is not kept:\n  {}", found.join("\n  ")),
        "take the dependency out; if the design changed, change ARCHITECTURE.md and xtask/src/rules.rs together",
    ))
}

/// Finds the circles of modules in each crate, and of directories where they count; the crates by their short names.
fn circles_of(workspace: &Workspace) -> Result<Vec<CirclesOf>, Failure> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        let Some(source) = package.manifest.parent().map(|home| home.join("src")) else { continue };
        let files = sources::below(&source, Path::new(""))?;
        let files: Vec<_> = files
            .iter()
            .filter_map(|file| Some(circles::File { path: file.path.to_str()?, text: &file.text }))
            .collect();
        let name = rules::short_name(&package.name);
        found.push((name.to_owned(), circles::find(&files)));
        if rules::DIRECTORIES_IN_ORDER.contains(&name) {
            found.push((name.to_owned(), circles::find_directories(&files)));
        }
    }
    Ok(found)
}

/// Returns every package that is built for this workspace on this machine, one a line. `Cargo.lock` lists more:
/// packages for other systems, or for features that are switched off.
pub fn built(workspace: &Workspace) -> Result<String, Failure> {
    let advice = "run `cargo tree --workspace` and fix what it names";
    let output = Command::new(cargo())
        .args(["tree", "--workspace", "--locked", "--edges", "normal,build,dev", "--prefix", "none"])
        .current_dir(&workspace.root)
        .output()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), advice))?;
    if !output.status.success() {
        return Err(Failure::new(format!("cargo tree ended with {}", output.status), advice));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads a text file; a file that cannot be read fails the check that asked for it.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()), "the check needs this file: restore it from git")
    })
}
