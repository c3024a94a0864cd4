//! Checks that the fuzzed code is the shipped code: the package `fuzz` has a lock file of its own, which could fall
//! behind.

use std::collections::BTreeSet;

/// Every package that both lock files name, in a version of `fuzzed` that `shipped` does not have.
pub fn apart(shipped: &str, fuzzed: &str) -> Vec<String> {
    let ours: BTreeSet<(&str, &str)> = packages(shipped).collect();
    packages(fuzzed)
        .filter(|(name, _)| ours.iter().any(|(known, _)| known == name))
        .filter(|package| !ours.contains(package))
        .map(|(name, version)| format!("{name} {version}"))
        .collect()
}

/// Name and version of each `[[package]]`; cargo writes them in this order.
fn packages(lock: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = lock.lines();
    std::iter::from_fn(move || {
        let name = lines.by_ref().find(|line| line.starts_with("name = "))?;
        let version = lines.by_ref().find(|line| line.starts_with("version = "))?;
        Some((value(name), value(version)))
    })
}

fn value(line: &str) -> &str {
    line.split('"').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SHIPPED: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\n\
                           version = \"2.0.0\"\n\n[[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";

    #[test]
    fn only_a_package_of_both_in_another_version_is_apart() {
        assert_eq!(apart(SHIPPED, SHIPPED), Vec::<String>::new());
        assert_eq!(apart(SHIPPED, &SHIPPED.replace("\"a\"", "\"c\"")), Vec::<String>::new());
        assert_eq!(apart(SHIPPED, &SHIPPED.replace("2.0.0", "2.0.1")), ["b 2.0.1"]);
    }

    #[test]
    fn the_lock_files_of_this_checkout_are_read_and_agree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = |lock: &str| std::fs::read_to_string(root.join(lock)).unwrap();
        assert_eq!(apart(&text("Cargo.lock"), &text("fuzz/Cargo.lock")), Vec::<String>::new());
        for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
            let text = std::fs::read_to_string(root.join(lock)).unwrap();
            assert!(packages(&text).any(|(name, version)| name == "vte" && version.starts_with("0.")), "{lock}");
        }
    }
}
