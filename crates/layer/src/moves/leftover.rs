//! Sets aside what a commit or a reject cannot remove, an immutable file for instance: it blocks no later command, and
//! its owner gets the place and the reason.
//!
//! ```text
//!  <layers>/.kept/<run>/NAME      from the layer's directory
//!  <workspace>/.nexus-kept-RUN    a staging directory in the workspace, which is on another file system
//! ```

use crate::beneath::{Workspace, is_gone, names};
use crate::faults::Faults;
use crate::meta::stat;
use crate::moves::movable::make_movable;
use crate::moves::rename_calls::{Moved, Spot, move_to_free};
use nexus_model::ByteText;
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The directory beside the layers for what could not be removed. It is not the name of a run.
const KEPT: &str = ".kept";

/// The number of names that are tried.
const TRIES: usize = 99;

/// An entry that could not be removed and stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its absolute path.
    pub at: ByteText,
    /// The path in the workspace whose earlier version it is, if it is one.
    pub path: Option<ByteText>,
    /// The call that failed, and its error.
    pub why: String,
    /// These are git objects of the workspace, which the rest of the run still needs: nothing of it may be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_needed: bool,
}

impl Leftover {
    pub(crate) fn new(at: &Path, path: Option<&ByteText>, why: String) -> Self {
        Self { at: ByteText(at.as_os_str().as_bytes().to_vec()), path: path.cloned(), why, is_needed: false }
    }
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.at.as_path().display();
        match &self.path {
            None if self.is_needed => write!(
                f,
                "Refs or an index of the run wait and need git objects in {at}, and {}. {}.",
                self.why, ADVICE
            ),
            Some(path) => write!(f, "The earlier version of {} stays in {at}: {}.", path.as_path().display(), self.why),
            None => write!(f, "Files of the run stay in {at}: {}.", self.why),
        }
    }
}

/// Advice about objects that only the workspace has.
pub(crate) const ADVICE: &str = "Run no git gc and no git prune there before you accept or reject the rest";

fn make_or_open(parent: &Workspace, name: &str) -> io::Result<Workspace> {
    match rustix::fs::mkdirat(parent.fd(), name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Workspace::from_fd(parent.readable_dir(name.as_bytes())?))
}

/// Moves an entry of the layer's directory, or that directory itself, to the directory beside the layers. Returns its
/// absolute path.
pub(crate) fn set_aside(
    layers: &Workspace,
    run: &str,
    from: Spot<'_>,
    name: &str,
    faults: &Faults,
) -> io::Result<PathBuf> {
    let all = make_or_open(layers, KEPT)?;
    let kept = make_or_open(&all, run)?;
    let free = move_to_a_free_name(from, &kept, name, faults)?;
    let place = layers.path().join(KEPT).join(run).join(free);
    synced(place, &[&kept, &all, layers], faults)
}

/// Brings a move to the disk. The error says where the entry is by now.
fn synced(place: PathBuf, trees: &[&Workspace], faults: &Faults) -> io::Result<PathBuf> {
    for tree in trees {
        faults.sync(|| Ok(rustix::fs::fsync(tree.fd())?)).map_err(|error| moved_to(&place, &error))?;
    }
    Ok(place)
}

fn moved_to(place: &Path, error: &io::Error) -> io::Error {
    let text = format!("it is at {} now, and the disk may not have that yet: {error}", place.display());
    io::Error::new(error.kind(), text)
}

/// Renames a staging directory in the workspace, whose name a later commit of the same run needs. Returns its absolute
/// path.
pub(crate) fn set_aside_in_workspace(base: &Workspace, run: &str, name: &str, faults: &Faults) -> io::Result<PathBuf> {
    let from = Spot { dir: base.fd(), name: name.as_bytes() };
    let free = move_to_a_free_name(from, base, &kept_in_workspace(run), faults)?;
    synced(base.path().join(free), &[base], faults)
}

/// Returns the name, but for a number, that a staging directory in the workspace has when it stays.
pub(crate) fn kept_in_workspace(run: &str) -> String {
    format!(".nexus-kept-{run}").chars().take(LONGEST).collect()
}

/// Names the staging directories of a run that stay in a workspace, whichever command moved them there.
pub(crate) fn found_in_workspace(base: &Workspace, run: &str) -> io::Result<Vec<Leftover>> {
    let all = names(base.readable_dir(b"")?.as_fd())?;
    let mut found: Vec<_> = all.into_iter().filter(|name| is_numbered(name, &kept_in_workspace(run))).collect();
    found.sort();
    let place = |name: Vec<u8>| base.path().join(std::ffi::OsStr::from_bytes(&name));
    Ok(found.into_iter().map(|name| Leftover::new(&place(name), None, KEPT_WHY.to_owned())).collect())
}

/// Reason for which such a directory stays.
const KEPT_WHY: &str = "a commit could not remove them, or a program may still have been writing to them; remove them when they are not needed";

/// The longest name that something is kept by, but for a number.
const LONGEST: usize = 40;

pub(crate) fn move_to_a_free_name(from: Spot<'_>, to: &Workspace, name: &str, faults: &Faults) -> io::Result<String> {
    let name: String = name.chars().take(LONGEST).collect();
    make_movable(from.dir, from.name, &stat(from.dir, from.name)?)?;
    for attempt in 1..=TRIES {
        let free = if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") };
        if move_to_free(from, Spot { dir: to.fd(), name: free.as_bytes() }, faults)? == Moved::Yes {
            return Ok(free);
        }
    }
    Err(io::Error::other("no name is free"))
}

/// Reports whether a name is `plain`, or `plain` with the number that [`move_to_a_free_name`] appends. Pure.
pub(crate) fn is_numbered(name: &[u8], plain: &str) -> bool {
    let rest = name.strip_prefix(plain.as_bytes());
    rest.is_some_and(|rest| match rest {
        [] => true,
        [b'-', number @ ..] => !number.is_empty() && number.iter().all(u8::is_ascii_digit),
        _ => false,
    })
}

/// Lists what was set aside for a run.
pub(crate) fn found_aside(layers: &Workspace, run: &str) -> io::Result<Vec<PathBuf>> {
    let dir: OwnedFd = match layers.readable_dir(format!("{KEPT}/{run}").as_bytes()) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let place = layers.path().join(KEPT).join(run);
    Ok(names(dir.as_fd())?.iter().map(|name| place.join(OsStr::from_bytes(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_numbered_forms_are_found() {
        for (name, is_found) in
            [("a", true), ("a-2", true), ("a-12", true), ("a-", false), ("a-x", false), ("ab", false)]
        {
            assert_eq!(is_numbered(name.as_bytes(), "a"), is_found, "{name}");
        }
        assert!(!is_numbered(b"b", "a"));
    }

    #[test]
    fn an_error_after_a_move_says_where_the_entry_is() {
        let error = moved_to(Path::new("/state/layers/.kept/run/layer"), &Errno::IO.into());
        assert!(error.to_string().starts_with("it is at /state/layers/.kept/run/layer now"), "{error}");
        assert!(error.to_string().contains("(os error 5)"), "{error}");
        let at = tempfile::tempdir().unwrap();
        // A descriptor for a path alone cannot be synced.
        let tree = rustix::fs::open(at.path(), rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
        let error = synced("/kept/x".into(), &[&Workspace::from_fd(tree)], &Faults::default()).unwrap_err();
        assert!(error.to_string().starts_with("it is at /kept/x now"), "{error}");
    }
}
