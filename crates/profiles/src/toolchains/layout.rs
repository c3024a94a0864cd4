//! Layout of installations: which directory around a program is the tool's own and is shown as a whole.

use super::access;
use super::host::{ToolHost, can};
use super::places::{self, is_system};
use super::reading;
use rustix::fs::Access;
use std::path::{Component, Path, PathBuf};

/// Directories of a home that hold more than one tool, or keys.
const SHARED: &[&str] = &[
    "",
    ".cargo",
    "go",
    ".local",
    ".local/share",
    ".local/lib",
    ".config",
    ".cache",
    "bin",
    ".bin",
    "opt",
    "src",
    "projects",
    "work",
];

/// Returns the directory of a program `DIRECTORY/bin/NAME`, if it is plainly the tool's own: not a home, nothing above
/// a home, not a directory shared by many tools, and none that holds the workspace.
pub fn prefix(real: &Path, host: &ToolHost) -> Option<PathBuf> {
    let bin = real.parent()?;
    let directory = if bin.file_name().is_some_and(|name| name == "bin") { bin.parent()? } else { bin };
    let depth = directory.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let home = host.home.as_deref();
    let holds = |other: &Path| other.starts_with(directory);
    let shared = home.is_some_and(|home| holds(home) || SHARED.iter().any(|name| directory == home.join(name)));
    // Another user's home is refused too.
    let other_home = directory.parent() == Some(Path::new("/home"));
    let keys =
        [".ssh", ".gnupg", ".netrc", ".config"].iter().any(|name| directory.join(name).symlink_metadata().is_ok());
    // `~/dev/bin/node` says nothing about `~/dev`; `~/miniconda3` and `~/.volta` are a tool's for sure.
    let hidden = directory.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let shared = shared || (directory.parent() == home && !hidden && !is_marked(directory));
    let is_own = host.caller.variable("CARGO_HOME").is_none_or(|own| directory != Path::new(own));
    let allowed = depth >= 2 && !shared && !other_home && !keys && is_own && !is_system(directory);
    let allowed = allowed && !host.holds_workspace(directory) && (!host.is_auto() || is_whole(directory, bin, host));
    (allowed && can(directory, Access::READ_OK | Access::EXEC_OK)).then(|| directory.to_owned())
}

/// Reports whether a directory with these programs is a tool as a whole. Its layout says so only where an administrator made
/// it: an earlier run may have put a program and what looks like an installation beside private files.
fn is_whole(directory: &Path, bin: &Path, host: &ToolHost) -> bool {
    bin.ends_with("bin") && (is_accepted(directory, host) || is_installed(directory, host))
}

/// Reports whether a directory is laid out as an installation, and an administrator made it.
fn is_installed(directory: &Path, host: &ToolHost) -> bool {
    if !places::is_of_machine(directory) || !is_marked(directory) || is_project(directory) {
        return false;
    }
    let is_installed = is_of_administrator(directory, host);
    if !is_installed {
        let at = directory.display();
        let text =
            format!("{at}: an earlier run may have made what looks like an installation. Show it with --ro {at}");
        host.note(directory, text);
    }
    is_installed
}

/// Reports whether no run of the caller can have written a directory below `/opt` and the like, nor the marks in it. What root
/// installs and what root's runs leave look the same, so that for root only a read-only file system counts.
pub(super) fn is_of_administrator(directory: &Path, host: &ToolHost) -> bool {
    const WITH_MARKS: &[&str] = &["bin", "lib", "jre", "pkg"];
    let is_read_only = || {
        let system = rustix::fs::statvfs(directory);
        system.is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    };
    let is_of_root = || {
        let parts = WITH_MARKS.iter().map(|part| directory.join(part));
        let mut parts = parts.filter(|part| part.symlink_metadata().is_ok());
        access::is_of_root(directory) && parts.all(|part| access::is_of_root(&part))
    };
    places::is_of_machine(directory) && ((host.caller.uid != 0 && is_of_root()) || is_read_only())
}

