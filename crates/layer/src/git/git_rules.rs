//! Classifies changes to git's configuration, hooks and state files by their content.

use crate::entries::protected::{Class, Rules};
use crate::entries::tree::Verdict;
use crate::fold::fold;
use nexus_git::config::{BranchGoes, Known, ModuleUrl, NamesBack, Place, Upstream, changed, kept, strip};
use nexus_git::git_dir::{AUTOSTASH, BISECT, EXCLUDE, PACKED, SHALLOW};
use nexus_git::reads::Reads;
use nexus_git::small::{MAX as MAX_SMALL, read_small, read_up_to};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Settings that a reason names.
const NAMED: usize = 5;

/// The same for `packed-refs`, which has a line for each branch and tag.
const MAX_PACKED: u64 = 64 << 20;

/// A version of a file: absent, unreadable, or its bytes.
pub(crate) enum Version {
    Absent,
    Unreadable,
    Bytes(Vec<u8>),
}

impl Version {
    /// Reads a version of a file of this class, up to what may still be read.
    pub(crate) fn read(dir: BorrowedFd<'_>, name: &[u8], class: &Class, reads: &Reads) -> io::Result<Self> {
        let max = if *class == Class::GitState(PACKED) { MAX_PACKED } else { MAX_SMALL };
        Ok(read_up_to(dir, name, max, reads)?.map_or(Self::Unreadable, Self::Bytes))
    }
}

/// State that the git directory of a file has after the commit.
#[derive(Clone, Copy)]
pub(crate) enum GitDirectory<'a> {
    New(Made<'a>),
    Stays(Existing<'a>),
    /// It goes away or moves as a whole.
    Goes(NamesBack<'a>),
}

/// A git directory that the workspace does not have.
#[derive(Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) names_back: NamesBack<'a>,
    pub(crate) module_url: ModuleUrl<'a>,
    /// The submodule that it is of, in a repository that the workspace has.
    pub(crate) module: Option<&'a [u8]>,
}

impl Made<'_> {
    /// A git directory that belongs to no other repository.
    pub(crate) const ALONE: Self = Self { names_back: &|_| false, module_url: &|_| None, module: None };
}

/// Facts about a git directory that stays.
#[derive(Clone, Copy)]
pub(crate) struct Existing<'a> {
    pub(crate) branch_goes: BranchGoes<'a>,
    pub(crate) has_upstream: Upstream<'a>,
    pub(crate) module_url: ModuleUrl<'a>,
    /// It has remotes that no configuration says.
    pub(crate) has_old_remotes: bool,
}

/// Returns the verdict for the change of one file of git's from `base` to `new`.
pub(crate) fn classify(
    rules: &Rules,
    class: &Class,
    path: &[u8],
    new: &Version,
    base: &Version,
    directory: GitDirectory<'_>,
) -> Verdict {
    match class {
        Class::GitConfig => classify_config(path, new, base, directory),
        Class::GitHook => {
            let is_sample = |version: &Version| match version {
                Version::Absent => true,
                Version::Unreadable => false,
                Version::Bytes(bytes) => is_sample_hook(rules, path, bytes),
            };
            if is_sample(new) && is_sample(base) { Verdict::Commit } else { Verdict::Park("git hook".to_owned()) }
        }
        Class::GitCommonDir => {
            let is_usual = |version: &Version| match version {
                Version::Absent => true,
                Version::Unreadable => false,
                // What `git worktree add` writes: the git directory two levels up.
                Version::Bytes(bytes) => bytes.trim_ascii_end() == b"../.." && in_worktrees(path),
            };
            if is_usual(new) && is_usual(base) {
                Verdict::Commit
            } else {
                Verdict::Park("moves git's configuration".to_owned())
            }
        }
        Class::GitRoot => Verdict::Park("points git to another directory".to_owned()),
        Class::GitState(why) if *why == PACKED => classify_packed(new, base),
        // A new repository hides what is its own, and git writes a file there that has comments alone.
        Class::GitState(why) if *why == EXCLUDE => {
            let is_own = matches!((new, base, directory), (Version::Bytes(_), Version::Absent, GitDirectory::New(_)));
            if is_own || !(excludes(new) || excludes(base)) {
                Verdict::Commit
            } else {
                Verdict::Park(EXCLUDE.to_owned())
            }
        }
        Class::GitState(why) => match (new, base) {
            (Version::Absent, Version::Absent) => Verdict::Commit,
            // Written again as it was, as `git gc` writes `shallow`.
            (Version::Bytes(new), Version::Bytes(base)) if new == base => Verdict::Commit,
            (Version::Absent, _) if *why == BISECT || *why == AUTOSTASH => Verdict::Commit,
            // A new clone without its whole history is of no use without the file that says so.
            (Version::Bytes(_), Version::Absent) if matches!(directory, GitDirectory::New(_)) && *why == SHALLOW => {
                Verdict::Commit
            }
            _ => Verdict::Park((*why).to_owned()),
        },
        Class::Plain | Class::Listed(_) | Class::MustBeDirectory | Class::NoLink => Verdict::Commit,
    }
}

