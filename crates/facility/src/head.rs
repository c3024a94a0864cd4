//! Reads which commit a repository is at, from files that a hostile process wrote. Nothing is run for it.
//!
//! Only the plain form is understood: a directory `.git` with `HEAD`, loose refs and `packed-refs`. Anything else, a `.git` file of a
//! linked working tree or a table of refs, gives no answer; it is never guessed.

use crate::beneath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;

/// Longest file with one ref, in bytes.
const MAX_REF: u64 = 4096;
/// Longest `packed-refs`, in bytes.
const MAX_PACKED: u64 = 16 << 20;
/// Longest chain of refs that name other refs.
const MAX_STEPS: usize = 5;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The commit that a repository is at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The id of the commit in hexadecimal; `None` on a branch without a commit.
    pub commit: Option<String>,
    /// The ref that HEAD names; `None` when HEAD names a commit.
    #[serde(rename = "ref")]
    pub branch: Option<String>,
}

/// Reads the HEAD of the repository in a directory; `None` when there is none that this module understands.
pub fn read(tree: impl AsFd) -> io::Result<Option<Head>> {
    let git = match beneath::directory(tree, ".git") {
        Ok(git) => git,
        Err(error) if is_other(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(text) = content(&git, "HEAD", MAX_REF)? else { return Ok(None) };
    let mut branch = None;
    let mut found = of_text(&text);
    for _ in 0..MAX_STEPS {
        match found {
            Some(Found::Commit(commit)) => return Ok(Some(Head { commit: Some(commit), branch })),
            Some(Found::Ref(name)) => {
                let text = content(&git, &name, MAX_REF)?;
                let packed = if text.is_none() { content(&git, "packed-refs", MAX_PACKED)? } else { None };
                found = match text {
                    Some(text) => of_text(&text),
                    None => packed.and_then(|text| in_packed(&text, &name)).map(Found::Commit),
                };
                let is_unborn = found.is_none();
                branch.get_or_insert(name);
                if is_unborn {
                    return Ok(Some(Head { commit: None, branch }));
                }
            }
            None => return Ok(None),
        }
    }
    Ok(None)
}

enum Found {
    Commit(String),
    Ref(String),
}

fn of_text(text: &str) -> Option<Found> {
    let line = text.lines().next()?.trim_end();
    match line.strip_prefix("ref:") {
        Some(name) => Some(name.trim_start()).filter(|name| is_ref(name)).map(|name| Found::Ref(name.to_owned())),
        None => is_commit(line).then(|| Found::Commit(line.to_owned())),
    }
}

fn in_packed(text: &str, name: &str) -> Option<String> {
    let of_line = |line: &str| line.split_once(' ').filter(|(_, known)| *known == name).map(|(id, _)| id.to_owned());
    text.lines().find_map(of_line).filter(|id| is_commit(id))
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A name below `refs` that is shown to people: no part of it leads elsewhere, and it has no control characters.
fn is_ref(name: &str) -> bool {
    name.starts_with("refs/")
        && name.len() <= 255
        && !name.chars().any(char::is_control)
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Reads a small file; `None` where it is missing or something other than a regular file of text.
fn content(git: &OwnedFd, path: &str, max: u64) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat2(git, path, flags, Mode::empty(), RESOLVE).map_err(io::Error::from) {
        Ok(file) => File::from(file),
        Err(error) if is_other(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    match beneath::read(&file, max) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reports whether an error means that there is no such thing to read, or that this user may not.
fn is_other(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::IsADirectory
    ) || [Errno::LOOP, Errno::XDEV, Errno::NXIO].iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}
