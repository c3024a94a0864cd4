//! The Rust sources of the checkout: which there are, and which have grown too large.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::workspace::Workspace;

/// The directories that hold our sources.
const DIRECTORIES: &[&str] = &["bench", "crates", "fuzz", "tests", "xtask"];

/// One source file and its text.
pub struct Source {
    /// Relative to the root of the checkout.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
}

/// Every `*.rs` file below `folder`, in order of path.
pub fn below(root: &Path, directory: &Path) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    let mut open = vec![root.join(directory)];
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).map_err(|error| unreadable(&directory, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&directory, &error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| unreadable(&path, &error))?;
            if kind.is_dir() && entry.file_name() != "target" {
                open.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

/// Every Rust source of ours.
pub fn all(root: &Path) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        found.extend(below(root, Path::new(directory))?);
    }
    Ok(found)
}

/// Prints the ten largest source files: a file that does two things shows up here first.
pub fn print_largest(workspace: &Workspace) -> Result<(), Failure> {
    for (lines, path) in largest(&all(&workspace.root)?, 10) {
        println!("  {lines:>5} lines  {}", path.display());
    }
    Ok(())
}

/// The `count` files with most lines, largest first.
fn largest(sources: &[Source], count: usize) -> Vec<(usize, &Path)> {
    let mut sizes: Vec<_> = sources.iter().map(|source| (source.text.lines().count(), source.path.as_path())).collect();
    sizes.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(right.1)));
    sizes.truncate(count);
    sizes
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()), "the check needs to read every source of the checkout")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, lines: usize) -> Source {
        Source { path: PathBuf::from(path), text: "x\n".repeat(lines) }
    }

    #[test]
    fn the_largest_files_come_first_and_the_rest_is_left_out() {
        let sources = [source("a.rs", 1), source("b.rs", 3), source("c.rs", 2)];
        assert_eq!(largest(&sources, 2), [(3, Path::new("b.rs")), (2, Path::new("c.rs"))]);
    }

    #[test]
    fn this_very_file_is_found_below_its_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = below(root, Path::new("src")).unwrap();
        assert!(found.iter().any(|source| source.path == Path::new("src/sources.rs")));
    }

    #[test]
    fn a_directory_that_is_missing_is_a_failure_and_not_an_empty_list() {
        assert!(below(Path::new("/"), Path::new("no-such-folder-of-nexus")).is_err());
    }
}