/// Reports whether a directory is that of a tool or an environment for a reason that no run can give: it is the known place
/// of a manager, or the caller's own variable names it as the active environment.
pub(super) fn is_accepted(directory: &Path, host: &ToolHost) -> bool {
    const ACTIVE: &[(&str, &str)] = &[("VIRTUAL_ENV", "pyvenv.cfg"), ("CONDA_PREFIX", "conda-meta")];
    let is_named = |(variable, entry): &(&str, &str)| {
        host.directory_of(variable).is_some_and(|named| named == directory) && directory.join(entry).exists()
    };
    places::is_tool(directory, host.home.as_deref()) || (ACTIVE.iter().any(is_named) && !is_project(directory))
}

/// Returns the parts of an environment that hold its packages, and `None` for a directory that is not an environment. A
/// project may keep anything beside them, and conda keeps the environments of other projects there.
pub(super) fn parts(directory: &Path, host: &ToolHost) -> Option<Vec<PathBuf>> {
    const PARTS: &[&str] = &["bin", "lib", "lib32", "lib64", "include", "share", "pyvenv.cfg"];
    // Programs that packages of conda bring, their settings, and conda itself.
    const OF_CONDA: &[&str] = &["sbin", "libexec", "etc", "ssl", "conda-meta", "condabin", "compiler_compat"];
    let is_virtual = reading::is_virtual(directory);
    let is_conda = !is_virtual && directory.join("conda-meta").is_dir();
    if !is_virtual && !is_conda && !places::is_environment(directory, host.home.as_deref()) {
        return None;
    }
    let system_root = format!("{}-conda-linux-gnu", std::env::consts::ARCH);
    let of_conda = OF_CONDA.iter().copied().chain([system_root.as_str()]).filter(|_| is_conda);
    let all = PARTS.iter().copied().chain(of_conda).map(|part| directory.join(part));
    // A part that is a link, such as `lib64`, is one that a run may have made.
    Some(all.filter(|part| host.part(part)).collect())
}

/// Reports whether a directory is the top of a repository or of a project.
pub(super) fn is_project(directory: &Path) -> bool {
    [".git", ".hg", ".jj", ".svn", "nexus.yaml"].iter().any(|name| directory.join(name).symlink_metadata().is_ok())
}

/// Reports whether a directory is laid out as the installation of a language.
pub(super) fn is_marked(directory: &Path) -> bool {
    const MARKS: &[&str] = &[
        "conda-meta",
        "pyvenv.cfg",
        "lib/node_modules",
        "lib/rustlib",
        "lib/modules",
        "jre/lib",
        "pkg/tool",
        "bin/m2.conf",
        "lib/plugins",
        "lib/perl5",
        "lib/php",
        "lib/ruby",
    ];
    let python = || {
        let names = reading::names(&directory.join("lib")).unwrap_or_default();
        names.iter().any(|name| name.as_encoded_bytes().starts_with(b"python"))
    };
    MARKS.iter().any(|entry| directory.join(entry).exists()) || python()
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn only_a_directory_of_the_tools_own_is_shown_whole() {
        let scene = Scene::new();
        let prefix_of = |name: &str| prefix(&scene.file(name, ""), &scene.host);
        assert_eq!(prefix_of(".nvm/versions/node/v22/bin/node"), Some(scene.home().join(".nvm/versions/node/v22")));
        for shared in ["bin/node", ".local/bin/node", "node", "code/bin/node", "opt/bin/go"] {
            assert_eq!(prefix_of(shared), None, "{shared}");
        }
        assert_eq!(prefix_of("dev/bin/node"), None, "nothing says that this directory is Node's");
        scene.file("node22/lib/node_modules/npm/x", "");
        assert_eq!(prefix_of("node22/bin/node"), Some(scene.home().join("node22")));
        scene.file("odd/.ssh/id", "");
        assert_eq!(prefix_of("odd/bin/node"), None);
        assert_eq!(prefix(Path::new("/usr/bin/node"), &scene.host), None);
        assert_eq!(prefix(Path::new("/opt/bin/node"), &scene.host), None);
    }
}
