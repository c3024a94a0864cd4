//! Remembers the searches for logins of earlier runs: a run asks whether each directory is as it was, which is one call
//! for a directory, and lists only what differs.
//!
//! ```text
//!  file of the state directory ─▶ Searches ─▶ of: same device, inode and change time of every directory?
//!                                               ├─ yes: the names that were found before
//!                                               └─ no, or never searched: a search ─▶ keep ─▶ file
//! ```
//! The kernel sets the change time of a directory (`st_ctime` of inode(7)) whenever a name in it is made, removed or
//! renamed, and no program can set it back. A search is kept only where that holds and says enough: on local file systems,
//! for directories without a change in the seconds before (a clock may be coarse), and where every one could be read.

use rustix::fd::OwnedFd;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Changes with the form of the file.
const FORM: &str = "1";
/// Maximum number of searches that are kept.
const MAX_SEARCHES: usize = 64;
/// Maximum number of directories of a search that is kept: to ask about more of them costs as much as a search.
const MAX_DIRECTORIES: usize = 2000;
/// Age of the last change of a directory in seconds from which it tells of each later one.
const SETTLED: i64 = 2;
/// File systems with change times that are their own: ext4, XFS, Btrfs, F2FS, tmpfs, ZFS (statfs(2)).
const LOCAL: &[i64] = &[0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994, 0x2FC1_2FC1];

/// Searches of earlier runs and of this one.
#[derive(Debug, Default)]
pub struct Searches {
    /// Name of the rules by which the searches were made.
    rules: String,
    kept: BTreeMap<String, Search>,
    used: BTreeSet<String>,
    is_changed: bool,
    /// True once the searches of other rules were forgotten.
    has_obeyed: bool,
}

/// Names that one search found, with the state of each directory that it listed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Search {
    directories: Vec<(PathBuf, Stamp)>,
    /// Files that may hold logins by their names.
    pub(super) logins: Vec<PathBuf>,
    /// Sockets and named pipes.
    pub(super) sockets: Vec<PathBuf>,
    /// Places of settings in directories of libraries, whether there are any or not.
    pub(super) of_libraries: Vec<PathBuf>,
    /// False if the same search may find something else later although no directory differs.
    #[serde(skip)]
    pub(super) is_lasting: bool,
    #[serde(skip)]
    now: i64,
    #[serde(skip)]
    local: BTreeSet<u64>,
}

/// Identity of a directory and the time of its last change in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp(u64, u64, i64, i64);

impl From<&Stat> for Stamp {
    fn from(stat: &Stat) -> Self {
        // The types of these fields differ between processors.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "see above")]
        Self(stat.st_dev as u64, stat.st_ino as u64, stat.st_ctime as i64, stat.st_ctime_nsec as i64)
    }
}

#[derive(Serialize, Deserialize)]
struct Document<S> {
    rules: String,
    searches: S,
}

impl Search {
    /// Begins a search.
    pub(super) fn begin() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        Self {
            directories: Vec::new(),
            logins: Vec::new(),
            sockets: Vec::new(),
            of_libraries: Vec::new(),
            is_lasting: true,
            now,
            local: BTreeSet::new(),
        }
    }

    /// Notes the state of a directory before it is listed.
    pub(super) fn looked_at(&mut self, path: &Path, directory: &OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(directory) else {
            self.is_lasting = false;
            return;
        };
        let stamp = Stamp::from(&stat);
        if !self.local.contains(&stamp.0) {
            match rustix::fs::fstatfs(directory) {
                Ok(found) if LOCAL.contains(&found.f_type) => {
                    self.local.insert(stamp.0);
                }
                _ => self.is_lasting = false,
            }
        }
        let is_settled = stamp.2 + SETTLED < self.now;
        self.is_lasting &= is_settled && path.to_str().is_some() && self.directories.len() < MAX_DIRECTORIES;
        if self.is_lasting {
            self.directories.push((path.to_owned(), stamp));
        }
    }

    /// Reports whether every directory is as it was.
    fn holds(&self) -> bool {
        self.directories
            .iter()
            .all(|(path, stamp)| rustix::fs::lstat(path).is_ok_and(|stat| Stamp::from(&stat) == *stamp))
    }
}

