//! Version managers that put shims on PATH: pyenv, rbenv, plenv. A shim needs the manager's own state, so the version
//! that it would choose goes on PATH instead. All versions are shown, so that a file of the workspace chooses among what
//! is shown and adds nothing to it.

use super::adder::Adder;
use super::host::Tool;
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

/// Shows the versions of a manager, and puts those on PATH that it would choose if the program is one of its shims.
/// Reports whether it was. With `auto` they are shown only if the caller's PATH or the manager's variable leads there.
pub(super) fn find(to: &mut Adder<'_>, manager: &Manager, tool: &Tool) -> bool {
    let named = to.host.directory_of(manager.root);
    let is_named = named.is_some();
    let Some(root) = named.or_else(|| to.host.in_home(manager.directory)) else { return false };
    let versions = root.join("versions");
    let is_shim = tool.entry.file_name().is_some_and(|name| name == "shims");
    let is_used = is_shim || tool.real.starts_with(&root) || is_named;
    if !versions.is_dir() || (to.auto.is_some() && !is_used) {
        return false;
    }
    if is_named && !is_shim {
        to.because(|| format!("the variable {}", manager.root));
    }
    to.show(&versions, manager.why);
    if is_shim {
        to.found_in_workspace(tool);
        choose(to, manager, &root);
    }
    is_shim
}

/// Puts the versions on PATH that `pyenv version-name` and its like would choose: those of the variable, of the
/// workspace's file, or the global ones.
fn choose(to: &mut Adder<'_>, manager: &Manager, root: &Path) {
    let chosen = to
        .host
        .text_of(manager.version)
        .map(|text| text.replace(':', "\n"))
        .or_else(|| small_text(&to.host.workspace.join(manager.file)))
        .or_else(|| small_text(&root.join("version")))
        .unwrap_or_default();
    let bins: Vec<PathBuf> = chosen.lines().filter_map(|version| bin_of(root, version.trim())).collect();
    if bins.is_empty() {
        to.note(format!("{} chooses the system's version", manager.name));
    }
    for bin in bins {
        to.path(&bin);
    }
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
    let names = std::fs::read_dir(&versions).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: &String| name[beginning.len()..].parse::<u32>().ok();
    let newest =
        names.filter(|name| name.starts_with(&beginning)).filter_map(|name| Some((number(&name)?, name))).max()?;
    Some(versions.join(newest.1).join("bin")).filter(|bin| bin.is_dir())
}

/// Reads at most 4 KiB of a plain file; a workspace may have anything under this name.
fn small_text(path: &Path) -> Option<String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags as i32).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}
