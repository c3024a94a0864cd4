//! Output of `cargo metadata` about this workspace, reduced to the fields that the checks need.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;

/// Kind of a dependency between crates of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// A normal or build dependency: part of what users get.
    Shipped,
    /// A dev-dependency: tests only.
    Dev,
}

/// One crate of the workspace.
#[derive(Debug, Clone)]
pub struct Package {
    /// The package name, such as `nexus-model`.
    pub name: String,
    /// Path of its `Cargo.toml`.
    pub manifest: PathBuf,
    /// The root files of its library and programs.
    pub roots: Vec<PathBuf>,
    /// The crates of this workspace that it uses.
    pub uses: Vec<(String, EdgeKind)>,
}

/// The workspace that this program was built from.
#[derive(Debug)]
pub struct Workspace {
    /// The directory with the root `Cargo.toml`.
    pub root: PathBuf,
    /// Directory into which cargo builds; may lie elsewhere (`CARGO_TARGET_DIR`).
    pub target: PathBuf,
    /// The member crates.
    pub packages: Vec<Package>,
}

/// The cargo that called us, so that a toolchain override stays in force.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

impl Workspace {
    /// Runs `cargo metadata` and reads its output.
    pub fn load() -> Result<Self, Failure> {
        let advice = "run `cargo metadata --no-deps` in the checkout and repair what it reports";
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::new(format!("cargo metadata did not start: {error}"), advice))?;
        if !output.status.success() {
            return Err(Failure::new(format!("cargo metadata: {}", output.status), advice));
        }
        let json: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::new(format!("cargo metadata wrote no JSON: {error}"), advice))?;
        Self::from_metadata(&json)
            .ok_or_else(|| Failure::new("cargo metadata has another form than format version 1", advice))
    }

    /// Reads the JSON of `cargo metadata --no-deps --format-version 1`; `None` when a field is missing.
    pub fn from_metadata(json: &Value) -> Option<Self> {
        let packages = json["packages"].as_array()?;
        // Only path dependencies are members; a registry crate of the same name must not count as one.
        let mut found = BTreeMap::new();
        for package in packages {
            let mut uses = Vec::new();
            for dependency in package["dependencies"].as_array()? {
                if dependency["path"].is_string() {
                    let dev = dependency["kind"].as_str() == Some("dev");
                    let kind = if dev { EdgeKind::Dev } else { EdgeKind::Shipped };
                    // `name` is the package, `rename` the alias in the manifest: an alias hides nothing.
                    uses.push((dependency["name"].as_str()?.to_owned(), kind));
                }
            }
            let mut roots = Vec::new();
            for target in package["targets"].as_array()? {
                let kinds = target["kind"].as_array()?;
                if kinds.iter().filter_map(Value::as_str).any(ships) {
                    roots.push(PathBuf::from(target["src_path"].as_str()?));
                }
            }
            let name = package["name"].as_str()?.to_owned();
            let manifest = PathBuf::from(package["manifest_path"].as_str()?);
            found.insert(name.clone(), Package { name, manifest, roots, uses });
        }
        Some(Self {
            root: PathBuf::from(json["workspace_root"].as_str()?),
            target: PathBuf::from(json["target_directory"].as_str()?),
            packages: found.into_values().collect(),
        })
    }
}

/// Returns whether a cargo target of this kind becomes part of a library, a program or a build.
fn ships(kind: &str) -> bool {
    !matches!(kind, "test" | "bench" | "example")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        serde_json::json!({
            "workspace_root": "/w", "target_directory": "/t",
            "packages": [{
                "name": "nexus-driver", "manifest_path": "/w/crates/driver/Cargo.toml",
                "dependencies": [
                    {"name": "nexus-jail", "kind": null, "path": "/w/crates/jail", "rename": "other"},
                    {"name": "nexus-testkit", "kind": "dev", "path": "/w/crates/testkit"},
                    {"name": "nexus-guest", "kind": "build", "path": "/w/crates/guest"},
                    {"name": "libc", "kind": null}
                ],
                "targets": [
                    {"kind": ["lib"], "src_path": "/w/crates/driver/src/lib.rs"},
                    {"kind": ["test"], "src_path": "/w/crates/driver/tests/x.rs"}
                ]
            }]
        })
    }

    #[test]
    fn path_dependencies_are_read_with_their_kind_and_real_name() {
        let workspace = Workspace::from_metadata(&metadata()).unwrap();
        let uses = [
            ("nexus-jail".to_owned(), EdgeKind::Shipped),
            ("nexus-testkit".to_owned(), EdgeKind::Dev),
            ("nexus-guest".to_owned(), EdgeKind::Shipped),
        ];
        assert_eq!(workspace.packages[0].uses, uses);
    }

    #[test]
    fn only_libraries_and_programs_are_roots() {
        let workspace = Workspace::from_metadata(&metadata()).unwrap();
        assert_eq!(workspace.packages[0].roots, [PathBuf::from("/w/crates/driver/src/lib.rs")]);
    }

    #[test]
    fn metadata_without_a_needed_field_is_refused() {
        let mut json = metadata();
        json["packages"][0]["dependencies"] = Value::Null;
        assert!(Workspace::from_metadata(&json).is_none());
    }
}
