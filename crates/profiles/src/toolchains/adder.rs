//! Collects the paths and variables that toolchains need, and covers login files on the way.

use super::found::{Found, FoundBind, FoundSource};
use super::host::{self, ToolHost};
use super::logins;
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Collector for the needs of one toolchain.
pub(super) struct Adder<'a> {
    pub(super) found: &'a mut Found,
    pub(super) host: &'a ToolHost,
    pub(super) from: Origin,
}

impl Adder<'_> {
    /// Shows a path at its own place.
    pub(super) fn show(&mut self, path: &Path, why: &'static str) {
        self.show_at(path, path, why);
    }

    /// Shows a path at another place, with a file of Nexus's own over each login file.
    pub(super) fn show_at(&mut self, source: &Path, target: &Path, why: &'static str) {
        if host::is_system(target) || target.starts_with(&self.host.workspace) {
            return;
        }
        let covered = if source.is_dir() { logins::find(source) } else { Ok(BTreeMap::new()) };
        match covered {
            Ok(covered) => {
                for (file, cover) in covered {
                    let target = target.join(file);
                    self.cover(cover, target);
                }
                self.show_unsearched(source, target, why);
            }
            Err(error) => self.note(format!("{error}, so it is not shown")),
        }
    }

    pub(super) fn cover(&mut self, content: Vec<u8>, target: PathBuf) {
        let why = "in place of settings that may hold logins";
        let bind = FoundBind { source: FoundSource::Made(content), target, why, from: self.from.clone() };
        self.bind(bind);
    }

    /// Shows a path without a search for logins: downloads of a package manager, or a repository's history. Neither
    /// holds settings of a client.
    pub(super) fn show_unsearched(&mut self, source: &Path, target: &Path, why: &'static str) {
        if host::is_system(target) || target.starts_with(&self.host.workspace) {
            return;
        }
        let bind = FoundBind {
            source: FoundSource::Path(source.to_owned()),
            target: target.to_owned(),
            why,
            from: self.from.clone(),
        };
        self.bind(bind);
    }

    /// Shows a file that Nexus makes.
    pub(super) fn show_made(&mut self, content: Vec<u8>, target: &str, why: &'static str) {
        let bind =
            FoundBind { source: FoundSource::Made(content), target: target.into(), why, from: self.from.clone() };
        self.bind(bind);
    }

    pub(super) fn bind(&mut self, bind: FoundBind) {
        if !self.found.binds.iter().any(|known| known.target == bind.target) {
            self.found.binds.push(bind);
        }
    }

    /// Adds a directory to the PATH inside, unless every sandbox has it.
    pub(super) fn path(&mut self, folder: &Path) {
        if !host::is_system(folder) && !self.found.path.iter().any(|known| known.value == folder) {
            self.found.path.push(Sourced::new(folder.to_owned(), self.from.clone()));
        }
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.found.notes.push(text.into());
    }

    /// Shows the directory that a program belongs to, or the program alone, and puts it on the PATH.
    pub(super) fn show_program(&mut self, tool: &host::Tool, why: &'static str) {
        self.found_in_workspace(tool);
        if host::is_system(&tool.real) {
            return;
        }
        if let Some(prefix) = host::prefix(&tool.real, self.host) {
            self.show(&prefix, why);
            if let Some(folder) = tool.real.parent() {
                self.path(folder);
            }
            return;
        }
        self.show(&tool.real, why);
        // The name by which the program was called may differ from the file's.
        if tool.file != tool.real {
            self.show_at(&tool.real, &tool.file, why);
        }
        self.path(&tool.entry);
    }

    /// Keeps entries of PATH in the workspace that also have the tool where the caller had them.
    pub(super) fn found_in_workspace(&mut self, tool: &host::Tool) {
        for entry in &tool.in_workspace {
            self.path(entry);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::host::tests::Scene;
    use super::*;

    /// Returns everything that one toolchain finds on a prepared host.
    pub fn found_by(scene: &Scene, find: fn(&mut Adder<'_>)) -> Found {
        let mut found = Found::default();
        let mut to = Adder { found: &mut found, host: &scene.host, from: Origin::Standard };
        find(&mut to);
        found
    }
}
