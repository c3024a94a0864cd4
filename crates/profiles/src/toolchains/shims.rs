//! Version managers that put shims on PATH: pyenv, rbenv, plenv. A shim needs the manager's own state, so the version
//! that it would choose goes on PATH instead. All versions are shown, so that a file of the workspace chooses among what
//! is shown and adds nothing to it.

use super::adder::Adder;
use super::host::{self, Tool};
use super::layout;
use super::reading;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One version manager.
pub(super) struct Manager {
    /// Name for people.
    pub(super) name: &'static str,
    /// Variable that names its directory.
    pub(super) root: &'static str,
    /// Its usual directory in the home.
    pub(super) directory: &'static str,
    /// Variable that names the version.
    pub(super) version: &'static str,
    /// File of the workspace that names the version.
    pub(super) file: &'static str,
    /// Description of what is shown.
    pub(super) why: &'static str,
}

/// Program of a language that was found, with regard to the shims of its manager.
pub(super) enum Choice {
    /// A shim: the version that it would choose is on PATH.
    Shim,
    /// A program that belongs to no manager.
    Program(Tool),
}

impl Choice {
    /// Returns the program that is not a shim.
    pub(super) fn program(&self) -> Option<&Tool> {
        match self {
            Self::Shim => None,
            Self::Program(tool) => Some(tool),
        }
    }
}

/// Finds a program of a language. Shows the versions of its manager, and puts those on PATH that it would choose if the
/// program is one of its shims. With `auto` they are shown only if the caller's PATH or the manager's variable leads
/// there, and a shim whose version is not known leaves its place to the next entry of PATH.
pub(super) fn find(to: &mut Adder<'_>, manager: &Manager, names: &[&str]) -> Option<Choice> {
    let tool = to.host.find(names)?;
    to.because(|| format!("{} on PATH", tool.entry.display()));
    if of_manager(to, manager, &tool, names) {
        return Some(Choice::Shim);
    }
    let is_other_shim = to.auto.is_some() && host::is_shims(&tool.entry);
    let program = if is_other_shim { to.find(names)? } else { tool };
    Some(Choice::Program(program))
}

/// Shows the versions of a manager, and reports whether the tool is one of its shims that was put on PATH.
fn of_manager(to: &mut Adder<'_>, manager: &Manager, tool: &Tool, names: &[&str]) -> bool {
    let named = to.host.directory_of(manager.root).filter(|root| to.auto.is_none() || root.join("shims").is_dir());
    let is_named = named.is_some();
    let Some(root) = named.or_else(|| to.host.in_home(manager.directory)) else { return false };
    let Some(versions) = to.host.directory(&root.join("versions")) else { return false };
    let is_shim = host::is_shims(&tool.entry) && (to.auto.is_none() || tool.real.parent() == Some(&root.join("shims")));
    let is_used = is_shim || tool.real.starts_with(&root) || is_named;
    if to.auto.is_some() && !is_used {
        return false;
    }
    if is_named && !is_shim {
        to.because(|| format!("the variable {}", manager.root));
    }
    show_versions(to, manager, &versions, &root.join("versions"));
    if !is_shim {
        return false;
    }
    let chosen = chosen(to, manager, &root);
    let has_program = |bin: &PathBuf| names.iter().any(|name| bin.join(name).exists());
    if to.auto.is_some() && !chosen.iter().any(has_program) {
        return false;
    }
    to.found_in_workspace(tool);
    if chosen.is_empty() {
        to.note(format!("{} chooses the system's version", manager.name));
    }
    for bin in chosen {
        to.path(&bin);
    }
    true
}

/// Shows the versions of a manager. With `auto` those of Python that are environments of projects are shown without what a
/// project keeps beside its packages.
fn show_versions(to: &mut Adder<'_>, manager: &Manager, versions: &Path, target: &Path) {
    // One that cannot be read may hold any.
    let Ok(names) = reading::names(versions) else {
        if to.auto.is_none() {
            to.show_at(versions, target, manager.why);
        }
        return;
    };
    let has_environments = |name: &OsString| {
        let version = versions.join(name);
        reading::is_virtual(&version) || version.join("envs").symlink_metadata().is_ok()
    };
    if to.auto.is_none() || !names.iter().any(has_environments) {
        to.show_at(versions, target, manager.why);
        return;
    }
    for name in names {
        // A version may be a link to an environment in another one.
        let Some(version) = to.host.directory(&versions.join(&name)) else { continue };
        let target = target.join(name);
        if reading::is_virtual(&version) {
            show_parts(to, manager, &version, &target);
            continue;
        }
        let environments = version.join("envs");
        let Ok(of_environments) = reading::names(&environments) else {
            to.show_at(&version, &target, manager.why);
            continue;
        };
        for name in reading::names(&version).unwrap_or_default().into_iter().filter(|name| name != "envs") {
            to.show_at(&version.join(&name), &target.join(&name), manager.why);
        }
        for name in of_environments {
            show_parts(to, manager, &environments.join(&name), &target.join("envs").join(&name));
        }
    }
}

/// Shows the packages of an environment.
fn show_parts(to: &mut Adder<'_>, manager: &Manager, environment: &Path, target: &Path) {
    for part in layout::parts(environment, to.host).unwrap_or_default() {
        if let Some(name) = part.file_name() {
            to.show_at(&part, &target.join(name), manager.why);
        }
    }
}

/// Returns the `bin` of each version that `pyenv version-name` and its like would choose: those of the variable, of the
/// workspace's file, or the global ones.
fn chosen(to: &Adder<'_>, manager: &Manager, root: &Path) -> Vec<PathBuf> {
    let small_text = |path: &Path| {
        let mut bytes = reading::small(path)?;
        bytes.truncate(4096);
        String::from_utf8(bytes).ok()
    };
    let chosen = to
        .host
        .text_of(manager.version)
        .map(|text| text.replace(':', "\n"))
        .or_else(|| small_text(&to.host.workspace.join(manager.file)))
        .or_else(|| small_text(&to.host.file(&root.join("version"))?))
        .unwrap_or_default();
    chosen.lines().filter_map(|version| bin_of(root, version.trim())).collect()
}

/// Returns the `bin` of an installed version: exactly that name, or the newest with that beginning (`3.12` → `3.12.1`).
/// The name may come from the workspace, so it is never used as a path.
fn bin_of(root: &Path, version: &str) -> Option<PathBuf> {
    let plain = !version.is_empty() && version.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c));
    if !plain || version.starts_with('.') || version.starts_with('#') {
        return None;
    }
    let versions = root.join("versions");
    let exact = versions.join(version).join("bin");
    if exact.is_dir() {
        return Some(exact);
    }
    let beginning = format!("{version}.");
    let names = reading::names(&versions).ok()?.into_iter().filter_map(|name| name.into_string().ok());
    let number = |name: &String| name[beginning.len()..].parse::<u32>().ok();
    let newest =
        names.filter(|name| name.starts_with(&beginning)).filter_map(|name| Some((number(&name)?, name))).max()?;
    Some(versions.join(newest.1).join("bin")).filter(|bin| bin.is_dir())
}
