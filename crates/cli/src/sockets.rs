//! Finds what binds show and a read-only mount does not hold: Unix sockets, which a command connects to, and named pipes, which
//! it reads from and writes to. They are covered; `--allow-socket` names a socket that is not.
//!
//! ```text
//!  --ro, --rw   a socket                            covered unless --allow-socket names it
//!  --ro         a named pipe                        covered
//!  --ro, --rw   a directory that the caller may     covered: a socket in it is reached by a name that is known
//!               enter and not list (mode 0711)
//! ```

use crate::binds::Shown;
use crate::failure::Failure;
use nexus_model::ByteText;
use nexus_model::plan::Access;
use nexus_runner::plan::guarded::Guarded;
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The cost of searching all binds of a run may be this: an entry costs one. A bind that is not searched to its end is refused, because an
/// earlier run may have filled it so that a socket was not found.
const MOST: usize = 4_000_000;
/// The cost of a directory beside its entries, with one for each so many bytes of its path.
const PER_DIRECTORY: usize = 16;

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
    let mut budget = MOST;
    for shown in
        binds.iter().filter(|shown| shown.made.is_none() && shown.why.is_none() && !shown.bind.access.is_device())
    {
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
        if is_pipe(source) && shown.bind.access == Access::ReadOnly && !shown.by_operator {
            let message = format!(
                "{} {} is a named pipe: a command could write to the program that reads from it",
                shown.from,
                source.display()
            );
            let hint = "Show it with --rw if the command may do that.";
            return Err(Failure::refused("socket", message, hint));
        }
        let Some(within) = below(source, shown.bind.access, &mut budget) else {
            return Err(too_much(shown));
        };
        if let Some(closed) = within.closed.iter().find(|closed| closed.as_os_str().is_empty()) {
            return Err(closed_bind(shown, &source.join(closed)));
        }
        for closed in &within.closed {
            let directory = source.join(closed);
            if let Some(socket) = allowed.iter().find(|path| path.starts_with(&directory)) {
                return Err(closed_directory("--allow-socket", socket, &directory));
            }
            let inside = target.join(closed);
            if let Some(inner) = binds.iter().find(|other| other.bind.target.as_path().starts_with(&inside)) {
                return Err(closed_directory(&inner.from.to_string(), inner.bind.source.as_path(), &directory));
            }
        }
        let sockets = within.sockets.iter().filter(|relative| !allowed.contains(&source.join(relative)));
        let covered = sockets.chain(&within.pipes).chain(&within.closed);
        found.covered.extend(covered.map(|relative| ByteText::from(target.join(relative))));
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

fn is_pipe(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

fn too_much(shown: &Shown) -> Failure {
    let message = format!(
        "{} {} holds too much to be searched for sockets, which a command could connect to",
        shown.from,
        shown.bind.source.as_path().display()
    );
    Failure::refused("socket", message, "Show the directories in it that the command needs, by their names.")
}

fn closed_bind(shown: &Shown, path: &Path) -> Failure {
    let message =
        format!("{} {} cannot be listed, so that sockets in it cannot be covered", shown.from, path.display());
    Failure::refused("socket", message, "Show the files in it that the command needs, by their names.")
}

fn closed_directory(flag: &str, path: &Path, directory: &Path) -> Failure {
    let message = format!(
        "{flag} {} cannot be used: {} cannot be listed, and is covered as a whole for the sockets that it may hold",
        path.display(),
        directory.display()
    );
    Failure::refused("socket", message, format!("Show it at another place: --ro {}:/srv/NAME.", path.display()))
}

/// Paths relative to a bind's source.
#[derive(Debug, Default, PartialEq, Eq)]
struct Within {
    sockets: Vec<PathBuf>,
    pipes: Vec<PathBuf>,
    /// Directories in which names can be used and not found out.
    closed: Vec<PathBuf>,
}

/// Looks through a directory. One that can be neither listed nor entered holds nothing that the command could reach. `None`: the
/// budget was not enough.
fn below(top: &Path, access: Access, budget: &mut usize) -> Option<Within> {
    let mut found = Within::default();
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(directory) = waiting.pop_front() {
        let entries = match std::fs::read_dir(top.join(&directory)) {
            Ok(entries) => entries,
            Err(error) => {
                if hides_names(&top.join(&directory), &error) {
                    found.closed.push(directory);
                }
                continue;
            }
        };
        for entry in entries {
            *budget = budget.checked_sub(1)?;
            let Ok(entry) = entry else {
                // What comes after it in the directory is unknown.
                found.closed.push(directory.clone());
                break;
            };
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => found.sockets.push(directory.join(entry.file_name())),
                // A writable bind is for writing to what is in it.
                Ok(kind) if kind.is_fifo() && access == Access::ReadOnly => {
                    found.pipes.push(directory.join(entry.file_name()));
                }
                Ok(kind) if kind.is_dir() => {
                    let path = directory.join(entry.file_name());
                    *budget = budget.checked_sub(PER_DIRECTORY + path.as_os_str().len() / PER_DIRECTORY)?;
                    waiting.push_back(path);
                }
                // Gone meanwhile, or something that nobody connects to.
                Ok(_) | Err(_) => {}
            }
        }
    }
    Some(found)
}

/// Reports that names in a directory that could not be listed may still be used.
fn hides_names(path: &Path, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => false,
        io::ErrorKind::PermissionDenied => rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok(),
        _ => true,
    }
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
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let mut budget = 100;
            let found = below(top.path(), access, &mut budget).unwrap();
            let sockets = vec![PathBuf::from("s"), "a/b/t".into()];
            assert_eq!(found, Within { sockets, ..Within::default() });
            assert_eq!(budget, 100 - 6 - 2 * PER_DIRECTORY);
        }
    }

    #[test]
    fn named_pipes_count_where_a_bind_is_read_only() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("a")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, top.path().join("a/p"), kind, mode, 0).unwrap();
        let pipes = |access| below(top.path(), access, &mut 100).unwrap().pipes;
        assert_eq!(pipes(Access::ReadOnly), [PathBuf::from("a/p")]);
        assert_eq!(pipes(Access::ReadWrite), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_cannot_be_listed_hides_names_unless_it_is_gone() {
        let top = tempfile::tempdir().unwrap();
        let hides = |path: &Path, kind| hides_names(path, &io::Error::from(kind));
        assert!(hides(top.path(), io::ErrorKind::PermissionDenied));
        assert!(!hides(&top.path().join("missing"), io::ErrorKind::PermissionDenied));
        assert!(!hides(top.path(), io::ErrorKind::NotFound));
        assert!(hides(top.path(), io::ErrorKind::Other));
        // A file that is bound by itself.
        let file = top.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(below(&file, Access::ReadOnly, &mut 100), Some(Within::default()));
    }

    #[test]
    fn a_bind_that_is_not_searched_to_its_end_is_refused() {
        let top = tempfile::tempdir().unwrap();
        for number in 0..20 {
            std::fs::write(top.path().join(number.to_string()), "").unwrap();
        }
        std::fs::create_dir(top.path().join("x")).unwrap();
        let _listener = UnixListener::bind(top.path().join("x/s")).unwrap();
        let sockets = |mut budget| below(top.path(), Access::ReadWrite, &mut budget).map(|found| found.sockets);
        let whole = 20 + 1 + PER_DIRECTORY + 1;
        assert_eq!(sockets(whole), Some(vec![PathBuf::from("x/s")]));
        assert_eq!(sockets(whole - 1), None);
        assert_eq!(sockets(0), None);
    }
}
