//! Ruby: the system's, or those of rbenv and rvm with the gems that are installed beside them.

use super::adder::Adder;
use super::shims::{self, Manager};
use std::path::PathBuf;

const RBENV: Manager = Manager {
    name: "rbenv",
    root: "RBENV_ROOT",
    directory: ".rbenv",
    version: "RBENV_VERSION",
    file: ".ruby-version",
    why: "the versions of rbenv",
};

/// Shows Ruby and the installed gems.
pub fn find(to: &mut Adder<'_>) {
    let Some(tool) = shims::find(to, &RBENV, &["ruby"]) else {
        to.note("ruby was not found on PATH");
        return;
    };
    if let Some(tool) = tool.program() {
        to.because(|| format!("{} on PATH", tool.entry.display()));
        to.show_program(tool, "the directory of Ruby");
    }
    gems(to);
}

/// Shows the gems that rvm keeps beside its versions: `~/.rvm/gems/NAME`, which its variables name.
fn gems(to: &mut Adder<'_>) {
    let Some(rvm) = to.host.in_home(".rvm/gems") else { return };
    let text = to.host.text_of("GEM_PATH").unwrap_or_default();
    let home = to.host.directory_of("GEM_HOME");
    let named = text.split(':').filter_map(|path| to.host.directory(path.as_ref()));
    let directories: Vec<PathBuf> =
        home.clone().into_iter().chain(named).filter(|directory| directory.parent() == Some(&rvm)).collect();
    let Ok(all) = std::env::join_paths(&directories) else { return };
    if directories.is_empty() {
        return;
    }
    to.because(|| "the variables GEM_HOME and GEM_PATH".to_owned());
    for directory in &directories {
        to.show(directory, "gems of rvm");
        to.path(&directory.join("bin"));
    }
    if let Some(home) = home.filter(|home| directories.contains(home)) {
        to.set("GEM_HOME", home);
    }
    to.set("GEM_PATH", all);
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn the_versions_of_rbenv_and_the_gems_of_rvm_are_shown_without_credentials() {
        let mut scene = Scene::new();
        scene.file(".rbenv/versions/3.3.0/bin/ruby", "");
        scene.file(".rbenv/shims/ruby", "");
        scene.file(".rbenv/version", "3.3.0");
        scene.file(".gem/credentials", "secret");
        scene.on_path(".rbenv/shims");
        let found = found_by(&scene, find);
        let home = scene.home();
        let targets: Vec<_> = found.binds.iter().map(|bind| bind.target.clone()).collect();
        assert_eq!(targets, [home.join(".rbenv/versions")]);
        assert_eq!(found.path[0].value, home.join(".rbenv/versions/3.3.0/bin"));

        let mut scene = Scene::new();
        let home = scene.home();
        scene.file(".rvm/rubies/ruby-3.3/bin/ruby", "");
        scene.file(".rvm/gems/ruby-3.3/bin/rake", "");
        for (name, value) in [("GEM_HOME", ".rvm/gems/ruby-3.3"), ("GEM_PATH", "private")] {
            scene.host.caller.variables.insert(name.into(), home.join(value).into());
        }
        scene.file("private/x", "");
        scene.on_path(".rvm/rubies/ruby-3.3/bin");
        let found = found_by(&scene, find);
        let targets: Vec<_> = found.binds.iter().map(|bind| bind.target.clone()).collect();
        assert_eq!(targets, [home.join(".rvm/rubies/ruby-3.3"), home.join(".rvm/gems/ruby-3.3")]);
    }
}