/// Tells whether a file with names to leave out has any.
fn excludes(version: &Version) -> bool {
    let says = |line: &[u8]| !line.is_empty() && !line.starts_with(b"#");
    match version {
        Version::Absent => false,
        Version::Unreadable => true,
        Version::Bytes(bytes) => bytes.split(|byte| *byte == b'\n').any(says),
    }
}

/// Returns the verdict for `packed-refs`. Replaced objects wait and the other refs are committed: git has removed their
/// own files when it packed them.
pub(crate) fn classify_packed(new: &Version, base: &Version) -> Verdict {
    let park = || Verdict::Park(PACKED.to_owned());
    let (Some(new), Some(base)) = (text(new), text(base)) else { return park() };
    // A file whose name is not that of a ref would be a stash that git applies (`MERGE_AUTOSTASH`), or the like.
    let is_ref = |line: &[u8]| {
        let name = line.iter().position(|byte| *byte == b' ').map(|at| &line[at + 1..]);
        matches!(line.first(), None | Some(b'#' | b'^')) || name.is_some_and(|name| name.starts_with(b"refs/"))
    };
    let is_replaced = |line: &[u8]| !is_ref(line) || line.windows(13).any(|part| part == b"refs/replace/");
    let known: HashSet<&[u8]> = lines(base).filter(|line| is_replaced(line)).collect();
    let (mut seen, mut is_out, mut is_whole) = (0, false, true);
    let mut kept = Vec::new();
    for line in lines(new) {
        // A line with `^` says more about the one before.
        if !line.starts_with(b"^") {
            is_out = is_replaced(line) && !known.contains(line);
            seen += usize::from(known.contains(line));
        }
        is_whole &= !is_out;
        if !is_out {
            kept.extend_from_slice(line);
            kept.push(b'\n');
        }
    }
    kept.pop();
    match () {
        // Replaced objects that are gone or changed cannot be put back into the order of the lines.
        () if seen != known.len() => park(),
        () if is_whole => Verdict::Commit,
        () => Verdict::Strip(kept),
    }
}

