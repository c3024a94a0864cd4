//! Toolchains of the caller: found from PATH, shown read-only at their own place, and put on the PATH inside.
//!
//! Three rules hold for all of them:
//!
//! * What lies in the workspace leads nowhere. A `.venv/bin/python` in it may be a link that an earlier run made, and to
//!   show what it points to would show any folder of the home (the link attack of the CVE-2024-0132 family).
//! * A tool's whole folder is shown only when it is plainly the tool's own; else just the file ([`host::prefix`]).
//! * Credentials and settings are never among what is shown: no `~/.cargo/credentials.toml`, `.npmrc`, `.pypirc`,
//!   `.netrc`, `.m2/settings.xml`, git helpers. Where such a file lies in a directory that is shown, a file of Nexus's own
//!   is shown in its place ([`logins`]). HOME inside is empty and private, so tools make caches of their own.

mod git;
mod git_config;
mod go;
pub mod host;
mod java;
mod logins;
mod node;
mod python;
mod rust;

use host::Host;
use nexus_policy::profile::{Grants, NetMode, Origin, Sourced, Toolchain};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A host path that a toolchain needs, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBind {
    /// On the host.
    pub source: Source,
    /// Inside.
    pub target: PathBuf,
    /// What it is.
    pub why: &'static str,
    /// Who asked for the toolchain.
    pub from: Origin,
}

/// Where what is shown comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path of the host.
    Path(PathBuf),
    /// A file that Nexus makes with this content.
    Made(Vec<u8>),
}

/// Everything that the toolchains need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Paths.
    pub binds: Vec<FoundBind>,
    /// Folders in front of PATH.
    pub path: Vec<Sourced<PathBuf>>,
    /// Variables.
    pub env: BTreeMap<String, Sourced<OsString>>,
    /// What the user should know: what was not found, what stays read-only.
    pub notes: Vec<String>,
}

/// Looks for the toolchains that were asked for.
pub fn find(grants: &Grants, workspace: &Path) -> Found {
    let mut found = Found::default();
    if grants.toolchains.is_empty() {
        return found;
    }
    let network = grants.net.effective_mode() != NetMode::None;
    let host = Host::of_the_caller(workspace, network);
    for asked in &grants.toolchains {
        let from = Origin::Toolchain { name: asked.value.word(), asked: Box::new(asked.from.clone()) };
        look_for(asked.value, &mut Adder { found: &mut found, host: &host, from });
    }
    // PATH inside follows the order of the caller's, so that the same program of two is found first.
    let rank = |entry: &Sourced<PathBuf>| host.path.iter().position(|known| *known == entry.value);
    found.path.sort_by_key(|entry| rank(entry).unwrap_or(usize::MAX));
    found
}

/// All toolchains.
const ALL: [Toolchain; 6] =
    [Toolchain::Python, Toolchain::Node, Toolchain::Rust, Toolchain::Go, Toolchain::Java, Toolchain::Git];

/// Returns the first toolchain that would show the command, a name or an absolute path, and is not one of `known`.
pub fn showing(host: &Host, known: &[Toolchain], command: &Path) -> Option<Toolchain> {
    ALL.into_iter().filter(|toolchain| !known.contains(toolchain)).find(|toolchain| {
        let mut found = Found::default();
        look_for(*toolchain, &mut Adder { found: &mut found, host, from: Origin::Standard });
        // `join` of an absolute path is that path.
        let places = found.path.iter().map(|entry| entry.value.join(command));
        let own = command.is_absolute().then(|| command.to_owned());
        places.chain(own).any(|place| found.shows(&place, host))
    })
}

impl Found {
    /// Reports whether a program is there inside at this place.
    fn shows(&self, place: &Path, host: &Host) -> bool {
        let is_program = |path: &Path| path.is_file() && host::can(path, rustix::fs::Access::EXEC_OK);
        place.starts_with(&host.workspace) && is_program(place)
            || self.binds.iter().any(|bind| match (&bind.source, place.strip_prefix(&bind.target)) {
                (Source::Path(source), Ok(rest)) if rest.as_os_str().is_empty() => is_program(source),
                (Source::Path(source), Ok(rest)) => is_program(&source.join(rest)),
                _ => false,
            })
    }
}

fn look_for(toolchain: Toolchain, to: &mut Adder<'_>) {
    match toolchain {
        Toolchain::Python => python::find(to),
        Toolchain::Node => node::find(to),
        Toolchain::Rust => rust::find(to),
        Toolchain::Go => go::find(to),
        Toolchain::Java => java::find(to),
        Toolchain::Git => git::find(to),
    }
}

/// Collects what one toolchain needs.
pub(crate) struct Adder<'a> {
    found: &'a mut Found,
    host: &'a Host,
    from: Origin,
}

impl Adder<'_> {
    /// Shows a path at its own place.
    fn show(&mut self, path: &Path, why: &'static str) {
        self.show_at(path, path, why);
    }

    /// Shows a path somewhere else, with a file of Nexus's own over each file of logins.
    fn show_at(&mut self, source: &Path, target: &Path, why: &'static str) {
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

    fn cover(&mut self, content: Vec<u8>, target: PathBuf) {
        let why = "in place of settings that may hold logins";
        let bind = FoundBind { source: Source::Made(content), target, why, from: self.from.clone() };
        self.bind(bind);
    }

    /// Shows a path as it is: what a package manager downloaded, or a repository's history. Neither holds settings of a client.
    fn show_unsearched(&mut self, source: &Path, target: &Path, why: &'static str) {
        if host::is_system(target) || target.starts_with(&self.host.workspace) {
            return;
        }
        let bind = FoundBind {
            source: Source::Path(source.to_owned()),
            target: target.to_owned(),
            why,
            from: self.from.clone(),
        };
        self.bind(bind);
    }

    /// Shows a file that Nexus makes.
    fn show_made(&mut self, content: Vec<u8>, target: &str, why: &'static str) {
        let bind = FoundBind { source: Source::Made(content), target: target.into(), why, from: self.from.clone() };
        self.bind(bind);
    }

    fn bind(&mut self, bind: FoundBind) {
        if !self.found.binds.iter().any(|known| known.target == bind.target) {
            self.found.binds.push(bind);
        }
    }

    /// Puts a folder on the PATH.
    fn path(&mut self, folder: &Path) {
        if !host::is_system(folder) && !self.found.path.iter().any(|known| known.value == folder) {
            self.found.path.push(Sourced::new(folder.to_owned(), self.from.clone()));
        }
    }

    /// Sets a variable.
    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
    }

    fn note(&mut self, text: impl Into<String>) {
        self.found.notes.push(text.into());
    }

    /// Shows the folder that a program belongs to, or just the program, and puts it on the PATH.
    fn show_program(&mut self, tool: &host::Tool, why: &'static str) {
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
        // Under the name by which it was called: it may be another than that of the file.
        if tool.file != tool.real {
            self.show_at(&tool.real, &tool.file, why);
        }
        self.path(&tool.entry);
    }

    /// An entry of PATH in the workspace that has the tool as well stays where the caller had it.
    fn found_in_workspace(&mut self, tool: &host::Tool) {
        for entry in &tool.in_workspace {
            self.path(entry);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::host::tests::Scene;
    use super::*;

    /// What one toolchain finds in a made host.
    pub(super) fn found_by(scene: &Scene, find: fn(&mut Adder<'_>)) -> Found {
        let mut found = Found::default();
        let mut to = Adder { found: &mut found, host: &scene.host, from: Origin::Standard };
        find(&mut to);
        found
    }
}
