//! The paths that a sandbox hides or keeps in their place, for words of the command to be looked up in.
//!
//! An earlier run may have made as many of these paths as a disk holds, and the command chooses the words. So each path is put into a
//! set once, and each word is looked up in it.

use crate::until::Until;
use nexus_model::plan::{Access, Bind, Cover};
use nexus_model::{ByteText, Plan};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Names at the end of a path by which a message may call it.
const LAST_NAMES: usize = 4;

/// The paths of one plan. Each set is made when it is first asked for.
pub struct KnownPaths<'a> {
    cwd: &'a Path,
    workspace: &'a Path,
    hidden: &'a [ByteText],
    covered: &'a [Cover],
    binds: &'a [Bind],
    until: Until,
    hidden_set: OnceCell<HashSet<&'a Path>>,
    kept_set: OnceCell<HashSet<&'a Path>>,
}

impl<'a> KnownPaths<'a> {
    /// Takes the paths of a plan.
    pub fn of(plan: &'a Plan, until: Until) -> Self {
        let (cwd, workspace) = (plan.cwd.as_path(), plan.workspace.source.as_path());
        Self::new((cwd, workspace), &plan.hidden, &plan.covered, &plan.binds, until)
    }

    fn new(
        (cwd, workspace): (&'a Path, &'a Path),
        hidden: &'a [ByteText],
        covered: &'a [Cover],
        binds: &'a [Bind],
        until: Until,
    ) -> Self {
        let (hidden_set, kept_set) = (OnceCell::new(), OnceCell::new());
        Self { cwd, workspace, hidden, covered, binds, until, hidden_set, kept_set }
    }

    /// Returns the first of these paths that the sandbox hides.
    pub fn hidden_of<'w>(&self, mut words: impl Iterator<Item = &'w Path>) -> Option<&'w Path> {
        if self.hidden.is_empty() {
            return None;
        }
        let hidden = self
            .hidden_set
            .get_or_init(|| self.hidden.iter().take_while(|_| !self.until.is_over()).map(ByteText::as_path).collect());
        let is_hidden = |path: &Path| {
            let from_cwd = self.cwd.join(path);
            let relative = from_cwd.strip_prefix(self.workspace).ok();
            relative.is_some_and(|relative| relative.ancestors().any(|above| hidden.contains(above)))
        };
        words.by_ref().take_while(|_| !self.until.is_over()).find(|path| is_hidden(path))
    }

    /// Returns the first of these paths that cannot be moved or removed: in a writable bind, covered or above what is covered. A
    /// command may have changed its directory, so the last names of a path are enough.
    pub fn kept_of<'w>(&self, mut words: impl Iterator<Item = &'w Path>) -> Option<&'w Path> {
        if self.covered.is_empty() {
            return None;
        }
        let kept = self.kept_set.get_or_init(|| self.kept());
        let is_kept = |path: &Path| {
            let names = path.components().all(|part| matches!(part, Component::Normal(_)));
            (names && kept.contains(path)) || whole(&self.cwd.join(path)).is_some_and(|whole| kept.contains(&*whole))
        };
        words.by_ref().take_while(|_| !self.until.is_over()).find(|path| is_kept(path))
    }

    /// Lists the paths that are kept, and the last names of each.
    fn kept(&self) -> HashSet<&'a Path> {
        let mut kept = HashSet::new();
        for cover in self.covered.iter().take_while(|_| !self.until.is_over()) {
            let path = cover.path.as_path();
            let Some(bind) = innermost(self.binds, path).filter(|bind| bind.access == Access::ReadWrite) else {
                continue;
            };
            for directory in path.ancestors().take_while(|directory| *directory != bind.target.as_path()) {
                // Those above it are there, too: this bind is the innermost one of them all.
                if !kept.insert(directory) {
                    break;
                }
                kept.extend(last_names(directory));
            }
        }
        kept
    }
}

/// Returns the last name of an absolute path, the last two, and so on.
fn last_names(path: &Path) -> impl Iterator<Item = &Path> {
    let bytes = path.as_os_str().as_bytes();
    let slashes = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').take(LAST_NAMES);
    slashes.map(|(at, _)| Path::new(OsStr::from_bytes(&bytes[at + 1..])))
}

/// Resolves `..` by the names alone. There is no answer for a path that leads to the root or above it.
pub fn whole(path: &Path) -> Option<PathBuf> {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    (whole.is_absolute() && whole.components().count() > 1).then_some(whole)
}

