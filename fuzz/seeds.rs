//! For the ordinary tests of the crates: every file of `seeds/TARGET` through its property. An input that broke one lies
//! there from then on, under a name that says what it is.
//!
//! `NEXUS_FUZZ_CORPUS` names a folder with one folder for each target, such as `target/fuzz/corpus`, to be tried as well.

use std::fs;
use std::path::{Path, PathBuf};

/// The inputs of a target with their names.
pub fn of(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    // Crates lie at different depths.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|directory| directory.join("fuzz/seeds"));
    let kept = above.find(|directory| directory.is_dir()).unwrap().join(target);
    let grown = std::env::var_os("NEXUS_FUZZ_CORPUS").map(|folder| Path::new(&folder).join(target));
    let mut found = Vec::new();
    for folder in [Some(kept), grown].into_iter().flatten() {
        let before = found.len();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
        assert!(found.len() > before, "{} is empty", folder.display());
    }
    found.sort();
    found
}

/// Calls the property with each. The one that breaks it is named on stderr, behind the panic.
pub fn each(target: &str, property: fn(&[u8])) {
    for (path, bytes) in of(target) {
        if let Err(broken) = std::panic::catch_unwind(|| property(&bytes)) {
            eprintln!("broken by {}", path.display());
            std::panic::resume_unwind(broken);
        }
    }
}
