//! Python. The versions of pyenv and uv are shown all together, since virtual environments of the workspace lead to any
//! of them; pyenv's shims need pyenv's own state, so the version that they would choose goes on PATH instead.

use super::adder::Adder;
use super::host;
use super::layout;
use super::reading;
use super::shims::{self, Manager};
use std::path::Path;

const PYENV: Manager = Manager {
    name: "pyenv",
    root: "PYENV_ROOT",
    directory: ".pyenv",
    version: "PYENV_VERSION",
    file: ".python-version",
    why: "the versions of pyenv",
};

/// Shows Python: the versions of uv and pyenv, and the active virtual environment or the first Python on PATH.
pub fn find(to: &mut Adder<'_>) {
    uv(to);
    let is_environment = |directory: &Path| directory.join("pyvenv.cfg").is_file() && !layout::is_project(directory);
    if let Some(active) = to.directory_of("VIRTUAL_ENV", is_environment).filter(|active| is_environment(active)) {
        environment(to, &active);
    }
    let names = &["python3", "python"];
    let Some(tool) = shims::find(to, &PYENV, names) else {
        to.note("python3 was not found on PATH");
        return;
    };
    if !to.host.network {
        // They would try each name again for seconds, and there is none. pip would look for a newer pip, too.
        to.set("PIP_RETRIES", "0");
        to.set("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        to.set("UV_HTTP_RETRIES", "0");
    }
    let Some(tool) = tool.program() else { return };
    to.because(|| format!("{} on PATH", tool.entry.display()));
    let directory = tool.entry.parent().filter(|directory| is_environment(directory));
    let directory = directory.and_then(|directory| to.host.directory(directory));
    match directory {
        Some(directory) if to.auto.is_none() || layout::is_accepted(&directory, to.host) => {
            environment(to, &directory);
            to.path(&directory.join("bin"));
            return;
        }
        // Any run can write a `pyvenv.cfg`.
        Some(other) => {
            let text = format!(
                "{0} is a virtual environment that VIRTUAL_ENV does not name, so it is not shown. Set VIRTUAL_ENV={0}, \
                 or show it with --ro {0}",
                other.display()
            );
            to.host.note(&other, text);
        }
        None => {}
    }
    to.show_program(tool, "the directory of Python");
    if let Some(conda) = to.host.directory_of("CONDA_PREFIX").filter(|conda| tool.real.starts_with(conda)) {
        to.set("CONDA_PREFIX", conda);
    }
}

/// Shows the active virtual environment. Its interpreter is a link: both the environment and the target are needed.
fn environment(to: &mut Adder<'_>, directory: &Path) {
    interpreter(to, directory, "the active virtual environment");
    to.set("VIRTUAL_ENV", directory.as_os_str());
}

/// Shows the directory of a virtual environment and the Python that it leads to.
pub(super) fn interpreter(to: &mut Adder<'_>, directory: &Path, why: &'static str) {
    to.show_installation(directory, why);
    let python = ["python3", "python"].iter().find_map(|name| to.host.file_in(&directory.join("bin"), name));
    if let Some(base) = python.and_then(|real| layout::prefix(&real, to.host)) {
        to.show_installation(&base, "the Python of the virtual environment");
    }
}

/// Reports whether a directory holds installations as uv names them.
fn holds_pythons(directory: &Path) -> bool {
    let names = reading::names(directory).unwrap_or_default();
    let is_python =
        |name: &[u8]| ["cpython-", "pypy-", "graalpy-"].iter().any(|kind| name.starts_with(kind.as_bytes()));
    names.iter().any(|name| is_python(name.as_encoded_bytes()))
}

/// Shows the Python installations of uv, and uv itself.
fn uv(to: &mut Adder<'_>) {
    let named = to.directory_of("UV_PYTHON_INSTALL_DIR", holds_pythons);
    // Without a variable the caller's PATH must have uv, wherever it lies.
    let own = to.host.whole.iter().filter(|entry| !host::is_system(entry));
    let entries: Vec<_> = own.chain(to.host.path.iter().filter(|entry| host::is_system(entry))).cloned().collect();
    let own = to.host.find_in(&entries, &["uv"]);
    let usual = if to.auto.is_none() || own.is_some() { to.host.in_home(".local/share/uv/python") } else { None };
    if let (None, Some(tool)) = (&named, &own) {
        to.because(|| format!("uv in {} on PATH", tool.entry.display()));
    }
    if let Some(directory) = named.or(usual) {
        to.show(&directory, "the versions of uv");
    }
    for name in ["uv", "uvx"] {
        if own.is_none() {
            continue;
        }
        if let Some(tool) = to.find(&[name]).filter(|tool| !host::is_system(&tool.real)) {
            to.show_at(&tool.real, &tool.file, "uv");
            to.path(&tool.entry);
        }
    }
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
