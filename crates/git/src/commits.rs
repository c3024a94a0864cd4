//! Recognizes the files of a git directory that name commits, and reads them. Pure.

use crate::refs::target;
use nexus_beneath::fold::fold;
use nexus_beneath::split;
use std::collections::HashSet;

/// The form of a file that names commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A ref below `refs`.
    Ref,
    /// `HEAD`, `ORIG_HEAD` and the like.
    Head,
    /// The file `packed-refs` of a git directory.
    Packed,
    /// A log of the changes of one ref.
    Log,
    /// A part of the refs in the form `reftable`.
    Table,
}

/// The place of a file that names commits.
#[derive(Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The form of the file.
    pub form: Form,
    /// The git directory, which may be that of a further working tree.
    pub git_dir: &'a [u8],
    /// The path in it.
    pub inside: &'a [u8],
    /// The git directory has the name `.git`, or is in one.
    pub is_certain: bool,
    /// A fetch writes the file: what it names was in no working tree.
    pub is_fetched: bool,
}

/// Directories of a git directory without files that name commits.
const OTHER: &[&[u8]] = &[b"objects", b"hooks", b"info", b"lfs", b"rr-cache"];

/// Tells which file of a git directory a path is. `None` where the file names no commit.
pub fn place(path: &[u8]) -> Option<Place<'_>> {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(fold).collect();
    let git = names.iter().position(|name| name.as_ref() == b".git");
    let first = git.map_or(0, |at| at + 1);
    let last = names.len().checked_sub(1)?;
    if git.is_some() && names.get(first).is_none_or(|name| OTHER.contains(&name.as_ref())) {
        return None;
    }
    let (at, form) = (first..names.len()).find_map(|at| form(&names[at..], at == last).map(|form| (at, form)))?;
    let start: usize = names_before(path, at);
    let (git_dir, inside) = (path[..start].strip_suffix(b"/").unwrap_or(b""), &path[start..]);
    let below: Vec<&[u8]> = names[at..].iter().map(AsRef::as_ref).collect();
    let is_fetched =
        matches!(below.as_slice(), [b"refs", b"remotes", ..] | [b"logs", b"refs", b"remotes", ..] | [b"fetch_head"]);
    Some(Place { form, git_dir, inside, is_certain: git.is_some(), is_fetched })
}

/// Returns the length of the first `count` names of a path with the slashes behind them.
fn names_before(path: &[u8], count: usize) -> usize {
    path.split(|byte| *byte == b'/').take(count).map(|name| name.len() + 1).sum()
}

/// Returns the form of the file with these names in a git directory.
fn form(names: &[std::borrow::Cow<'_, [u8]>], is_last: bool) -> Option<Form> {
    let next = names.get(1).map(AsRef::as_ref);
    match names.first()?.as_ref() {
        b"refs" if !is_last => Some(Form::Ref),
        b"logs" if next == Some(b"refs") || next == Some(b"head") => Some(Form::Log),
        b"reftable" if !is_last => Some(Form::Table),
        b"packed-refs" if is_last => Some(Form::Packed),
        name if is_last && (name == b"head" || name.ends_with(b"_head")) => Some(Form::Head),
        _ => None,
    }
}

/// Returns the git directory with the refs of a repository: a further working tree shares those of the first one.
pub fn common(git_dir: &[u8]) -> &[u8] {
    let (parent, name) = split(git_dir);
    // A repository may lie in a directory with that name.
    if !name.is_empty() && fold(name).as_ref() != b".git" && fold(split(parent).1).as_ref() == b"worktrees" {
        split(parent).0
    } else {
        git_dir
    }
}

/// The commits that a file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Their object ids, the last one of the file first.
    pub commits: Vec<String>,
    /// The ref that the file stands for.
    pub target: Option<Vec<u8>>,
    /// Something in the file makes no sense.
    pub is_odd: bool,
}

/// Reads a ref, a reflog or `packed-refs`. What the old version of the file names is left out, and so is the parent of a commit
/// that the file names as well.
pub fn named(new: &[u8], old: &[u8]) -> Named {
    let mut found = Named { target: target(new).map(<[u8]>::to_vec), ..Named::default() };
    if found.target.is_some() {
        return found;
    }
    let mut seen: HashSet<&[u8]> = lines(old).filter_map(|line| line.commit).collect();
    let new: Vec<Line<'_>> = lines(new.strip_prefix(old).unwrap_or(new)).collect();
    for line in new.iter().rev() {
        let Some(commit) = line.commit else {
            found.is_odd = true;
            continue;
        };
        if seen.insert(commit) && commit.iter().any(|byte| *byte != b'0') {
            found.commits.push(String::from_utf8_lossy(commit).into_owned());
        }
        seen.extend(line.parent);
    }
    found
}