/// Returns the innermost bind that shows a path.
pub fn innermost<'b>(binds: &'b [Bind], path: &Path) -> Option<&'b Bind> {
    let shows = binds.iter().filter(|bind| path.starts_with(bind.target.as_path()));
    shows.max_by_key(|bind| bind.target.0.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::plan::FileId;
    use std::time::{Duration, Instant};

    /// Far more than the search takes, and far less than paths times words would take.
    const LONG: Duration = Duration::from_secs(20);

    fn cover(path: &str) -> Cover {
        Cover { path: Path::new(path).into(), id: FileId { device: 1, inode: 1 } }
    }

    fn bind(target: &str, access: Access) -> Bind {
        Bind { source: Path::new(target).into(), target: Path::new(target).into(), access }
    }

    const AT: (&str, &str) = ("/home/me/app", "/home/me/app");

    fn known_paths<'a>(
        hidden: &'a [ByteText],
        covered: &'a [Cover],
        binds: &'a [Bind],
        time: Duration,
    ) -> KnownPaths<'a> {
        KnownPaths::new((Path::new(AT.0), Path::new(AT.1)), hidden, covered, binds, Until::after(time))
    }

    #[test]
    fn what_a_writable_bind_keeps_is_found_by_its_path_or_its_last_names() {
        let covered = [cover("/data/a/deep/h.sock"), cover("/data/a/deep/i.sock"), cover("/shown/r.sock")];
        let binds = [bind("/data", Access::ReadWrite), bind("/shown", Access::ReadOnly)];
        let known = known_paths(&[], &covered, &binds, LONG);
        let kept = |word: &str| known.kept_of([Path::new("x"), Path::new(word)].into_iter()).is_some();
        for word in ["h.sock", "i.sock", "deep/i.sock", "a", "a/deep", "data/a", "/data/a", "../../../data/a/deep"] {
            assert!(kept(word), "{word}");
        }
        for word in ["plain", "data", "/data", "b/a", "r.sock", "/shown/r.sock", "/", ".", "..", "../a", "eep"] {
            assert!(!kept(word), "{word}");
        }
    }

    #[test]
    fn what_is_hidden_is_found_with_all_below_it() {
        let hidden = [Path::new(".env").into(), Path::new("keys/own").into()];
        let known = known_paths(&hidden, &[], &[], LONG);
        let is_hidden = |word: &str| known.hidden_of([Path::new("x"), Path::new(word)].into_iter()).is_some();
        for word in [".env", "./.env", "keys/own", "keys/own/a/b", "/home/me/app/.env"] {
            assert!(is_hidden(word), "{word}");
        }
        for word in ["env", "keys", "a/.env", "/.env", "/home/me/.env"] {
            assert!(!is_hidden(word), "{word}");
        }
    }

    /// As many words as a command can leave, and as many covers as a run makes in a few seconds.
    #[test]
    fn many_words_are_looked_up_in_many_paths_at_once() {
        let covered: Vec<_> = (0..20_000).map(|number| cover(&format!("/data/one/s{number}"))).collect();
        let hidden: Vec<ByteText> = (0..20_000).map(|number| Path::new(&format!("x/{number}.key")).into()).collect();
        let binds = [bind("/data", Access::ReadWrite)];
        let known = known_paths(&hidden, &covered, &binds, Duration::from_secs(3600));
        let begun = Instant::now();
        for _ in 0..64 {
            assert_eq!(known.kept_of(std::iter::repeat_n(Path::new("q"), 125)), None);
            assert_eq!(known.hidden_of(std::iter::repeat_n(Path::new("q"), 125)), None);
        }
        assert!(known.kept_of([Path::new("one/s19999")].into_iter()).is_some());
        assert!(known.hidden_of([Path::new("x/19999.key")].into_iter()).is_some());
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    }

    #[test]
    fn nothing_is_said_late() {
        let (hidden, covered) = ([Path::new(".env").into()], [cover("/data/h.sock")]);
        let binds = [bind("/data", Access::ReadWrite)];
        let late = known_paths(&hidden, &covered, &binds, Duration::ZERO);
        let asked = std::cell::Cell::new(0);
        let words = |word: &'static str| {
            std::iter::repeat_with(move || Path::new(word)).inspect(|_| asked.set(asked.get() + 1)).take(1000)
        };
        assert_eq!((late.kept_of(words("h.sock")), late.hidden_of(words(".env"))), (None, None));
        assert!(asked.get() <= 2, "{} words", asked.get());
    }
}
