//! Properties of the readers of git's files over arbitrary bytes, as plain functions: the package `fuzz` gives each to its
//! fuzzer, and the tests of this crate call them with every seed. Each panics where a property fails.

use crate::git_index;
use crate::git_refs::{RefFile, inside_git, is_head, is_symbolic, ref_file, target};

/// An index: what is understood names no entry that leads out of the working tree or into a git directory, and an index hides
/// only entries that it has.
pub fn git_index(data: &[u8]) {
    for id in [20, 32] {
        let mut names = Vec::new();
        let is_good = git_index::look(data, id, &mut |entry| names.push(entry.name.to_vec()));
        assert_eq!(git_index::problem(data, id).is_none(), is_good == Some(true));
        if is_good != Some(true) {
            continue;
        }
        for name in names {
            let is_bad = |part: &[u8]| part == b"." || part == b".." || part.eq_ignore_ascii_case(b".git");
            assert!(!name.split(|byte| *byte == b'/').any(is_bad), "{:?}", name.escape_ascii().to_string());
            assert!(!name.starts_with(b"/") && !name.contains(&0), "{:?}", name.escape_ascii().to_string());
        }
    }
    let mut all = std::collections::HashSet::new();
    for id in [20, 32] {
        git_index::look(data, id, &mut |entry| {
            all.insert(entry.name.to_vec());
        });
    }
    assert!(git_index::flags::hidden(data).iter().all(|one| all.contains(&one.0)), "it hides what it does not have");
}

/// A ref: the first line is its path below a git directory, the rest its text.
pub fn git_refs(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (path, text) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let file = ref_file(path);
    assert_eq!(file, ref_file(&path.to_ascii_uppercase()), "a file system may fold names");
    let inside = [b"a/.git/", path].concat();
    if !path.is_empty() {
        assert_eq!(inside_git(&inside), Some(path));
    }
    let is_reference = text.starts_with(b"ref:");
    assert_eq!(target(text).is_some(), is_reference);
    if let Some(RefFile::One(names)) = &file {
        assert!(!names.is_empty());
        assert!(is_reference || !is_symbolic(names, text), "it names no other ref");
    }
    for is_new in [false, true] {
        if is_head(text, is_new) && is_reference {
            let branch = target(text).and_then(|target| target.strip_prefix(b"refs/heads/")).unwrap_or_default();
            let is_control = |byte: &u8| byte.is_ascii_control() || *byte == b' ';
            assert!(!branch.is_empty() && !branch.iter().any(is_control) && !branch.windows(2).any(|two| two == b".."));
        }
    }
    for name in crate::branches::refs(Some(data)) {
        assert!(!name.contains(&b'\n'));
    }
}