/// A line of a file that names commits.
struct Line<'a> {
    /// The object id; `None` for a line that makes no sense.
    commit: Option<&'a [u8]>,
    /// The commit before it, of which it is a child.
    parent: Option<&'a [u8]>,
}

fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = Line<'_>> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !matches!(line.first(), None | Some(b'#' | b'^'))).map(|line| {
        let mut words = line.splitn(3, |byte| matches!(byte, b' ' | b'\t'));
        let (first, second) = (words.next().filter(|word| is_id(word)), words.next().filter(|word| is_id(word)));
        // `commit (amend)` and `commit (initial)` have no such parent.
        let is_child = line.windows(8).any(|part| part == b"\tcommit:");
        match second {
            Some(commit) => Line { commit: first.map(|_| commit), parent: first.filter(|_| is_child) },
            None => Line { commit: first, parent: None },
        }
    })
}

fn is_id(word: &[u8]) -> bool {
    matches!(word.len(), 40 | 64) && word.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_name_commits_are_known() {
        for (path, form, git_dir) in [
            (".git/refs/stash", Form::Ref, ".git"),
            (".git/refs/heads/logs/HEAD", Form::Ref, ".git"),
            ("a/.GIT/Refs/heads/x", Form::Ref, "a/.GIT"),
            (".git/modules/a/b/refs/heads/x", Form::Ref, ".git/modules/a/b"),
            (".git/logs/HEAD", Form::Log, ".git"),
            (".git/logs/refs/stash", Form::Log, ".git"),
            (".git/worktrees/w/logs/HEAD", Form::Log, ".git/worktrees/w"),
            (".git/HEAD", Form::Head, ".git"),
            (".git/ORIG_HEAD", Form::Head, ".git"),
            (".git/packed-refs", Form::Packed, ".git"),
            (".git/reftable/tables.list", Form::Table, ".git"),
            ("srv/refs/heads/x", Form::Ref, "srv"),
            ("packed-refs", Form::Packed, ""),
        ] {
            let found = place(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
            assert_eq!((found.form, found.git_dir), (form, git_dir.as_bytes()), "{path}");
            assert_eq!(found.is_certain, path.to_ascii_lowercase().contains(".git/"), "{path}");
        }
        for path in ["", ".git", ".git/refs", ".git/index", ".git/objects/refs/x", ".git/hooks/refs/x", "src/logs/x"] {
            assert_eq!(place(path.as_bytes()), None, "{path}");
        }
        for path in [".git/FETCH_HEAD", ".git/refs/remotes/origin/x", ".git/logs/refs/remotes/origin/x"] {
            assert!(place(path.as_bytes()).unwrap().is_fetched, "{path}");
        }
        assert_eq!(common(b".git/worktrees/w"), b".git");
        assert_eq!(common(b".git/modules/w"), b".git/modules/w");
    }

    #[test]
    fn new_commits_are_read_of_each_form() {
        let [a, b, c] = ["a", "b", "c"].map(|digit| digit.repeat(40));
        let zero = "0".repeat(40);
        let of = |new: &str, old: &str| named(new.as_bytes(), old.as_bytes()).commits;
        assert_eq!(of(&format!("{a}\n"), ""), std::slice::from_ref(&a));
        assert_eq!(of(&format!("{a}\n"), &format!("{a}\n")), [""; 0]);
        assert_eq!(of(&format!("# pack-refs\n{a} refs/tags/x\n^{b}\n{c} refs/heads/y\n"), ""), [c.clone(), a.clone()]);
        let who = "A <a@b> 1 +0000";
        let first = format!("{zero} {a} {who}\tcommit (initial): 1\n");
        let work = format!("{a} {b} {who}\tcommit: 2\n{b} {c} {who}\tcommit: 3\n{c} {zero} {who}\treset\n");
        // `b` is the parent of `c`.
        assert_eq!(of(&format!("{first}{work}"), &first), std::slice::from_ref(&c));
        let stashes = format!("{zero} {a} {who}\tWIP on main\n{a} {b} {who}\tWIP on main\n");
        assert_eq!(of(&stashes, ""), [b.clone(), a.clone()]);
        let back = format!("{a} {b} {who}\tcommit (amend): 2\n{b} {a} {who}\tcheckout: moving\n");
        assert_eq!(of(&back, &first), [b]);
    }

    #[test]
    fn invalid_text_of_a_commit_is_reported() {
        assert!(named(b"abc\n", b"").is_odd && named(&[b'g'; 40], b"").is_odd);
        assert_eq!(named(b"ref: refs/x\n", b"").target.as_deref(), Some(&b"refs/x"[..]));
        assert_eq!(named(b"", b""), Named::default());
    }
}
