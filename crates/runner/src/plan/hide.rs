//! Finds the existing paths of the workspace that cannot be read inside: by patterns, and by usual names of secrets.
//!
//! A pattern without a slash matches a name at any depth, one with a slash a path from the workspace on, as in a
//! `.gitignore`; `spelled` has the rest. A matching symbolic link hides what it leads to, if that is in the workspace:
//! the link itself says nothing, its target says all. A directory that the search cannot look through is hidden as a whole:
//! see `closed.rs`.

mod spelled;

use crate::plan::closed;
use crate::plan::shown::Shown;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use nexus_model::ByteText;
use nexus_policy::profile::Origin;
use spelled::{Meant, Spelled};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use walkdir::WalkDir;

pub use spelled::Top;

/// Searches before a workspace in which directories come and go is given up, and the time between two.
const SEARCHES: u32 = 8;
const BETWEEN: Duration = Duration::from_millis(25);

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
    /// A bind would show it at another place.
    #[error("{from} {} would show {} of the workspace, which is hidden, at {}", path.display(), hidden.display(), at.display())]
    Shown {
        /// The flag or file that asked for the bind.
        from: Origin,
        /// The path that it shows.
        path: PathBuf,
        /// The hidden path, from the workspace on.
        hidden: PathBuf,
        /// The place inside at which it would be seen.
        at: PathBuf,
    },
    /// A bind would be shown under a cover.
    #[error("{from} {} is to be shown at {}, and that is hidden with {} of the workspace", path.display(), at.display(), hidden.display())]
    Under {
        /// The flag or file that asked for the bind.
        from: Origin,
        /// The path on the host.
        path: PathBuf,
        /// The place inside.
        at: PathBuf,
        /// The hidden path, from the workspace on.
        hidden: PathBuf,
    },
    /// Directories went away during each of the searches, and may be at another name.
    #[error("directories of the workspace are moved or removed while it is searched for what to hide")]
    Restless,
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

/// The paths that patterns hide.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The paths, relative to the workspace, none below another.
    pub paths: Vec<ByteText>,
    /// The patterns that matched nothing, by their place in the list.
    pub unmatched: Vec<usize>,
}

/// Finds what patterns hide, and the usual names of secrets where that is asked for.
pub fn find(patterns: &[String], secrets: bool, top: Top<'_>) -> Result<Hidden, HideError> {
    let mut found = BTreeSet::new();
    let mut matched = vec![false; patterns.len()];
    // Each with the place of its pattern in the list; the usual names have none.
    let mut globs: Vec<(String, Option<usize>)> = Vec::new();
    for (at, meant) in meant(patterns, top)?.into_iter().enumerate() {
        match meant {
            Meant::Path(path) => {
                matched[at] = true;
                found.insert(path);
            }
            Meant::Pattern(pattern) => globs.push((pattern, Some(at))),
        }
    }
    if secrets {
        globs.extend(SECRETS.iter().map(|name| (format!("**/{name}"), None)));
    }
    if globs.is_empty() {
        return Ok(Hidden { paths: outermost(found), unmatched: Vec::new() });
    }
    let set = build(&globs)?;
    for _ in 0..SEARCHES {
        if let Some(hidden) = search(&globs, &set, top.workspace, found.clone(), matched.clone())? {
            return Ok(hidden);
        }
        std::thread::sleep(BETWEEN);
    }
    Err(HideError::Restless)
}

/// Looks through the workspace. `None`: a directory went away before it was looked at, so that it may be at a name that was passed.
fn search(
    globs: &[(String, Option<usize>)],
    set: &GlobSet,
    workspace: &Path,
    mut found: BTreeSet<PathBuf>,
    mut matched: Vec<bool>,
) -> Result<Option<Hidden>, HideError> {
    let mut has_closed = false;
    let mut walk = WalkDir::new(workspace).min_depth(1).follow_links(false).into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let Some(closed) = unseen(error, workspace)? else { return Ok(None) };
                has_closed = true;
                found.insert(closed);
                continue;
            }
        };
        let Ok(relative) = entry.path().strip_prefix(workspace) else { continue };
        let hits = set.matches(relative);
        // The search would miss names in it. The command may open it, so that it is covered as a whole.
        if entry.file_type().is_dir() && !closed::is_open(entry.path()) {
            if is_gone(entry.path()) {
                return Ok(None);
            }
            found.insert(relative.to_owned());
            has_closed = true;
            for at in hits.into_iter().filter_map(|hit| globs[hit].1) {
                matched[at] = true;
            }
            walk.skip_current_dir();
            continue;
        }
        if hits.is_empty() {
            continue;
        }
        let target =
            if entry.path_is_symlink() { target_in(entry.path(), workspace) } else { Some(relative.to_owned()) };
        let Some(target) = target else { continue };
        found.insert(target);
        for at in hits.into_iter().filter_map(|hit| globs[hit].1) {
            matched[at] = true;
        }
        // Another pattern may match nothing but what lies below.
        if entry.file_type().is_dir() && matched.iter().all(|one| *one) {
            walk.skip_current_dir();
        }
    }
    // What a pattern matches may lie where the search cannot look.
    let unmatched = (0..matched.len()).filter(|at| !matched[*at] && !has_closed).collect();
    Ok(Some(Hidden { paths: outermost(found), unmatched }))
}

