//! The rules of `deny.toml` as data, and pure decisions about packages.

use std::collections::BTreeSet;

use serde_json::Value;
use toml::Table;

use super::license;

/// Parts of `deny.toml` that this program evaluates.
#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// Triple of the system that the programs are built for.
    pub target: String,
    /// Licences that each suffice.
    licenses: Vec<String>,
    /// Crates that must not be built.
    banned: Vec<String>,
}

/// One package of the dependencies or of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    name: String,
    license: Option<String>,
    /// Origin of the package; `None` for a directory of this machine.
    source: Option<String>,
    is_member: bool,
}

impl Rules {
    /// Reads the file. The error is a sentence: a part that is missing would allow everything or nothing.
    pub fn read(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error| format!("{error}"))?;
        let list = |part: &str, key: &str| {
            let values = table.get(part).and_then(|part| part.get(key)).and_then(toml::Value::as_array);
            values.filter(|values| !values.is_empty()).ok_or_else(|| format!("[{part}] {key} is missing or empty"))
        };
        let names = |part: &str, key: &str, field: Option<&str>| -> Result<Vec<String>, String> {
            let name = |value: &toml::Value| {
                let value = field.map_or(Some(value), |field| value.get(field))?;
                value.as_str().map(str::to_owned)
            };
            let names = list(part, key)?.iter().map(name).collect::<Option<Vec<_>>>();
            names.ok_or_else(|| format!("[{part}] {key} has an entry of another form than expected"))
        };
        let mut targets = names("graph", "targets", None)?;
        Ok(Self {
            target: targets.swap_remove(0),
            licenses: names("licenses", "allow", None)?,
            banned: names("bans", "deny", Some("crate"))?,
        })
    }

    /// Returns every package whose licence is not among the allowed ones, one sentence each.
    pub fn unfit_licenses(&self, packages: &[Package]) -> Vec<String> {
        let is_fit = |package: &Package| {
            package.license.as_deref().is_some_and(|expression| license::is_allowed(expression, &self.licenses))
        };
        let sentence = |package: &Package| {
            let license = package.license.as_deref().unwrap_or("none");
            format!("{}: its licence is {license}", package.name)
        };
        packages.iter().filter(|package| !is_fit(package)).map(sentence).collect()
    }

    /// Returns the banned crates in `tree` (what `cargo tree --prefix none` prints: a package and its version in each line).
    pub fn banned(&self, tree: &str) -> Vec<String> {
        let is_built = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
        let built = self.banned.iter().filter(|name| is_built(name));
        built.map(|name| format!("{name} is built; `cargo tree -i {name}` says for which crate")).collect()
    }
}

/// Returns every package from a directory outside of the workspace, from git, or from a second registry, one sentence each.
/// The first registry that is named is the one of all.
pub fn foreign_sources(packages: &[Package]) -> Vec<String> {
    let mut registries = BTreeSet::new();
    let mut found = Vec::new();
    for package in packages {
        match &package.source {
            Some(source) if source.starts_with("registry+") || source.starts_with("sparse+") => {
                registries.insert(source.as_str());
                if registries.len() > 1 {
                    found.push(format!("{}: it comes from another registry than the rest: {source}", package.name));
                    registries.remove(source.as_str());
                }
            }
            Some(source) => found.push(format!("{}: it comes from {source}", package.name)),
            None if package.is_member => {}
            None => found.push(format!("{}: it comes from a directory outside of the workspace", package.name)),
        }
    }
    found
}

/// Reads the JSON of `cargo metadata --format-version 1`; `None` when a field is missing.
pub fn packages(json: &Value) -> Option<Vec<Package>> {
    let members: Vec<&str> = json["workspace_members"].as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let read = |package: &Value| {
        Some(Package {
            name: format!("{} {}", package["name"].as_str()?, package["version"].as_str()?),
            license: package["license"].as_str().map(str::to_owned),
            source: package["source"].as_str().map(str::to_owned),
            is_member: members.contains(&package["id"].as_str()?),
        })
    };
    json["packages"].as_array()?.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules() -> Rules {
        Rules::read(include_str!("../../../deny.toml")).unwrap()
    }

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        let own = |text: &str| text.to_owned();
        Package { name: own(name), license: license.map(own), source: source.map(own), is_member: false }
    }

    #[test]
    fn the_rules_of_this_repository_can_be_read() {
        let rules = rules();
        assert!(rules.licenses.iter().any(|license| license == "MIT"));
        assert!(!rules.licenses.iter().any(|license| license.contains("GPL")));
        assert!(["ring", "openssl-sys"].iter().all(|name| rules.banned.iter().any(|banned| banned == name)));
    }

    #[test]
    fn rules_without_a_part_are_refused() {
        let whole = include_str!("../../../deny.toml");
        for part in ["targets = ", "allow = ", "deny = "] {
            let text = whole.replace(part, &format!("other-{part}"));
            assert!(Rules::read(&text).is_err(), "{part}");
        }
        assert!(Rules::read("[graph]\ntargets = []").is_err());
        assert!(Rules::read("no file of this form").is_err());
    }

    #[test]
    fn a_package_with_another_licence_is_named() {
        let packages = [package("a 1", Some("MIT OR GPL-3.0-only"), None), package("b 1", Some("GPL-3.0-only"), None)];
        assert_eq!(rules().unfit_licenses(&packages), ["b 1: its licence is GPL-3.0-only"]);
        assert_eq!(rules().unfit_licenses(&[package("c 1", None, None)]), ["c 1: its licence is none"]);
    }

    #[test]
    fn a_crate_that_must_not_be_built_is_named() {
        let found = rules().banned("rustls v0.23.0\nring v0.17.0\nopenssl-sys v0.9.0 (*)\n");
        assert_eq!(found.len(), 2, "{found:?}");
        // A name inside another one is not the crate.
        assert!(rules().banned("bring v1.0.0\nring-buffer v1.0.0\n").is_empty());
    }

    #[test]
    fn a_package_from_elsewhere_than_the_registry_is_named() {
        let registry = Some("registry+https://example.invalid/index");
        let member = Package { is_member: true, ..package("nexus-x 1", None, None) };
        assert!(foreign_sources(&[member, package("a 1", None, registry), package("b 1", None, registry)]).is_empty());
        let packages = [
            package("a 1", None, registry),
            package("b 1", None, Some("registry+https://other.invalid/index")),
            package("c 1", None, Some("git+https://example.invalid/c#1")),
            package("d 1", None, None),
            package("e 1", None, registry),
        ];
        let found = foreign_sources(&packages);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().zip(["b 1:", "c 1:", "d 1:"]).all(|(line, start)| line.starts_with(start)), "{found:?}");
    }

    #[test]
    fn packages_are_read_from_the_metadata() {
        let json = json!({
            "workspace_members": ["path+file:///w#nexus-x@1.0.0"],
            "packages": [
                {"name": "nexus-x", "version": "1.0.0", "id": "path+file:///w#nexus-x@1.0.0", "license": "MIT", "source": null},
                {"name": "a", "version": "2.0.0", "id": "registry+x#a@2.0.0", "license": null, "source": "registry+x"},
            ]
        });
        let member = Package { is_member: true, ..package("nexus-x 1.0.0", Some("MIT"), None) };
        assert_eq!(packages(&json), Some(vec![member, package("a 2.0.0", None, Some("registry+x"))]));
        assert_eq!(packages(&json!({"packages": []})), None);
    }
}
