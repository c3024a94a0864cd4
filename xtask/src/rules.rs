//! The dependency rules as data and pure functions: no files, no processes.
//!
//! The list is the one of ARCHITECTURE.md, and has no edge that no crate uses. It is changed on purpose, when the design changes, and never to make a
//! build pass: an edge from a pure crate to one with rights is how a policy decision starts to depend on the network.

use crate::workspace::{EdgeKind, Package};

/// Crates that each crate may use in the shipped programs, by short name (without `nexus-`).
pub const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("policy", &["model"]),
    ("api", &["model"]),
    ("channel", &["model"]),
    ("jail", &["channel", "model"]),
    ("guest", &["channel", "model"]),
    ("driver", &["channel", "model"]),
    ("driver-namespace", &["driver", "channel", "jail", "guest", "model"]),
    ("beneath", &["model"]),
    ("git", &["beneath", "model"]),
    ("layer", &["beneath", "git", "model"]),
    ("snapshot", &["beneath", "model"]),
    ("image", &["beneath"]),
    ("facility", &["snapshot", "layer", "model"]),
    ("egress", &["policy", "model"]),
    ("profiles", &["policy", "model"]),
    ("receipt", &["model"]),
    ("secrets", &[]),
    ("terminal", &[]),
    (
        "caller",
        &[
            "runner",
            "layer",
            "git",
            "egress",
            "driver",
            "driver-namespace",
            "policy",
            "model",
            "profiles",
            "receipt",
            "terminal",
        ],
    ),
    (
        "fleet",
        &[
            "caller",
            "nexusd",
            "mothership",
            "runner",
            "layer",
            "facility",
            "driver",
            "driver-namespace",
            "api",
            "policy",
            "model",
            "profiles",
            "receipt",
            "terminal",
        ],
    ),
    ("changes", &["caller", "runner", "layer", "model", "terminal"]),
    ("hints", &["caller", "driver", "runner", "egress", "policy", "profiles", "model"]),
    ("mcp", &["caller", "runner", "model"]),
    ("history", &["caller", "runner", "receipt", "policy", "model"]),
    ("sessions", &["caller", "runner", "policy", "profiles", "model", "terminal"]),
    ("warm", &["caller", "runner", "driver-namespace", "profiles", "model"]),
    ("doctor", &["caller", "driver", "driver-namespace", "model", "escape"]),
    // The leases of files are the one thing that it has of a single driver, until its caller hands them in.
    ("runner", &["driver", "driver-namespace", "egress", "layer", "receipt", "secrets", "policy", "model"]),
    ("mothership", &["api", "policy", "model", "terminal"]),
    ("nexusd", &["runner", "api", "driver", "driver-namespace", "facility", "egress", "policy", "model"]),
    (
        "cli",
        &[
            "caller",
            "changes",
            "hints",
            "history",
            "mcp",
            "sessions",
            "warm",
            "doctor",
            "fleet",
            "runner",
            "layer",
            "facility",
            "image",
            "egress",
            "driver",
            "driver-namespace",
            "api",
            "policy",
            "model",
            "profiles",
            "receipt",
            "terminal",
        ],
    ),
    ("escape", &[]),
    ("vm", &[]),
    ("bench", &[]),
    ("xtask", &[]),
];

/// Crates that the tests of one crate may use on top: the model test of commits takes real leases, which are `unsafe`
/// calls; the toolchain git is tested with the reader of git configurations that the program hands to it; the recovery that tests of the
/// daemon play names a workspace; a test of the escape suite compares its list of confinements with the one of the driver.
const TESTS_OF_ONE: &[(&str, &str)] =
    &[("layer", "jail"), ("profiles", "git"), ("nexusd", "layer"), ("escape", "driver-namespace")];

/// Crates whose directories must not use each other in a circle.
pub const DIRECTORIES_IN_ORDER: &[&str] = &["layer", "fleet"];

