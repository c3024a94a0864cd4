//! Finds the existing paths of the workspace that cannot be read inside: by patterns, and by usual names of secrets.
//!
//! A pattern without a slash matches a name at any depth, one with a slash a path from the workspace on, as in a
//! `.gitignore`. A matching symbolic link hides what it leads to, if that is in the workspace: the link itself says
//! nothing, its target says all. A directory that the search cannot look through is hidden as a whole: see `closed.rs`.

use crate::plan::closed;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use nexus_model::ByteText;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

const SECRETS: &[&str] = &[".env*", "*.pem", "*.key", "id_*", ".npmrc", ".pypirc", ".netrc"];

/// The paths to hide cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum HideError {
    /// A pattern cannot be used.
    #[error("{}: {reason}", pattern.as_deref().unwrap_or("the patterns together"))]
    Pattern {
        /// The pattern; none when each can be used and all together cannot.
        pattern: Option<String>,
        /// The answer of the reader of patterns.
        reason: String,
    },
    /// The workspace cannot be searched.
    #[error("the workspace could not be searched for what to hide: {source}")]
    Search {
        /// The answer of the system.
        source: walkdir::Error,
    },
}

impl HideError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "hide"
    }
}

/// Finds the paths, relative to the workspace, none below another.
pub fn find(patterns: &[String], secrets: bool, workspace: &Path) -> Result<Vec<ByteText>, HideError> {
    let builtin: &[&str] = if secrets { SECRETS } else { &[] };
    let all: Vec<&str> = patterns.iter().map(String::as_str).chain(builtin.iter().copied()).collect();
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let set = build(&all)?;
    let mut found = BTreeSet::new();
    let mut walk = WalkDir::new(workspace).min_depth(1).follow_links(false).into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.extend(unseen(error, workspace)?);
                continue;
            }
        };
        let Ok(relative) = entry.path().strip_prefix(workspace) else { continue };
        // The search would miss names in it. The command may open it, so that it is covered as a whole.
        if entry.file_type().is_dir() && !closed::is_open(entry.path()) {
            found.insert(relative.to_owned());
            walk.skip_current_dir();
            continue;
        }
        if !set.is_match(relative) {
            continue;
        }
        if entry.path_is_symlink() {
            found.extend(target_in(entry.path(), workspace));
            continue;
        }
        found.insert(relative.to_owned());
        if entry.file_type().is_dir() {
            walk.skip_current_dir();
        }
    }
    Ok(outermost(found))
}

/// Returns the path below the workspace that is to be covered because the search could not look at it; none where nothing is
/// there any more.
fn unseen(error: walkdir::Error, workspace: &Path) -> Result<Option<PathBuf>, HideError> {
    let kind = error.io_error().map(std::io::Error::kind);
    let below = error.path().and_then(|path| path.strip_prefix(workspace).ok());
    match (kind, below) {
        (Some(std::io::ErrorKind::NotFound), _) => Ok(None),
        (Some(std::io::ErrorKind::PermissionDenied), Some(below)) if !below.as_os_str().is_empty() => {
            Ok(Some(below.to_owned()))
        }
        _ => Err(HideError::Search { source: error }),
    }
}

fn target_in(link: &Path, workspace: &Path) -> Option<PathBuf> {
    let target = std::fs::canonicalize(link).ok()?;
    target.strip_prefix(workspace).ok().filter(|rest| !rest.as_os_str().is_empty()).map(Path::to_owned)
}

/// Leaves out the paths below a hidden directory: they are hidden already, and have no place to be covered at.
fn outermost(found: BTreeSet<PathBuf>) -> Vec<ByteText> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in found {
        // In their order what is below a path comes right behind it.
        if !kept.last().is_some_and(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    kept.into_iter().map(ByteText::from).collect()
}

/// Checks that a pattern can be used, and returns the reason where it cannot.
pub fn check(pattern: &str) -> Result<(), String> {
    glob(pattern).map(drop).map_err(|error| error.kind().to_string())
}

fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    let anchored = pattern.trim_start_matches('/');
    let full = if pattern.contains('/') { anchored.to_owned() } else { format!("**/{pattern}") };
    GlobBuilder::new(&full).literal_separator(true).build()
}

fn build(patterns: &[&str]) -> Result<GlobSet, HideError> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = glob(pattern).map_err(|error| HideError::Pattern {
            pattern: Some((*pattern).to_owned()),
            reason: error.kind().to_string(),
        })?;
        builder.add(glob);
    }
    builder.build().map_err(|error| HideError::Pattern { pattern: None, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(patterns: &[&str], secrets: bool) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        for file in ["a/.env", "a/b/server.pem", "config/prod", "plain", "keys/id_rsa", "keys/other"] {
            let path = workspace.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink("config/prod", workspace.join(".env.local")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", workspace.join(".env.outside")).unwrap();
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let found = find(&patterns, secrets, &workspace).unwrap();
        found.iter().map(|path| path.as_path().display().to_string()).collect()
    }

    #[test]
    fn a_name_matches_anywhere_and_a_path_from_the_top() {
        assert_eq!(hidden(&["*.pem"], false), ["a/b/server.pem"]);
        assert_eq!(hidden(&["/plain", "a/*"], false), ["a/.env", "a/b", "plain"]);
        assert_eq!(hidden(&["/server.pem"], false), [] as [&str; 0]);
    }

    #[test]
    fn secrets_are_hidden_also_behind_links() {
        assert_eq!(hidden(&[], true), ["a/.env", "a/b/server.pem", "config/prod", "keys/id_rsa"]);
        assert_eq!(hidden(&[], false), [] as [&str; 0]);
    }

    #[test]
    fn nothing_below_a_hidden_directory_is_named_again() {
        assert_eq!(hidden(&["keys", "keys/*"], false), ["keys"]);
    }

    #[test]
    fn a_broken_pattern_is_wrong_use() {
        let error = find(&["[".to_owned()], false, Path::new("/")).unwrap_err();
        assert!(matches!(error, HideError::Pattern { pattern: Some(_), .. }), "{error}");
    }
}
