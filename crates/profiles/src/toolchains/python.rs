//! Python. The versions of pyenv and uv are shown all together, since virtual environments of the workspace lead to any
//! of them; pyenv's shims need pyenv's own state, so the version that they would choose goes on PATH instead.

use super::adder::Adder;
use super::host;
use std::path::{Path, PathBuf};

/// Shows Python: the versions of uv and pyenv, and the active virtual environment or the first Python on PATH.
pub fn find(to: &mut Adder<'_>) {
    uv(to);
    let Some(tool) = to.host.find(&["python3", "python"]) else {
        to.note("python3 was not found on PATH");
        return;
    };
    let is_shim = tool.entry.file_name().is_some_and(|name| name == "shims");
    let root = to.host.folder_of("PYENV_ROOT").or_else(|| to.host.in_home(".pyenv"));
    if let Some(root) = root.filter(|root| root.join("versions").is_dir()) {
        to.show(&root.join("versions"), "the versions of pyenv");
        if is_shim {
            to.found_in_workspace(&tool);
            pyenv(to, &root);
            return;
        }
    }
    // The interpreter of a virtual environment is a link: both the environment and the target are needed.
    let environment = tool.entry.parent().filter(|folder| folder.join("pyvenv.cfg").is_file());
    if let Some(environment) = environment.and_then(|folder| to.host.folder(folder)) {
        to.show(&environment, "the active virtual environment");
        to.path(&environment.join("bin"));
        to.set("VIRTUAL_ENV", environment.as_os_str());
        if let Some(base) = host::prefix(&tool.real, to.host) {
            to.show(&base, "the Python of the virtual environment");
        }
        return;
    }
    to.show_program(&tool, "the folder of Python");
}

/// Shows the Python installations of uv, and uv itself.
fn uv(to: &mut Adder<'_>) {
    let installed = to.host.folder_of("UV_PYTHON_INSTALL_DIR").or_else(|| to.host.in_home(".local/share/uv/python"));
    if let Some(folder) = installed {
        to.show(&folder, "the versions of uv");
    }
    for name in ["uv", "uvx"] {
        if let Some(tool) = to.host.find(&[name]).filter(|tool| !host::is_system(&tool.real)) {
            to.show_at(&tool.real, &tool.file, "uv");
            to.path(&tool.entry);
        }
    }
}

/// Puts the versions on PATH that pyenv would choose, as its `pyenv version-name` does: PYENV_VERSION, the nearest
/// `.python-version`, the global one.
fn pyenv(to: &mut Adder<'_>, root: &Path) {
    let chosen = to
        .host
        .text_of("PYENV_VERSION")
        .map(|text| text.replace(':', "\n"))
        .or_else(|| small_text(&to.host.workspace.join(".python-version")))
        .or_else(|| small_text(&root.join("version")))
        .unwrap_or_default();
    let bins: Vec<PathBuf> = chosen.lines().filter_map(|version| bin_of(root, version.trim())).collect();
    if bins.is_empty() {
        to.note("pyenv chooses the system's Python");
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

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    fn pyenv_scene() -> Scene {
        let mut scene = Scene::new();
        for version in ["3.11.7", "3.12.1", "3.12.10"] {
            scene.file(&format!(".pyenv/versions/{version}/bin/python3"), "");
        }
        scene.file(".pyenv/shims/python3", "");
        scene.file(".pyenv/version", "3.11.7\n");
        scene.file(".pypirc", "password = secret");
        scene.on_path(".pyenv/shims");
        scene
    }

    #[test]
    fn the_version_that_pyenv_chooses_is_on_the_path_without_its_shims() {
        let scene = pyenv_scene();
        let found = found_by(&scene, find);
        assert_eq!(
            found.binds.iter().map(|bind| bind.target.clone()).collect::<Vec<_>>(),
            [scene.home().join(".pyenv/versions")]
        );
        assert_eq!(found.path[0].value, scene.home().join(".pyenv/versions/3.11.7/bin"));
    }

    #[test]
    fn the_workspace_chooses_among_what_is_installed_and_nothing_else() {
        let scene = pyenv_scene();
        let file = scene.host.workspace.join(".python-version");
        std::fs::write(&file, "3.12\n").unwrap();
        assert_eq!(found_by(&scene, find).path[0].value, scene.home().join(".pyenv/versions/3.12.10/bin"));
        for odd in ["../../../private", "/etc", "", "..", "9.9"] {
            std::fs::write(&file, odd).unwrap();
            assert_eq!(found_by(&scene, find).path, [], "{odd}");
        }
    }

    #[test]
    fn a_virtual_environment_comes_with_the_python_it_leads_to() {
        let mut scene = Scene::new();
        let base = scene.file("tools/py/bin/python3.12", "");
        scene.file("envs/one/pyvenv.cfg", "");
        std::fs::create_dir_all(scene.home().join("envs/one/bin")).unwrap();
        std::os::unix::fs::symlink(base, scene.home().join("envs/one/bin/python3")).unwrap();
        scene.on_path("envs/one/bin");
        let found = found_by(&scene, find);
        let targets: Vec<_> = found.binds.iter().map(|bind| bind.target.clone()).collect();
        assert_eq!(targets, [scene.home().join("envs/one"), scene.home().join("tools/py")]);
    }
}
