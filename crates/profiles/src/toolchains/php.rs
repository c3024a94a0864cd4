//! PHP: its directory, and of the system's settings those of the command line. The settings of the servers (`fpm`,
//! `apache2`) may hold passwords of databases and are not shown.

use super::adder::Adder;
use super::host;
use std::path::{Path, PathBuf};

/// Shows PHP and its settings.
pub fn find(to: &mut Adder<'_>) {
    let Some(tool) = to.find(&["php"]) else {
        to.note("php was not found on PATH");
        return;
    };
    to.show_program(&tool, "the directory of PHP");
    if host::is_system(&tool.real) {
        to.tables(|| tables(Path::new("/etc")));
    }
}

fn tables(etc: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir(etc.join("php")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let debian = versions.into_iter().flat_map(|version| ["cli", "mods-available"].map(|name| version.join(name)));
    let others = ["php.ini", "php.d"].map(|name| etc.join(name));
    let can_read = |path: &PathBuf| host::can(path, rustix::fs::Access::READ_OK);
    debian.chain(others).filter(can_read).map(|path| (path, "settings of the system's PHP")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_servers_stay_outside() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cli/php.ini", "mods-available/curl.ini", "fpm/pool.d/www.conf", "apache2/php.ini"] {
            let path = dir.path().join("php/8.2").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found: Vec<_> = tables(dir.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["cli", "mods-available"].map(|name| dir.path().join("php/8.2").join(name)));
    }
}
