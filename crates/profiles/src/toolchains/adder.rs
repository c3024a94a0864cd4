//! Collects the paths and variables that toolchains need, and covers login files on the way.

use super::found::{Found, FoundBind, FoundHome, FoundSource};
use super::host::{self, Tool, ToolHost};
use super::layout;
use super::logins::{self, Libraries};
use super::places;
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum number of mounts that `auto` adds: each one costs time at the start of a run.
const MAX_BINDS: usize = 512;

/// Collector for the needs of one toolchain.
pub(super) struct Adder<'a> {
    pub(super) found: &'a mut Found,
    pub(super) host: &'a ToolHost,
    pub(super) from: Origin,
    /// Name of the toolchain, where the caller's PATH asks for it and nothing else does.
    pub(super) auto: Option<&'static str>,
}

impl Adder<'_> {
    /// Finds a program on PATH. With `auto` its entry of PATH is the reason for what is shown next, and shims are passed
    /// over, which need the state of their manager.
    pub(super) fn find(&mut self, names: &[&str]) -> Option<Tool> {
        if self.auto.is_none() {
            return self.host.find(names);
        }
        let entries: Vec<PathBuf> = self.host.path.iter().filter(|entry| !host::is_shims(entry)).cloned().collect();
        let tool = self.host.find_in(&entries, names)?;
        self.because(|| format!("{} on PATH", tool.entry.display()));
        Some(tool)
    }

    /// Returns the directory that a variable names. With `auto` it needs a mark of its kind, and the variable is the reason for what is shown next.
    pub(super) fn directory_of(&mut self, variable: &str, has_mark: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let directory = self.host.directory_of(variable)?;
        if self.auto.is_some() && !has_mark(&directory) {
            let text = format!("{} is not laid out as {variable} is, so it is not shown", directory.display());
            self.host.note(&directory, text);
            return None;
        }
        self.because(|| format!("the variable {variable}"));
        Some(directory)
    }

    /// Notes why the next paths are shown, if no file and no flag asked for them.
    pub(super) fn because(&mut self, reason: impl FnOnce() -> String) {
        if let Some(name) = self.auto {
            self.from = Origin::Toolchain { name, asked: Box::new(Origin::Auto { because: reason() }) };
        }
    }

    /// Shows a path at its own place.
    pub(super) fn show(&mut self, path: &Path, why: &'static str) {
        self.show_at(path, path, why);
    }

    /// Shows the directory of an installation: as a whole, or with `auto` the parts of an environment.
    pub(super) fn show_installation(&mut self, directory: &Path, why: &'static str) {
        match self.auto.and_then(|_| layout::parts(directory, self.host)) {
            None => self.show(directory, why),
            Some(_) if self.holds_own(directory) => {}
            Some(parts) => {
                let is_known = places::is_known(directory, self.host.home.as_deref())
                    || layout::is_of_administrator(directory, self.host);
                let libraries = if is_known { Libraries::Skipped } else { Libraries::ForSockets };
                for part in parts {
                    self.show_searched(&part, &part, why, libraries);
                }
            }
        }
    }

    /// Shows a path at another place, with a file of Nexus's own over each login file.
    pub(super) fn show_at(&mut self, source: &Path, target: &Path, why: &'static str) {
        self.show_searched(source, target, why, Libraries::Skipped);
    }

    fn show_searched(&mut self, source: &Path, target: &Path, why: &'static str, libraries: Libraries) {
        if host::is_system(target) || target.starts_with(&self.host.workspace) {
            return;
        }
        if source == target
            && self.found.binds.iter().any(|known| known.is_own_place() && target.starts_with(&known.target))
        {
            return;
        }
        if self.holds_own(source) || !self.has_place(target) {
            return;
        }
        let is_directory = source.is_dir();
        // A link to such a file may stand in the place of a program.
        if self.auto.is_some() && !is_directory && logins::is_login_file(source) {
            return;
        }
        let mut known = self.host.searches.borrow_mut();
        let covered = if is_directory {
            logins::find(source, self.host.until, libraries, &mut known)
        } else {
            Ok(BTreeMap::new())
        };
        drop(known);
        match covered {
            Ok(covered) => {
                let is_new = |target: &Path| !self.found.binds.iter().any(|bind| bind.target == target);
                let fresh = covered.into_iter().map(|(file, cover)| (target.join(file), cover));
                let fresh = fresh.filter(|(target, _)| is_new(target));
                let covers: Vec<FoundBind> = fresh.map(|(target, content)| self.cover(content, target)).collect();
                if self.auto.is_some() && self.found.binds.len() + covers.len() > MAX_BINDS {
                    let text = format!("{} needs more than {MAX_BINDS} mounts, so it is not shown", source.display());
                    self.found.notes.push(text);
                    return;
                }
                self.found.binds.extend(covers);
                self.bind_path(source, target, why);
            }
            Err(error) => self.found.notes.push(format!("{error}, so it is not shown")),
        }
    }

    /// Shows settings of the system that a toolchain needs.
    pub(super) fn tables(&mut self, tables: impl FnOnce() -> Vec<(PathBuf, &'static str)>) {
        for (path, why) in tables() {
            self.show(&path, why);
        }
    }

    fn cover(&self, content: Vec<u8>, target: PathBuf) -> FoundBind {
        let why = "in place of settings that may hold logins";
        FoundBind { source: FoundSource::Made(content), target, why, from: self.from.clone() }
    }

    /// Reports whether a bind can lie at this place. With `auto` one that cannot is left out instead of refusing the run.
    fn has_place(&mut self, target: &Path) -> bool {
        let is_filled = ["/dev", "/proc", "/sys"].iter().any(|filled| target.starts_with(filled));
        let is_normal = !target.components().any(|part| part == std::path::Component::ParentDir);
        if self.auto.is_none() || (!is_filled && is_normal) {
            return true;
        }
        let text = format!("{} cannot be shown at its place: every sandbox fills it itself", target.display());
        self.found.notes.push(text);
        false
    }

    /// Reports whether a path holds the workspace or, with `auto`, the home, and notes that it is not shown: what is hidden
    /// in the workspace would be seen there.
    fn holds_own(&mut self, source: &Path) -> bool {
        let holds = match self.auto {
            Some(_) => self.host.holds_own(source),
            None => self.host.holds_workspace(source),
        };
        if holds {
            let text = format!("{} holds the workspace or your home, so it is not shown", source.display());
            self.found.notes.push(text);
        }
        holds
    }

    /// Shows a path without a search for logins: downloads of a package manager, or a repository's history. Neither
    /// holds settings of a client.
    pub(super) fn show_unsearched(&mut self, source: &Path, target: &Path, why: &'static str) {
        if !host::is_system(target)
            && !target.starts_with(&self.host.workspace)
            && !self.holds_own(source)
            && self.has_place(target)
        {
            self.bind_path(source, target, why);
        }
    }

    fn bind_path(&mut self, source: &Path, target: &Path, why: &'static str) {
        let bind = FoundBind {
            source: FoundSource::Path(source.to_owned()),
            // Without doubled slashes of an entry of PATH.
            target: target.components().collect(),
            why,
            from: self.from.clone(),
        };
        self.bind(bind);
    }

    /// Shows a file that Nexus makes.
    pub(super) fn show_made(&mut self, content: Vec<u8>, target: impl Into<PathBuf>, why: &'static str) {
        let bind =
            FoundBind { source: FoundSource::Made(content), target: target.into(), why, from: self.from.clone() };
        self.bind(bind);
    }

    pub(super) fn bind(&mut self, bind: FoundBind) {
        if bind.is_own_place() {
            // What lies in it is shown by it: a mount on a mount has to be watched during the run.
            self.found.binds.retain(|known| !(known.is_own_place() && known.target.starts_with(&bind.target)));
        }
        if !self.found.binds.iter().any(|known| known.target == bind.target) {
            self.found.binds.push(bind);
        }
    }

    /// Adds a directory to the PATH inside, unless every sandbox has it.
    pub(super) fn path(&mut self, directory: &Path) {
        // Such a directory cannot stand on a PATH.
        if self.auto.is_some() && directory.as_os_str().as_encoded_bytes().contains(&b':') {
            return;
        }
        if !host::is_system(directory) && !self.found.path.iter().any(|known| known.value == directory) {
            self.found.path.push(Sourced::new(directory.to_owned(), self.from.clone()));
        }
    }

    /// Sets a variable. What a profile asked for came first and stays.
    pub(super) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        if self.auto.is_none() || !self.found.env.contains_key(name) {
            self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
        }
    }

    /// Lets a directory of the tool keep the path that it has outside, by a variable of the tool. Returns `None` where nothing private
    /// can lie: in what every sandbox shows, beside the root, and in or around the workspace and the home.
    pub(super) fn keep_home(&mut self, variable: &'static str, path: Option<PathBuf>) -> Option<PathBuf> {
        let path: PathBuf = path?.components().collect();
        let is_normal = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
        const FILLED: &[&str] = &["/dev", "/etc", "/proc", "/run", "/sys"];
        let is_filled = host::is_system(&path) || FILLED.iter().any(|filled| path.starts_with(filled));
        let is_top = path.ancestors().count() <= 2;
        if !is_normal || is_filled || is_top || path.starts_with(&self.host.workspace) || self.host.holds_own(&path) {
            return None;
        }
        if self.has_no_room(variable, &path) {
            return None;
        }
        if !self.found.homes.iter().any(|home| home.variable == variable) {
            self.found.homes.push(FoundHome { variable, path: path.clone() });
            self.set(variable, path.as_os_str());
        }
        Some(path)
    }

    /// Reports whether a directory cannot be private at its path: another one of a tool meets it, or a directory that is shown has no place
    /// for it.
    fn has_no_room(&self, variable: &str, path: &Path) -> bool {
        let meets = |other: &Path| path.starts_with(other) || other.starts_with(path);
        let mut others = self.found.homes.iter().filter(|home| home.variable != variable);
        let is_shown = || self.found.binds.iter().any(|bind| bind.is_own_place() && path.starts_with(&bind.target));
        others.any(|home| meets(&home.path)) || (is_shown() && !path.is_dir())
    }

    /// Returns the path that a variable gives a directory of the caller, as the tool reads it, or its usual one in the home.
    pub(super) fn path_of(&self, variable: &str, usual: &str) -> Option<PathBuf> {
        let caller = &self.host.caller;
        let named = caller.variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| caller.home.as_ref().map(|home| home.join(usual)))
    }

    /// Reports what is missing of a toolchain that a profile asked for.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        if self.auto.is_none() {
            self.found.notes.push(text.into());
        }
    }

    /// Shows the directory that a program belongs to, or the program alone, and puts it on the PATH.
    pub(super) fn show_program(&mut self, tool: &host::Tool, why: &'static str) {
        self.found_in_workspace(tool);
        if host::is_system(&tool.real) {
            return;
        }
        if let Some(prefix) = layout::prefix(&tool.real, self.host) {
            self.show_installation(&prefix, why);
            if let Some(directory) = tool.real.parent() {
                self.path(directory);
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
        let mut to = Adder { found: &mut found, host: &scene.host, from: Origin::Standard, auto: None };
        find(&mut to);
        found
    }
}