impl Searches {
    /// Reads what [`Self::changed`] returned in an earlier run. What is damaged counts as nothing.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        match serde_json::from_slice::<Document<BTreeMap<String, Search>>>(bytes) {
            Ok(Document { rules, searches }) => Self { rules, kept: searches, ..Self::default() },
            Err(_) => Self::default(),
        }
    }

    /// Forgets what was found by other rules than these words, which stay the same while a program runs.
    pub(super) fn obey<I: Iterator<Item = &'static str>>(&mut self, rules: impl FnOnce() -> I) {
        if self.has_obeyed {
            return;
        }
        self.has_obeyed = true;
        let mut hash = blake3::Hasher::new();
        let mut words = String::with_capacity(4096);
        for word in [FORM, env!("CARGO_PKG_VERSION")].into_iter().chain(rules()) {
            words.push_str(word);
            words.push('\n');
        }
        hash.update(words.as_bytes());
        let rules = hash.finalize().to_hex()[..16].to_owned();
        if rules != self.rules {
            *self = Self { rules, has_obeyed: true, ..Self::default() };
        }
    }

    /// Returns the text of the file, if it has to be written again.
    #[must_use]
    pub fn changed(&self) -> Option<Vec<u8>> {
        if !self.is_changed {
            return None;
        }
        let fresh = self.kept.iter().filter(|(key, _)| self.used.contains(*key));
        let others = self.kept.iter().filter(|(key, _)| !self.used.contains(*key));
        let searches: BTreeMap<&String, &Search> = fresh.chain(others).take(MAX_SEARCHES).collect();
        // Each path of a search that is kept is text.
        serde_json::to_vec(&Document { rules: self.rules.clone(), searches }).ok()
    }

    /// Returns the search of this kind of an earlier run, if it would find the same now.
    pub(super) fn of(&mut self, shown: &Path, kind: &'static str) -> Option<&Search> {
        let key = key(shown, kind)?;
        let search = self.kept.get(&key).filter(|search| search.holds())?;
        self.used.insert(key);
        Some(search)
    }

    /// Keeps a search for later runs, if it says enough.
    pub(super) fn keep(&mut self, shown: &Path, kind: &'static str, search: Search) {
        let Some(key) = key(shown, kind) else { return };
        let paths = [&search.logins, &search.sockets, &search.of_libraries].into_iter().flatten();
        if !search.is_lasting || paths.into_iter().any(|path| path.to_str().is_none()) {
            self.is_changed |= self.kept.remove(&key).is_some();
            return;
        }
        self.kept.insert(key.clone(), search);
        self.used.insert(key);
        self.is_changed = true;
    }
}

fn key(shown: &Path, kind: &str) -> Option<String> {
    shown.to_str().map(|shown| format!("{kind} {shown}"))
}

#[cfg(test)]
mod tests {
    use super::super::logins::{self, Libraries};
    use super::*;
    use std::time::{Duration, Instant};

    const A: &str = "a";
    const B: &str = "b";

