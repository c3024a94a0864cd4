//! Perl: the system's with its tables in `/etc`, or those of plenv and perlbrew, and the modules of `local::lib`.

use super::adder::Adder;
use super::host;
use super::shims::{self, Manager};
use std::path::{Path, PathBuf};

const PLENV: Manager = Manager {
    name: "plenv",
    root: "PLENV_ROOT",
    directory: ".plenv",
    version: "PLENV_VERSION",
    file: ".perl-version",
    why: "the versions of plenv",
};

/// Shows Perl and the caller's own modules.
pub fn find(to: &mut Adder<'_>) {
    let Some(tool) = shims::find(to, &PLENV, &["perl"]) else {
        to.note("perl was not found on PATH");
        return;
    };
    if let Some(tool) = tool.program() {
        to.because(|| format!("{} on PATH", tool.entry.display()));
        to.show_program(tool, "the directory of Perl");
    }
    if tool.program().is_some_and(|tool| host::is_system(&tool.real)) {
        to.tables(|| tables(Path::new("/etc")));
    }
    modules(to);
}

/// Returns the tables of the system's Perl. The settings of CPAN may hold the password of a proxy.
fn tables(etc: &Path) -> Vec<(PathBuf, &'static str)> {
    let tables = ["perl/Net", "perl/XML", "perl/sitecustomize.pl"].map(|name| etc.join(name)).into_iter();
    tables
        .filter(|path| host::can(path, rustix::fs::Access::READ_OK))
        .map(|path| (path, "settings of the system's Perl"))
        .collect()
}

/// Shows what the caller's PERL5LIB names below `~/perl5`, the directory of `local::lib`.
fn modules(to: &mut Adder<'_>) {
    let Some(own) = to.host.in_home("perl5") else { return };
    let text = to.host.text_of("PERL5LIB").unwrap_or_default();
    let named = text.split(':').filter_map(|path| to.host.directory(path.as_ref()));
    let directories: Vec<PathBuf> =
        named.filter(|directory| directory.starts_with(&own) && *directory != own).collect();
    let Ok(all) = std::env::join_paths(&directories) else { return };
    if directories.is_empty() {
        return;
    }
    to.because(|| "the variable PERL5LIB".to_owned());
    for directory in &directories {
        to.show(directory, "modules of local::lib");
    }
    to.set("PERL5LIB", all);
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn the_perl_of_perlbrew_and_the_modules_of_local_lib_are_shown() {
        let mut scene = Scene::new();
        let home = scene.home();
        scene.file("perl5/perlbrew/perls/perl-5.38/bin/perl", "");
        scene.file("perl5/lib/perl5/X.pm", "");
        scene.file("private/X.pm", "");
        let paths = ["perl5/lib/perl5", "private"].map(|name| home.join(name));
        scene.host.caller.variables.insert("PERL5LIB".into(), std::env::join_paths(paths).unwrap());
        scene.on_path("perl5/perlbrew/perls/perl-5.38/bin");
        let found = found_by(&scene, find);
        let targets: Vec<_> = found.binds.iter().map(|bind| bind.target.clone()).collect();
        assert_eq!(targets, [home.join("perl5/perlbrew/perls/perl-5.38"), home.join("perl5/lib/perl5")]);
        assert_eq!(found.env["PERL5LIB"].value, home.join("perl5/lib/perl5").as_os_str());
    }

    #[test]
    fn settings_of_cpan_stay_outside() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["perl/Net/libnet.cfg", "perl/CPAN/Config.pm"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found: Vec<_> = tables(dir.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [dir.path().join("perl/Net")]);
    }
}