/// Crates in which `unsafe` may stand: the launcher, PID 1, and the hostile test code.
const UNSAFE_ALLOWED: &[&str] = &["jail", "guest", "escape"];

/// Names that attract everything and mean nothing.
const MAGNET_NAMES: &[&str] = &["core", "common", "util", "utils", "shared", "misc"];

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

/// `nexus-model` is `model`; `xtask` and `nexusd` are themselves.
pub fn short_name(package: &str) -> &str {
    package.strip_prefix("nexus-").unwrap_or(package)
}

/// Every dependency of `packages` that the list does not allow, one sentence each.
pub fn forbidden_edges(packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let name = short_name(&package.name);
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            found.push(format!("{name}: is not in the list of xtask/src/rules.rs"));
            continue;
        };
        for (used, kind) in &package.uses {
            let used = short_name(used);
            if used == name && *kind == EdgeKind::Dev {
                // The tests of a crate may switch its own features on.
                continue;
            }
            let in_tests = *kind == EdgeKind::Dev && TESTS_OF_ONE.contains(&(name, used));
            if !allowed.contains(&used) && !in_tests {
                let how = match kind {
                    EdgeKind::Shipped => "depends on",
                    EdgeKind::Dev => "has a dev-dependency on",
                };
                found.push(format!("{name}: {how} {used}, which it may not"));
            }
        }
    }
    found
}

/// Every row and edge of the list that the workspace does not have, one sentence each. With such an edge in the list
/// the check could not notice a crate that starts to use it.
pub fn unused_edges(packages: &[Package]) -> Vec<String> {
    let uses = |name: &str, used: &str, kind: EdgeKind| {
        let package = packages.iter().find(|package| short_name(&package.name) == name);
        package.is_some_and(|package| package.uses.iter().any(|(one, of)| short_name(one) == used && *of == kind))
    };
    let mut found = Vec::new();
    for (name, allowed) in MAY_USE {
        if !packages.iter().any(|package| short_name(&package.name) == *name) {
            found.push(format!("{name}: is in the list of xtask/src/rules.rs, and there is no such crate"));
            continue;
        }
        let unused = allowed.iter().filter(|used| !uses(name, used, EdgeKind::Shipped));
        found.extend(unused.map(|used| format!("{name}: may depend on {used}, and does not")));
    }
    let tests = TESTS_OF_ONE.iter().filter(|(name, used)| !uses(name, used, EdgeKind::Dev));
    found.extend(tests.map(|(name, used)| format!("{name}: its tests may use {used}, and do not")));
    found
}

/// Every crate with a name that says nothing.
pub fn magnet_names(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter(|package| MAGNET_NAMES.contains(&short_name(&package.name)))
        .map(|package| format!("{}: a crate is named for what it does", package.name))
        .collect()
}

/// Returns whether the root file `text` of crate `package` keeps `unsafe` out as it must.
pub fn keeps_unsafe_out(package: &str, text: &str) -> bool {
    UNSAFE_ALLOWED.contains(&short_name(package)) || text.lines().any(|line| line.trim() == FORBID_UNSAFE)
}

/// Returns whether a manifest takes the lints of the workspace; without this a crate quietly has none.
pub fn takes_workspace_lints(manifest: &str) -> bool {
    let mut in_lints = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_lints = line == "[lints]";
        } else if in_lints && line.replace(' ', "") == "workspace=true" {
            return true;
        }
    }
    false
}

/// A crate by its short name, and its circles of modules.
pub type CirclesOf = (String, Vec<Vec<String>>);

/// Every crate with modules in circles.
pub fn circles_of_modules(crates: &[CirclesOf]) -> Vec<String> {
    let with_circles = crates.iter().filter(|(_, circles)| !circles.is_empty());
    with_circles
        .map(|(name, circles)| {
            let count: usize = circles.iter().map(Vec::len).sum();
            let named: Vec<_> = circles.iter().map(|circle| circle.join(", ")).collect();
            format!("{name}: {count} modules stand in circles: {}", named.join("; "))
        })
        .collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