    /// A tree whose directories are old enough, in the eyes of a search that begins ten seconds later.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/npmrc"), "").unwrap();
        (dir, root)
    }

    fn searched(root: &Path, later: i64) -> Search {
        let mut search = Search::begin();
        search.now += later;
        for name in ["", "a", "a/b"] {
            let path = root.join(name);
            let opened = std::fs::File::open(&path).unwrap();
            search.looked_at(&path, &opened.into());
        }
        search.logins.push(root.join("a/npmrc"));
        search
    }

    #[test]
    fn a_search_holds_until_a_directory_changes() {
        let (_dir, root) = tree();
        let mut known = Searches::default();
        known.keep(&root, A, searched(&root, 10));
        let bytes = known.changed().unwrap();
        let again = || Searches::read(&bytes);
        assert_eq!(again().of(&root, A).unwrap().logins, [root.join("a/npmrc")]);
        assert!(again().changed().is_none(), "nothing is to be written");
        assert!(again().of(&root, B).is_none() && again().of(&root.join("a"), A).is_none());
        // In the last directory, by a new name alone; and a search finds it.
        std::fs::write(root.join("a/b/pip.conf"), "").unwrap();
        let mut known = again();
        assert!(known.of(&root, A).is_none());
        known.keep(&root, A, searched(&root, 0));
        assert!(Searches::read(&known.changed().unwrap()).kept.is_empty(), "nor is the old one kept");
    }

    #[test]
    fn another_directory_of_the_same_name_is_searched() {
        let (_dir, root) = tree();
        let mut known = Searches::default();
        known.keep(&root, A, searched(&root, 10));
        std::fs::rename(root.join("a/b"), root.join("a/c")).unwrap();
        std::fs::rename(root.join("a/c"), root.join("a/b")).unwrap();
        assert!(known.of(&root, A).is_none(), "renamed and back");
        known.keep(&root, A, searched(&root, 10));
        assert!(known.of(&root, A).is_some());
        std::fs::rename(root.join("a"), root.join("z")).unwrap();
        std::os::unix::fs::symlink("z", root.join("a")).unwrap();
        assert!(known.of(&root, A).is_none(), "a link");
    }

    #[test]
    fn what_changed_just_now_or_could_not_be_read_is_not_kept() {
        let (_dir, root) = tree();
        let mut known = Searches::default();
        known.keep(&root, A, searched(&root, 0));
        assert!(known.of(&root, A).is_none() && known.changed().is_none());
        known.keep(&root, A, Search { is_lasting: false, ..searched(&root, 10) });
        assert!(known.changed().is_none());
        let proc = Path::new("/proc/self/task");
        let mut search = Search { now: i64::MAX, ..Search::begin() };
        search.looked_at(proc, &std::fs::File::open(proc).unwrap().into());
        assert!(!search.is_lasting, "a file system that is not local");
    }

    #[test]
    fn what_is_damaged_or_of_other_rules_counts_as_nothing() {
        let (_dir, root) = tree();
        let mut known = Searches::default();
        known.obey(|| ["one"].into_iter());
        known.keep(&root, A, searched(&root, 10));
        let bytes = known.changed().unwrap();
        let obeying = |bytes: &[u8], word| {
            let mut known = Searches::read(bytes);
            known.obey(|| [word].into_iter());
            known.kept.len()
        };
        assert_eq!((obeying(&bytes, "one"), obeying(&bytes, "another")), (1, 0));
        assert_eq!((obeying(&bytes[..bytes.len() - 3], "one"), obeying(b"", "one")), (0, 0));
    }

    #[test]
    fn a_search_takes_what_an_earlier_one_found_while_that_holds() {
        let (_dir, root) = tree();
        let mut known = Searches::default();
        let find = |known: &mut Searches| {
            let until = Instant::now() + Duration::from_secs(60);
            logins::find(&root, until, Libraries::Skipped, known).unwrap().into_keys().collect::<Vec<_>>()
        };
        let npmrc = PathBuf::from("a/npmrc");
        assert_eq!(find(&mut known), std::slice::from_ref(&npmrc));
        // As if the search had found another file, which shows that no search is made.
        let mut other = searched(&root, 10);
        std::fs::write(root.join("other"), "").unwrap();
        other.directories.retain(|(path, _)| *path != root);
        other.logins = vec![root.join("other")];
        known.keep(&root, Libraries::Skipped.word(), other);
        assert_eq!(find(&mut known), [PathBuf::from("other")]);
        std::fs::write(root.join("a/b/pip.conf"), "").unwrap();
        assert_eq!(find(&mut known), [PathBuf::from("a/b/pip.conf"), npmrc]);
    }
}
