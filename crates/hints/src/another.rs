//! Advice for a run in which the command name resolved to another program than on the caller's PATH: an older Python, or a tool
//! without its packages. The run may have succeeded, but with other results than outside.

use nexus_model::Plan;
use nexus_profiles::toolchains::is_system;
use nexus_profiles::{Tool, ToolHost};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A command that was another program inside.
pub struct Another {
    /// Beginning of a sentence that names both programs.
    pub what: String,
    /// The program outside, if a flag can show it.
    pub tool: Option<Tool>,
}

/// Compares the program that ran with the one that the caller's PATH has.
pub fn program(plan: &Plan, host: &ToolHost, shows_auto: bool) -> Option<Another> {
    let name = plan.argv.first()?.as_path();
    if name.components().count() != 1 || name.is_absolute() {
        return None;
    }
    let outside = outside(host, name)?;
    let inside = inside(plan, name)?;
    // What a toolchain or a profile put on the PATH was chosen; and a shim runs a version that was looked up.
    let is_shim = outside.parent().is_some_and(|entry| entry.ends_with("shims"));
    if !is_system(&inside) || (is_shim && shows_auto) || real(&inside) == real(&outside) {
        return None;
    }
    let what = format!("{} was {} inside, and is {} outside", name.display(), inside.display(), outside.display());
    let is_other = outside.starts_with(&host.workspace) || is_system(&outside);
    let tool = if is_other { None } else { host.find(&[name.to_str()?]).filter(|tool| tool.file == outside) };
    Some(Another { what, tool })
}

fn real(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the program that the caller's PATH has for a name.
fn outside(host: &ToolHost, name: &Path) -> Option<PathBuf> {
    host.path.iter().map(|entry| entry.join(name)).find(|place| is_program(place))
}

/// Returns the program that the PATH inside has for a name, as a path inside.
fn inside(plan: &Plan, name: &Path) -> Option<PathBuf> {
    let (_, path) = plan.env.iter().find(|(name, _)| name.0 == b"PATH")?;
    std::env::split_paths(path.as_os_str()).map(|entry| entry.join(name)).find(|place| {
        if is_system(place) || place.starts_with(plan.workspace.source.as_path()) {
            return is_program(place);
        }
        let shown = |target: &Path, source: &Path| {
            place.strip_prefix(target).is_ok_and(|rest| {
                if rest.as_os_str().is_empty() { is_program(source) } else { is_program(&source.join(rest)) }
            })
        };
        plan.binds.iter().any(|bind| shown(bind.target.as_path(), bind.source.as_path()))
    })
}