/// Returns the text of a file; `None` when it cannot be read.
fn text(version: &Version) -> Option<&[u8]> {
    match version {
        Version::Absent => Some(b""),
        Version::Unreadable => None,
        Version::Bytes(bytes) => Some(bytes),
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Reports whether a path is `…/.git/worktrees/NAME/FILE`.
fn in_worktrees(path: &[u8]) -> bool {
    let names: Vec<&[u8]> = path.rsplit(|byte| *byte == b'/').collect();
    names.len() >= 4 && names[2] == b"worktrees" && names[3] == b".git"
}

/// Reports whether a git directory is by its name that of a further working tree (`git worktree add`).
fn is_of_further_tree(git_dir: &[u8]) -> bool {
    let (parent, name) = crate::beneath::split(git_dir);
    fold(crate::beneath::split(parent).1).as_ref() == b"worktrees" && fold(name).as_ref() != b".git"
}

fn classify_config(path: &[u8], new: &Version, base: &Version, directory: GitDirectory<'_>) -> Verdict {
    let (git_dir, name) = crate::beneath::split(path);
    let unreadable = || Verdict::Park("git configuration that cannot be read".to_owned());
    let bytes = |version: &Version| match version {
        Version::Absent => Some(None),
        Version::Unreadable => None,
        Version::Bytes(bytes) => Some(Some(bytes.clone())),
    };
    let (Some(new), Some(old)) = (bytes(new), bytes(base)) else { return unreadable() };
    let (known, names_back): (_, NamesBack<'_>) = match directory {
        _ if fold(name).as_ref() != b"config" => (Known::Part, &|_| false),
        // git has none there. With it, the directory could become a repository of its own.
        GitDirectory::New(_) if is_of_further_tree(git_dir) => (Known::Nothing, &|_| false),
        GitDirectory::New(Made { names_back, .. }) | GitDirectory::Goes(names_back) => (Known::New, names_back),
        GitDirectory::Stays(existing) if old.is_none() || existing.has_old_remotes => (Known::Nothing, &|_| false),
        GitDirectory::Stays(_) => (Known::All, &|_| false),
    };
    let (branch_goes, module_url, module): (BranchGoes<'_>, ModuleUrl<'_>, _) = match directory {
        GitDirectory::Stays(existing) => (existing.branch_goes, existing.module_url, None),
        GitDirectory::New(made) => (&|_| false, made.module_url, made.module),
        GitDirectory::Goes(_) => (&|_| false, &|_| None, None),
    };
    // Without it, the next run could bring a configuration to what would look like a repository that never had one.
    if let (GitDirectory::Stays(_), None, Some(_)) = (directory, &new, &old) {
        return Verdict::Park("takes the configuration of a git directory away".to_owned());
    }
    let has_upstream: Upstream<'_> = match directory {
        GitDirectory::Stays(existing) => existing.has_upstream,
        GitDirectory::New(_) | GitDirectory::Goes(_) => &|_, _| false,
    };
    let place = Place { git_dir, known, names_back, branch_goes, has_upstream, module_url, module };
    if let (GitDirectory::Goes(_), Some(old)) = (directory, &old) {
        let Ok(names) = kept(old, &place) else { return unreadable() };
        return if names.is_empty() {
            Verdict::Commit
        } else {
            Verdict::Park(format!("takes a git repository away that has {}", list(&names)))
        };
    }
    let Ok(names) = changed(new.as_deref(), old.as_deref(), &place) else { return unreadable() };
    if names.is_empty() {
        return Verdict::Commit;
    }
    if let (GitDirectory::New(_), Some(bytes), None) = (directory, &new, &old)
        && let Some(stripped) = strip(bytes, &place)
    {
        return Verdict::Strip(stripped);
    }
    Verdict::Park(format!("git configuration: {}", list(&names)))
}

/// Lists the first few settings for a reason.
fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", names[..names.len().min(NAMED)].join(", "))
}

