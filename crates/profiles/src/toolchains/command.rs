//! The program of the command itself, when no toolchain shows it: `~/bin/tool`, a program of pipx. It is shown alone,
//! or with its directory where that is laid out as the installation of a language.

use super::adder::Adder;
use super::host;
use super::layout;
use super::python;
use std::ffi::OsStr;
use std::path::Path;

/// Shows the program that PATH has for the command.
pub fn find(to: &mut Adder<'_>, command: &OsStr) {
    let Some(name) = command.to_str().filter(|name| !name.is_empty() && !name.contains('/')) else { return };
    let Some(tool) = to.host.find_in(&to.host.whole, &[name]) else { return };
    let is_shown = |path: &Path| to.found.shows(path, to.host);
    if host::is_system(&tool.real) || to.found.path.iter().any(|entry| is_shown(&entry.value.join(name))) {
        return;
    }
    to.because(|| format!("{} on PATH", tool.entry.display()));
    let why = "the program of the command";
    let bin = tool.real.parent();
    // With `auto` only where the directory is plainly the tool's own.
    let own = if to.auto.is_some() {
        layout::prefix(&tool.real, to.host)
    } else {
        bin.and_then(Path::parent).map(Path::to_owned)
    };
    match own.as_deref().filter(|directory| layout::is_marked(directory)) {
        Some(directory) if directory.join("pyvenv.cfg").is_file() => {
            python::interpreter(to, directory, why);
            if let Some(bin) = bin {
                to.path(bin);
            }
        }
        Some(_) => to.show_program(&tool, why),
        // The directory below `/usr` is there already, with a link that leads to the program.
        None if host::is_system(&tool.file) => to.show(&tool.real, why),
        None => {
            to.show_at(&tool.real, &tool.file, why);
            to.path(&tool.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;
    use std::path::PathBuf;

    fn targets(scene: &Scene, name: &str) -> Vec<PathBuf> {
        let mut found = super::super::Found::default();
        let from = nexus_policy::profile::Origin::Standard;
        find(&mut Adder { found: &mut found, host: &scene.host, from, auto: Some("command") }, OsStr::new(name));
        found.binds.into_iter().map(|bind| bind.target).collect()
    }

    #[test]
    fn of_a_directory_of_programs_only_the_one_that_runs_is_shown() {
        let mut scene = Scene::new();
        for name in [".local/bin/one", ".local/bin/two", "bin/three", ".ssh/id"] {
            scene.file(name, "");
        }
        scene.on_path(".local/bin");
        scene.on_path("bin");
        scene.host = scene.host.for_auto();
        assert!(scene.host.path.is_empty(), "no toolchain is searched there");
        assert_eq!(targets(&scene, "one"), [scene.home().join(".local/bin/one")]);
        assert_eq!(targets(&scene, "three"), [scene.home().join("bin/three")]);
        for none in ["", "four", "../.ssh/id", "/bin/one"] {
            assert!(targets(&scene, none).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_program_of_pipx_comes_with_its_environment() {
        let mut scene = Scene::new();
        let program = scene.file(".local/share/pipx/venvs/black/bin/black", "");
        scene.file(".local/share/pipx/venvs/black/pyvenv.cfg", "");
        scene.file(".local/share/pipx/venvs/other/bin/other", "");
        std::fs::create_dir_all(scene.home().join(".local/bin")).unwrap();
        std::os::unix::fs::symlink(program, scene.home().join(".local/bin/black")).unwrap();
        scene.on_path(".local/bin");
        scene.host = scene.host.for_auto();
        let parts = ["bin", "pyvenv.cfg"].map(|part| scene.home().join(".local/share/pipx/venvs/black").join(part));
        assert_eq!(targets(&scene, "black"), parts);
    }

    #[test]
    fn a_profile_that_is_named_sees_the_whole_path() {
        let mut scene = Scene::new();
        scene.file(".local/bin/node", "");
        scene.on_path(".local/bin");
        assert_eq!(found_by(&scene, super::super::node::find).binds.len(), 1);
        scene.host = scene.host.for_auto();
        assert_eq!(found_by(&scene, super::super::node::find).binds.len(), 0);
    }
}
