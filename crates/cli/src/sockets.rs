//! Finds the Unix sockets in what binds show. A read-only mount does not keep a command from connecting to one, so they are
//! covered unless `--allow-socket` names them.

use crate::binds::Shown;
use crate::failure::Failure;
use crate::guarded::Guarded;
use nexus_model::ByteText;
use std::collections::VecDeque;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Entries that are looked at in all binds of a run, those near the top of a bind first.
const MAX_ENTRIES: usize = 20_000;

/// The sockets of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Paths inside that are to be covered.
    pub covered: Vec<ByteText>,
    /// Paths on the host that the caller allowed.
    pub allowed: Vec<ByteText>,
}

/// Looks for sockets in binds that flags and profiles asked for; those of toolchains hold programs.
pub fn find(binds: &[Shown], allow: &[PathBuf], guarded: &Guarded) -> Result<Sockets, Failure> {
    let mut allowed = Vec::new();
    for path in allow {
        allowed.push(allowed_socket(path, binds, guarded)?);
    }
    let mut found = Sockets::default();
    let mut budget = MAX_ENTRIES;
    for shown in binds.iter().filter(|shown| shown.made.is_none() && shown.why.is_none()) {
        let (source, target) = (shown.bind.source.as_path(), shown.bind.target.as_path());
        if is_socket(source) {
            if !shown.by_operator && !allowed.iter().any(|path| path == source) {
                let message = format!(
                    "{} {} is a socket: a command could act outside of the sandbox through it",
                    shown.from,
                    source.display()
                );
                let hint = format!("Add --allow-socket {} if the command may connect to it.", source.display());
                return Err(Failure::refused("socket", message, hint));
            }
            continue;
        }
        for relative in below(source, &mut budget) {
            if !allowed.contains(&source.join(&relative)) {
                found.covered.push(target.join(relative).into());
            }
        }
    }
    found.allowed = allowed.into_iter().map(ByteText::from).collect();
    Ok(found)
}

/// Checks that the caller may allow this one, and that a bind shows it.
fn allowed_socket(path: &Path, binds: &[Shown], guarded: &Guarded) -> Result<PathBuf, Failure> {
    let refuse = |why: &str, hint: &str| {
        Err(Failure::refused("socket", format!("--allow-socket {} cannot be used: {why}", path.display()), hint))
    };
    let Ok(real) = std::fs::canonicalize(path) else {
        return refuse("it is not there", "Name a socket that exists.");
    };
    if !is_socket(&real) {
        return refuse("it is not a socket", "Name a socket in a directory that --ro or --rw shows.");
    }
    if guarded.is_known_socket(&real) {
        let hint = "The operator can open it by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml.";
        return refuse("it belongs to an engine, an agent or a bus", hint);
    }
    if !binds.iter().any(|shown| real.starts_with(shown.bind.source.as_path())) {
        return refuse("no bind shows it", "Show it, or its directory, with --ro.");
    }
    Ok(real)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// The sockets below a directory, relative to it. A directory that cannot be read holds none that the command could reach.
fn below(top: &Path, budget: &mut usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(directory) = waiting.pop_front() {
        let Ok(entries) = std::fs::read_dir(top.join(&directory)) else { continue };
        for entry in entries.flatten() {
            let Some(left) = budget.checked_sub(1) else { return found };
            *budget = left;
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => found.push(directory.join(entry.file_name())),
                Ok(kind) if kind.is_dir() => waiting.push_back(directory.join(entry.file_name())),
                // Gone meanwhile, or something that nobody connects to.
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn sockets_are_found_at_any_depth_and_never_through_links() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
        std::fs::write(top.path().join("file"), "").unwrap();
        let _listeners =
            [UnixListener::bind(top.path().join("s")).unwrap(), UnixListener::bind(top.path().join("a/b/t")).unwrap()];
        let mut budget = 100;
        assert_eq!(below(top.path(), &mut budget), [PathBuf::from("s"), "a/b/t".into()]);
        assert_eq!(budget, 100 - 6);
    }

    #[test]
    fn the_search_is_bounded_and_begins_at_the_top() {
        let top = tempfile::tempdir().unwrap();
        for number in 0..20 {
            std::fs::create_dir_all(top.path().join(format!("{number}/x"))).unwrap();
        }
        let _listener = UnixListener::bind(top.path().join("s")).unwrap();
        assert_eq!(below(top.path(), &mut 21), [PathBuf::from("s")]);
        assert_eq!(below(top.path(), &mut 0), Vec::<PathBuf>::new());
    }
}
