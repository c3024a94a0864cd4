//! Advice for a command that failed at a path that is there outside and that its sandbox does not show.
//!
//! The words are hostile. A path of them is looked up when the command is over, and the answer goes to the caller alone. Nothing is
//! opened, no link is followed, and nothing is said about places that no flag shows: credentials, the kernel's files, the state of
//! Nexus, and file systems that may wait for a server or a program: a process cannot leave such a wait, and its thread keeps the whole
//! process from ending.

use crate::denied::{after_program, at, path_of};
use crate::known_paths::whole;
use crate::until::Until;
use nexus_caller::failure::one_line;
use nexus_model::Plan;
use nexus_model::plan::Access;
use nexus_profiles::toolchains::is_system;
use nexus_runner::live::last_words::LastWords;
use nexus_runner::plan::guarded::Guarded;
use nexus_runner::plan::mounts;
use std::path::Path;

/// Written by programs for ENOENT; dash says only "No such file".
const NOT_THERE: &[&[u8]] = &[b"No such file", b"no such file or directory", b"ENOENT"];
/// Lines that are searched, from the last one back.
const MAX_LINES: usize = 64;
/// Directories that a sandbox has of its own.
const OWN: &[&str] = &["/dev", "/proc", "/sys", "/run", "/etc"];

/// Returns the text of the advice.
pub fn advice(plan: &Plan, state: &Path, words: &LastWords, until: Until) -> Option<String> {
    let mut lines = words.last_lines().take(MAX_LINES).take_while(|_| !until.is_over());
    lines.find_map(|line| of_line(plan, state, line))
}

fn of_line(plan: &Plan, state: &Path, line: &[u8]) -> Option<String> {
    let place = NOT_THERE.iter().find_map(|error| at(line, error))?;
    let path = whole(&plan.cwd.as_path().join(path_of(line, after_program(line, place), place)?))?;
    // Before any other look at the path.
    if is_inside(plan, &path) || OWN.iter().any(|own| path.starts_with(own)) || !mounts::is_local(&path) {
        return None;
    }
    let guarded = Guarded::here(&nexus_caller::host::here());
    let refused = guarded.refusal(&path, Access::ReadOnly, |path| path.symlink_metadata().is_ok());
    if refused.is_some() || state.starts_with(&path) || path.starts_with(state) || !is_there(&path) {
        return None;
    }
    let name = one_line(&path.display().to_string());
    Some(format!("perhaps: {name} is there outside, and the sandbox does not show it. --ro {name} shows it."))
}

/// Reports whether a path is there, without links on its way: a name beside the workspace may lead to a key. Only file systems that
/// answer on their own are asked: the command chose the name, and a look could connect the host with a server, or wait for one.
pub fn is_there(path: &Path) -> bool {
    let mut ways: Vec<&Path> = path.ancestors().collect();
    ways.reverse();
    mounts::is_local(path)
        && ways.iter().skip(1).all(|child| child.symlink_metadata().is_ok_and(|about| !about.is_symlink()))
}

/// Reports whether the sandbox shows this place.
fn is_inside(plan: &Plan, path: &Path) -> bool {
    is_system(path)
        || path.starts_with(plan.workspace.target.as_path())
        || path.starts_with(plan.workspace.source.as_path())
        || plan.binds.iter().any(|bind| path.starts_with(bind.target.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_link_on_its_way_is_not_there() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::fs::write(base.join("real/file"), "").unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        assert!(is_there(&base.join("real/file")));
        for other in ["link", "link/file", "real/none", "real/file/below"] {
            assert!(!is_there(&base.join(other)), "{other}");
        }
    }
}