/// Refuses a bind that shows a hidden path, or that would lie under its cover. At its own place it lies over the cover, and what the host or another run does in the
/// bound directory takes a cover away that lies on it.
pub fn check_bind(hidden: &[ByteText], top: Top<'_>, shown: &Shown) -> Result<(), HideError> {
    if shown.made.is_some() {
        return Ok(());
    }
    let (source, target) = (shown.bind.source.as_path(), shown.bind.target.as_path());
    for hidden in hidden {
        let own = top.workspace.join(hidden.as_path());
        let at = match own.strip_prefix(source) {
            Ok(rest) if rest.as_os_str().is_empty() => target.to_owned(),
            Ok(rest) => target.join(rest),
            // The bind shows the hidden path itself, or something in it.
            Err(_) if source.starts_with(&own) => target.to_owned(),
            Err(_) if target.starts_with(top.inside.join(hidden.as_path())) => {
                let (from, path) = (shown.from.clone(), source.to_owned());
                let (at, hidden) = (target.to_owned(), hidden.as_path().to_owned());
                return Err(HideError::Under { from, path, at, hidden });
            }
            Err(_) => continue,
        };
        let (from, path, hidden) = (shown.from.clone(), source.to_owned(), hidden.as_path().to_owned());
        return Err(HideError::Shown { from, path, hidden, at });
    }
    Ok(())
}

/// Refuses patterns that cannot be used in this workspace, without a search.
pub fn check_in(patterns: &[String], top: Top<'_>) -> Result<(), HideError> {
    meant(patterns, top).map(drop)
}

fn meant(patterns: &[String], top: Top<'_>) -> Result<Vec<Meant>, HideError> {
    let one = |pattern: &String| {
        let spelled = Spelled::read(pattern).and_then(|spelled| spelled.meant(top));
        let checked = spelled.and_then(|meant| match meant {
            Meant::Pattern(text) => glob(&text).map(|_| Meant::Pattern(text)).map_err(|error| error.kind().to_string()),
            Meant::Path(path) => Ok(Meant::Path(path)),
        });
        checked.map_err(|reason| HideError::Pattern { pattern: Some(pattern.clone()), reason })
    };
    patterns.iter().map(one).collect()
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

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
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

/// Reads a pattern of paths from the workspace on.
fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).build()
}

fn build(globs: &[(String, Option<usize>)]) -> Result<GlobSet, HideError> {
    let together = |error: globset::Error| HideError::Pattern { pattern: None, reason: error.to_string() };
    let mut builder = GlobSetBuilder::new();
    for (pattern, _) in globs {
        builder.add(glob(pattern).map_err(together)?);
    }
    builder.build().map_err(together)
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
        let found = find(&patterns, secrets, Top { workspace: &workspace, inside: &workspace }).unwrap();
        found.paths.iter().map(|path| path.as_path().display().to_string()).collect()
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
    fn a_pattern_that_matches_nothing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(workspace.join("keys")).unwrap();
        std::fs::write(workspace.join("keys/a.pem"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", workspace.join("out")).unwrap();
        let patterns = ["*.pem", "keys/a.pem", "keys/b.pem", "o*t", "k*/**", "*.key"].map(str::to_owned);
        let found = find(&patterns, true, Top { workspace: &workspace, inside: &workspace }).unwrap();
        assert_eq!((found.paths, found.unmatched), (vec![PathBuf::from("keys/a.pem").into()], vec![2, 3, 5]));
    }

    #[test]
    fn a_directory_that_moves_during_the_search_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(workspace.join("a")).unwrap();
        std::fs::write(workspace.join("a/prod.key"), "x").unwrap();
        let (top, ends) =
            (Top { workspace: &workspace, inside: &workspace }, std::sync::atomic::AtomicBool::new(false));
        let (mut found, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(workspace.join("a"), workspace.join("b")).unwrap();
                    std::fs::rename(workspace.join("b"), workspace.join("a")).unwrap();
                }
            });
            for _ in 0..300 {
                match find(&[], true, top) {
                    Ok(hidden) => {
                        found += usize::from(!hidden.paths.is_empty());
                        if hidden.paths.is_empty() {
                            break;
                        }
                    }
                    Err(HideError::Restless) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(found + refused, 300, "{found} found, {refused} refused");
    }

    #[test]
    fn a_bind_is_not_shown_under_a_cover() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = std::fs::canonicalize(dir.path()).unwrap();
        let top = Top { workspace: &workspace, inside: Path::new("/inside") };
        let check = |source: &Path, target: &str, hidden: &str| {
            let bind = nexus_model::plan::Bind {
                source: source.into(),
                target: Path::new(target).into(),
                access: nexus_model::plan::Access::ReadOnly,
            };
            let from = Origin::Flag("--ro".to_owned());
            let shown = Shown { bind, made: None, why: None, from, by_operator: false };
            check_bind(&[PathBuf::from(hidden).into()], top, &shown)
        };
        for target in ["/inside/config", "/inside/config/deep"] {
            assert!(matches!(check(Path::new("/other"), target, "config"), Err(HideError::Under { .. })), "{target}");
        }
        for (target, hidden) in [("/inside/conf", "config"), ("/inside/config", "config/deep"), ("/config", "config")] {
            assert!(check(Path::new("/other"), target, hidden).is_ok(), "{target} {hidden}");
        }
        let shown = check(&workspace.join("config"), "/inside/config", "config");
        assert!(matches!(shown, Err(HideError::Shown { .. })), "what it shows comes first");
    }

    #[test]
    fn a_broken_pattern_is_wrong_use() {
        let top = Top { workspace: Path::new("/"), inside: Path::new("/") };
        let error = find(&["[".to_owned()], false, top).unwrap_err();
        assert!(matches!(error, HideError::Pattern { pattern: Some(_), .. }), "{error}");
    }
}
