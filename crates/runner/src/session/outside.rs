//! Files of a workspace that came to their names after a sandbox had started: a layer shows those that were read before as they
//! were.
//!
//! The kernel does not tell whether the command had read a file, so that every file counts that was replaced or made outside. The
//! search is bounded in entries and time, and goes through no link.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bounds of one search.
const MAX_ENTRIES: usize = 20_000;
const MAX_TIME: Duration = Duration::from_millis(100);
/// Files that are named.
const MAX_NAMED: usize = 3;
/// Directories in which programs of the host write without an editor.
const LEFT_OUT: &[&str] = &[".git", "node_modules", "target", ".venv", "__pycache__"];

/// The files that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Paths in the workspace, the first few.
    pub named: Vec<PathBuf>,
    /// Number of all.
    pub count: usize,
}

impl Outside {
    /// Looks for files that were made after this time, in milliseconds since 1970.
    pub fn find(workspace: &Path, started_ms: u64) -> Self {
        let started = UNIX_EPOCH + Duration::from_millis(started_ms);
        let (mut found, mut left, until) = (Self::default(), MAX_ENTRIES, Instant::now() + MAX_TIME);
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            // One that cannot be read, or that went meanwhile, has nothing to name.
            let Ok(entries) = std::fs::read_dir(workspace.join(&directory)) else { continue };
            for entry in entries.flatten() {
                if left == 0 || Instant::now() >= until {
                    return found;
                }
                left -= 1;
                let Ok(kind) = entry.file_type() else { continue };
                let path = directory.join(entry.file_name());
                if kind.is_dir() {
                    if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                        directories.push(path);
                    }
                } else if kind.is_file() && entry.metadata().is_ok_and(|meta| is_newer(&meta, started)) {
                    found.count += 1;
                    if found.named.len() < MAX_NAMED {
                        found.named.push(path);
                    }
                }
            }
        }
        found
    }
}

/// Reports whether a file was made after the start. A file that takes the place of another one is new; one that is written
/// in place is seen inside, and is not new.
fn is_newer(meta: &std::fs::Metadata, started: SystemTime) -> bool {
    meta.created().is_ok_and(|made| made > started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn replaced_files_are_named_and_those_written_in_place_are_not() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("src")).unwrap();
        fs::create_dir_all(top.path().join(".git")).unwrap();
        for name in ["src/a", "src/b"] {
            fs::write(top.path().join(name), "old").unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(Outside::find(top.path(), now), Outside::default());
        fs::write(top.path().join("src/b"), "in place").unwrap();
        fs::write(top.path().join("src/new"), "new").unwrap();
        fs::rename(top.path().join("src/new"), top.path().join("src/a")).unwrap();
        fs::write(top.path().join(".git/index"), "x").unwrap();
        std::os::unix::fs::symlink("..", top.path().join("src/up")).unwrap();
        let found = Outside::find(top.path(), now);
        assert_eq!(found, Outside { named: vec!["src/a".into()], count: 1 });
    }
}