/// Reports whether a hook is one of git's own samples, which do not run under their name.
fn is_sample_hook(rules: &Rules, path: &[u8], bytes: &[u8]) -> bool {
    let name = crate::beneath::split(path).1;
    if !name.ends_with(b".sample") {
        return false;
    }
    rules.hook_templates.iter().any(|directory| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A template directory that is not there only means that its samples are unknown, and unknown hooks park.
        rustix::fs::open(directory, flags, Mode::empty())
            .ok()
            .and_then(|dir| read_small(dir.as_fd(), name).ok().flatten())
            .is_some_and(|sample| sample == bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Version {
        Version::Bytes(text.as_bytes().to_vec())
    }

    fn directory(is_new: bool) -> GitDirectory<'static> {
        let existing = Existing {
            branch_goes: &|_| false,
            has_upstream: &|_, _| false,
            module_url: &|_| None,
            has_old_remotes: false,
        };
        if is_new { GitDirectory::New(Made::ALONE) } else { GitDirectory::Stays(existing) }
    }

    fn config(new: &Version, base: &Version, fresh: bool) -> Verdict {
        classify(&Rules::default(), &Class::GitConfig, b".git/config", new, base, directory(fresh))
    }

    #[test]
    fn a_configuration_commits_only_when_all_that_changes_is_inert() {
        let plain = bytes("[core]\nbare = false\n");
        let remote = bytes("[core]\nbare = false\n[remote \"o\"]\nurl = h:x\n");
        let named = bytes("[core]\nbare = false\n[user]\nname = x\n");
        let evil = bytes("[core]\nbare = false\nfsmonitor = ./x\n");
        let evil_and_named = bytes("[core]\nbare = false\nfsmonitor = ./x\n[user]\nname = x\n");
        let other = bytes("[core]\nbare = false\nfsmonitor = ./y\n");
        assert_eq!(config(&named, &plain, false), Verdict::Commit);
        assert_eq!(config(&remote, &plain, false), Verdict::Park("git configuration: remote.o.url".to_owned()));
        assert_eq!(config(&evil, &plain, false), Verdict::Park("git configuration: core.fsmonitor".to_owned()));
        assert!(matches!(config(&other, &evil, false), Verdict::Park(_)));
        assert_eq!(config(&evil_and_named, &evil, false), Verdict::Commit);
        assert!(matches!(config(&plain, &evil, false), Verdict::Park(_)), "taking a setting away is a change too");
        assert!(matches!(config(&plain, &remote, false), Verdict::Park(_)), "so is taking a remote away");
        assert!(matches!(config(&Version::Absent, &evil, false), Verdict::Park(_)));
        // What may come with a new repository may go with an old one, and not alone.
        for (old, waits) in [(&plain, false), (&remote, true), (&bytes(""), false)] {
            assert!(matches!(config(&Version::Absent, old, false), Verdict::Park(_)));
            let goes = GitDirectory::Goes(&|_| false);
            let rules = Rules::default();
            let whole = classify(&rules, &Class::GitConfig, b".git/config", &Version::Absent, old, goes);
            let why = "takes a git repository away that has remote.o.url".to_owned();
            let wanted = if waits { Verdict::Park(why) } else { Verdict::Commit };
            assert_eq!(whole, wanted);
        }
        assert_eq!(config(&plain, &Version::Absent, false), Verdict::Commit);
        assert!(matches!(config(&remote, &Version::Absent, false), Verdict::Park(_)), "not a new repository");
        assert!(matches!(config(&Version::Unreadable, &plain, false), Verdict::Park(_)));
        assert!(matches!(config(&plain, &Version::Unreadable, false), Verdict::Park(_)));
    }

    #[test]
    fn packed_refs_commit_unless_they_replace_objects() {
        let plain = "# pack-refs with: peeled fully-peeled sorted \n0a refs/heads/main\n0b refs/tags/v1\n^0c\n";
        let evil = format!("{plain}0d refs/replace/0a\n");
        let classified = |new: &Version, base: &Version| {
            classify(&Rules::default(), &Class::GitState(PACKED), b".git/packed-refs", new, base, directory(false))
        };
        for (new, base) in [
            (bytes(plain), Version::Absent),
            (Version::Absent, bytes(plain)),
            (bytes("0f refs/heads/main\n"), bytes(plain)),
            (bytes(&evil), bytes(&evil)),
        ] {
            assert_eq!(classified(&new, &base), Verdict::Commit);
        }
        for base in [bytes(plain), Version::Absent] {
            assert_eq!(classified(&bytes(&evil), &base), Verdict::Strip(plain.as_bytes().to_vec()));
        }
        let stash = format!("{plain}0d MERGE_AUTOSTASH\n");
        assert_eq!(classified(&bytes(&stash), &bytes(plain)), Verdict::Strip(plain.as_bytes().to_vec()));
        let more = bytes(&format!("{evil}^0e\n0f refs/tags/v2\n"));
        let wanted = format!("{plain}0f refs/tags/v2\n");
        assert_eq!(classified(&more, &bytes(plain)), Verdict::Strip(wanted.into_bytes()));
        for (new, base) in [(bytes(plain), bytes(&evil)), (Version::Unreadable, bytes(plain))] {
            assert_eq!(classified(&new, &base), Verdict::Park(PACKED.to_owned()));
        }
    }

    #[test]
    fn what_git_resumes_parks_and_a_new_clone_may_be_shallow() {
        let at = |path: &str, new: &Version, base: &Version, fresh: bool| {
            let rules = Rules::default();
            classify(&rules, &rules.class(path.as_bytes()), path.as_bytes(), new, base, directory(fresh))
        };
        let some = bytes("x");
        for path in [".git/rebase-merge/git-rebase-todo", ".git/objects/info/alternates", ".git/info/attributes"] {
            for fresh in [true, false] {
                assert!(matches!(at(path, &some, &Version::Absent, fresh), Verdict::Park(_)), "{path}");
            }
            assert!(matches!(at(path, &Version::Absent, &some, false), Verdict::Park(_)), "{path}");
        }
        assert_eq!(at(".git/shallow", &some, &Version::Absent, true), Verdict::Commit);
        assert!(matches!(at(".git/shallow", &some, &Version::Absent, false), Verdict::Park(_)));
        let more = bytes("x\ny\n");
        for path in [".git/shallow", ".git/rebase-merge/git-rebase-todo", ".git/objects/info/alternates"] {
            assert_eq!(at(path, &some, &some, false), Verdict::Commit, "{path}");
            for (new, base) in [(&more, &some), (&some, &more), (&Version::Unreadable, &Version::Unreadable)] {
                assert!(matches!(at(path, new, base, false), Verdict::Park(_)), "{path}");
            }
        }
        assert_eq!(at(".git/BISECT_LOG", &Version::Absent, &some, false), Verdict::Commit);
        assert_eq!(at(".git/MERGE_AUTOSTASH", &Version::Absent, &some, false), Verdict::Commit);
        assert!(matches!(at(".git/MERGE_AUTOSTASH", &some, &Version::Absent, true), Verdict::Park(_)));
        assert!(matches!(at(".git/BISECT_LOG", &some, &Version::Absent, false), Verdict::Park(_)));
    }

    #[test]
    fn names_that_git_status_leaves_out_wait() {
        let classified = |new: &Version, base: &Version, fresh: bool| {
            classify(&Rules::default(), &Class::GitState(EXCLUDE), b".git/info/exclude", new, base, directory(fresh))
        };
        let (some, other, none) = (bytes("# x\n/docs\n"), bytes(" \n"), bytes("# git ls-files\n\n#x\n"));
        for (new, base, fresh, waits) in [
            (&some, &Version::Absent, false, true),
            (&some, &Version::Absent, true, false),
            (&some, &none, false, true),
            (&none, &some, false, true),
            (&other, &some, false, true),
            (&Version::Absent, &some, false, true),
            (&Version::Unreadable, &none, true, true),
            (&none, &Version::Absent, false, false),
            (&Version::Absent, &none, false, false),
        ] {
            assert_eq!(matches!(classified(new, base, fresh), Verdict::Park(_)), waits);
        }
    }

    #[test]
    fn a_new_repository_gets_its_configuration_without_the_dangerous_settings() {
        let evil = bytes("[core]\nfsmonitor = ./x\nbare = false\n");
        assert_eq!(config(&evil, &Version::Absent, true), Verdict::Strip(b"[core]\n\nbare = false\n".to_vec()));
        assert!(matches!(config(&evil, &Version::Absent, false), Verdict::Park(_)));
        assert!(matches!(config(&bytes("[core"), &Version::Absent, true), Verdict::Park(_)));
    }

    #[test]
    fn only_byte_identical_samples_are_harmless_hooks() {
        let templates = tempfile::tempdir().unwrap();
        std::fs::write(templates.path().join("pre-commit.sample"), "sample").unwrap();
        let rules = Rules { hook_templates: vec![templates.path().to_owned()], ..Rules::default() };
        let hook = |path: &str, new: &Version| {
            classify(&rules, &Class::GitHook, path.as_bytes(), new, &Version::Absent, directory(true))
        };
        assert_eq!(hook(".git/hooks/pre-commit.sample", &bytes("sample")), Verdict::Commit);
        assert!(matches!(hook(".git/hooks/pre-commit.sample", &bytes("other")), Verdict::Park(_)));
        assert!(matches!(hook(".git/hooks/pre-commit", &bytes("sample")), Verdict::Park(_)));
        assert!(matches!(hook(".git/hooks/x.sample", &bytes("sample")), Verdict::Park(_)));
    }

    #[test]
    fn commondir_is_harmless_only_as_git_worktree_writes_it() {
        let at = |path: &str, text: &str| {
            classify(
                &Rules::default(),
                &Class::GitCommonDir,
                path.as_bytes(),
                &bytes(text),
                &Version::Absent,
                directory(true),
            )
        };
        assert_eq!(at(".git/worktrees/w/commondir", "../..\n"), Verdict::Commit);
        assert!(matches!(at(".git/worktrees/w/commondir", "../../../evil"), Verdict::Park(_)));
        assert!(matches!(at(".git/commondir", "../..\n"), Verdict::Park(_)));
    }

    #[test]
    fn a_large_file_of_holes_is_not_read_and_a_whole_one_is() {
        let top = tempfile::tempdir().unwrap();
        let class = Class::GitState(PACKED);
        std::fs::File::create(top.path().join("holes")).unwrap().set_len(4 << 20).unwrap();
        std::fs::write(top.path().join("whole"), vec![b'x'; 4 << 20]).unwrap();
        std::fs::File::create(top.path().join("small")).unwrap().set_len(1 << 20).unwrap();
        let directory = std::fs::File::open(top.path()).unwrap();
        let read = |name: &[u8]| Version::read(directory.as_fd(), name, &class, &Reads::default()).unwrap();
        assert!(matches!(read(b"holes"), Version::Unreadable));
        for name in [&b"whole"[..], b"small"] {
            assert!(matches!(read(name), Version::Bytes(_)));
        }
    }
}
