//! Reads the few files whose content decides whether they may be committed: git's configuration and hooks.

use crate::beneath::open_file;
use crate::gitconfig::{Setting, dangerous, strip};
use crate::meta::stat;
use crate::protected::{Class, Rules};
use crate::tree::Verdict;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Larger files are never judged harmless.
const MAX: u64 = 1 << 20;

/// The content of a small regular file; `None` when it is no such thing.
pub(crate) fn read_small(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let file = match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        // A link (ELOOP), or nothing any more.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error),
    };
    slurp(file)
}

fn slurp(file: OwnedFd) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    if stat(file.as_fd(), b"")?.size > MAX {
        return Ok(None);
    }
    let mut content = Vec::new();
    std::fs::File::from(file).take(MAX + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= MAX).then_some(content))
}

/// A version of a file: absent, unreadable, or its bytes.
pub(crate) enum Version {
    Absent,
    Unreadable,
    Bytes(Vec<u8>),
}

impl Version {
    /// Reads a version.
    pub(crate) fn read(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        Ok(read_small(dir, name)?.map_or(Self::Unreadable, Self::Bytes))
    }
}

/// Judges the change of one file of git's from `base` to `new`. `fresh`: its git directory did not exist before.
pub(crate) fn judge(rules: &Rules, class: &Class, path: &[u8], new: &Version, base: &Version, fresh: bool) -> Verdict {
    match class {
        Class::GitConfig => judge_config(path, new, base, fresh),
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
        Class::GitRoot => Verdict::Park("points git to another folder".to_owned()),
        Class::Plain | Class::Listed(_) | Class::MustBeDirectory | Class::NoLink => Verdict::Commit,
    }
}

/// Whether a path is `…/.git/worktrees/NAME/FILE`.
fn in_worktrees(path: &[u8]) -> bool {
    let names: Vec<&[u8]> = path.rsplit(|byte| *byte == b'/').collect();
    names.len() >= 4 && names[2] == b"worktrees" && names[3] == b".git"
}

fn judge_config(path: &[u8], new: &Version, base: &Version, fresh: bool) -> Verdict {
    let git_dir = crate::beneath::split(path).0;
    let keys = |version: &Version| match version {
        Version::Absent => Some(Vec::new()),
        Version::Unreadable => None,
        Version::Bytes(bytes) => dangerous(bytes, git_dir).ok().map(|all| {
            let mut keys: Vec<_> = all.iter().map(Setting::key).collect();
            keys.sort();
            keys
        }),
    };
    let park = |why: &str| Verdict::Park(format!("git configuration {why}"));
    match (keys(new), keys(base)) {
        (None, _) => park("that cannot be read"),
        (Some(new_keys), Some(base_keys)) if new_keys == base_keys => Verdict::Commit,
        (Some(new_keys), _) => {
            let names: Vec<String> = new_keys.iter().map(|key| format!("{}.{}", key.0, key.2)).collect();
            if let (true, Version::Bytes(bytes), Version::Absent) = (fresh, new, base)
                && let Some(stripped) = strip(bytes, git_dir)
            {
                return Verdict::Strip(stripped);
            }
            park(&format!("that runs commands: {}", names.join(", ")))
        }
    }
}

/// Whether a hook is one of git's own samples, which do not run under their name.
fn is_sample_hook(rules: &Rules, path: &[u8], bytes: &[u8]) -> bool {
    let name = crate::beneath::split(path).1;
    if !name.ends_with(b".sample") {
        return false;
    }
    rules.hook_templates.iter().any(|folder| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A template folder that is not there only means that its samples are unknown, and unknown hooks park.
        rustix::fs::open(folder, flags, Mode::empty())
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

    fn config(new: &Version, base: &Version, fresh: bool) -> Verdict {
        judge(&Rules::default(), &Class::GitConfig, b".git/config", new, base, fresh)
    }

    #[test]
    fn a_configuration_commits_only_when_its_dangerous_settings_stay_the_same() {
        let plain = bytes("[core]\nbare = false\n");
        let remote = bytes("[core]\nbare = false\n[remote \"o\"]\nurl = x\n");
        let evil = bytes("[core]\nfsmonitor = ./x\n");
        let evil_and_remote = bytes("[core]\nfsmonitor = ./x\n[remote \"o\"]\nurl = x\n");
        assert_eq!(config(&remote, &plain, false), Verdict::Commit);
        assert!(matches!(config(&evil, &plain, false), Verdict::Park(_)));
        assert_eq!(config(&evil_and_remote, &evil, false), Verdict::Commit);
        assert!(matches!(config(&plain, &evil, false), Verdict::Park(_)), "taking a setting away is a change too");
        assert!(matches!(config(&Version::Absent, &evil, false), Verdict::Park(_)));
        assert_eq!(config(&Version::Absent, &plain, false), Verdict::Commit);
        assert!(matches!(config(&Version::Unreadable, &plain, false), Verdict::Park(_)));
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
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pre-commit.sample"), "sample").unwrap();
        let rules = Rules { hook_templates: vec![folder.path().to_owned()], ..Rules::default() };
        let hook =
            |path: &str, new: &Version| judge(&rules, &Class::GitHook, path.as_bytes(), new, &Version::Absent, true);
        assert_eq!(hook(".git/hooks/pre-commit.sample", &bytes("sample")), Verdict::Commit);
        assert!(matches!(hook(".git/hooks/pre-commit.sample", &bytes("other")), Verdict::Park(_)));
        assert!(matches!(hook(".git/hooks/pre-commit", &bytes("sample")), Verdict::Park(_)));
        assert!(matches!(hook(".git/hooks/x.sample", &bytes("sample")), Verdict::Park(_)));
    }

    #[test]
    fn commondir_is_harmless_only_as_git_worktree_writes_it() {
        let at = |path: &str, text: &str| {
            judge(&Rules::default(), &Class::GitCommonDir, path.as_bytes(), &bytes(text), &Version::Absent, true)
        };
        assert_eq!(at(".git/worktrees/w/commondir", "../..\n"), Verdict::Commit);
        assert!(matches!(at(".git/worktrees/w/commondir", "../../../evil"), Verdict::Park(_)));
        assert!(matches!(at(".git/commondir", "../..\n"), Verdict::Park(_)));
    }
}
