//! Advice for a command that is neither in the sandbox nor outside: a slip, a word of the shell, or a program of the project.
//!
//! The name comes from the caller's command line, and only names of files are read.

use crate::not_shown::is_there;
use nexus_caller::failure::one_line;
use nexus_model::Plan;
use nexus_policy::profile::closest;
use std::path::{Path, PathBuf};

/// Words that shells act on themselves, and aliases that many people have.
const OF_SHELLS: &[&str] = &[
    ".", "alias", "bg", "bind", "case", "cd", "declare", "dirs", "disown", "eval", "exec", "exit", "export", "fg",
    "for", "function", "hash", "history", "if", "jobs", "l", "la", "let", "ll", "local", "popd", "pushd", "read",
    "readonly", "return", "set", "shift", "shopt", "source", "time", "trap", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "until", "wait", "while",
];
/// Directories of a project in which its tools install programs.
const OF_PROJECTS: &[&str] = &[".venv/bin", "venv/bin", "node_modules/.bin", "vendor/bin", "bin"];
/// Directories of the system that every sandbox shows.
const OF_THE_SYSTEM: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/local/bin"];
/// Names of one directory that are compared.
const MAX_NAMES: usize = 20_000;

/// Returns the advice for a command that was found nowhere. One with a slash is a path, and is not searched.
pub fn advice(plan: &Plan, path: &[PathBuf], name: &str) -> Option<String> {
    if let Some(variable) = assigned(name) {
        return Some(format!(
            "{variable}=... in front of a command is for a shell. --env {variable}=VALUE sets it, or nexus run --shell 'LINE' runs the \
             line with a shell."
        ));
    }
    let shown = one_line(name);
    if OF_SHELLS.contains(&name) {
        return Some(format!(
            "{shown} is a word of the shell and no program. nexus run --shell 'LINE' runs a line with a shell."
        ));
    }
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let nowhere = format!("{shown} is neither in the sandbox nor on your PATH");
    let workspace = plan.workspace.source.as_path();
    let is_installed = |directory: &&&str| {
        let directory = workspace.join(directory);
        is_there(&directory) && directory.join(name).symlink_metadata().is_ok()
    };
    if let Some(directory) = OF_PROJECTS.iter().find(is_installed) {
        let there = Path::new(directory).join(name);
        let from_cwd = plan.cwd.as_path() == plan.workspace.target.as_path();
        let call = if from_cwd { there } else { plan.workspace.target.as_path().join(there) };
        return Some(format!(
            "{nowhere}, and the workspace has one: call it as {}.",
            one_line(&call.display().to_string())
        ));
    }
    let known = names(path.iter().map(PathBuf::as_path).chain(OF_THE_SYSTEM.iter().map(Path::new)));
    Some(match closest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("{nowhere}; did you mean {}?", one_line(meant)),
        None => format!("{nowhere}. Install it where your PATH leads, or call it by its path."),
    })
}

/// Returns the variable of `NAME=VALUE`. The value may be a secret.
fn assigned(word: &str) -> Option<&str> {
    let (name, _) = word.split_once('=')?;
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name =
        name.bytes().next().is_some_and(is_letter) && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit());
    is_name.then_some(name)
}

/// Lists the names in directories.
fn names<'d>(directories: impl Iterator<Item = &'d Path>) -> Vec<String> {
    let entries = directories.filter_map(|directory| std::fs::read_dir(directory).ok());
    let named = entries.flat_map(|entries| entries.flatten().take(MAX_NAMES));
    named.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_recognised_and_its_value_is_not_said() {
        assert_eq!(assigned("A_1=b"), Some("A_1"));
        for other in ["A", "=b", "1A=b", "a-b=c", "./x=y"] {
            assert_eq!(assigned(other), None, "{other}");
        }
    }
}
