//! Known places of toolchains: directories of the system, and the directories in which installers and version managers
//! keep tools in a home. Pure.
//!
//! A link may lie in a directory that an earlier run wrote, so its target says nothing about the caller. `auto`
//! follows it to a known place alone, and shows there what the pattern of the place names.

use std::path::{Component, Path};

/// Directories of the system whose links only an administrator makes.
const LINKS_OF_SYSTEM: &[&str] =
    &["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/nix", "/snap", "/run/current-system"];

/// Directories in which tools lie for all users of the machine, beside those that every sandbox shows.
const OF_MACHINE: &[&str] = &["/opt", "/snap", "/nix/store", "/home/linuxbrew/.linuxbrew/Cellar"];

/// Directories of a home that each hold one tool, or one version of it; `*` stands for the rest of one name.
const TOOLS: &[&str] = &[
    // Rust
    ".rustup/toolchains/*",
    // Python
    ".pyenv/versions/*",
    ".local/share/uv/python/*",
    ".local/share/uv/tools/*",
    ".local/share/pipx/venvs/*",
    ".local/pipx/venvs/*",
    "anaconda3",
    "mambaforge",
    "miniconda3",
    "miniforge3",
    "micromamba",
    // Node
    ".nvm/versions/*/*",
    ".fnm/node-versions/*/installation",
    ".local/share/fnm/node-versions/*/installation",
    ".volta/tools/image/*/*",
    ".nodenv/versions/*",
    "n/n/versions/*/*",
    // Java
    ".sdkman/candidates/*/*",
    ".jdks/*",
    ".jabba/jdk/*",
    // Go
    "sdk/go*",
    ".goenv/versions/*",
    ".gvm/gos/*",
    // Ruby, PHP, Perl
    ".rbenv/versions/*",
    ".rubies/*",
    ".rvm/rubies/*",
    ".rvm/gems/*",
    ".phpenv/versions/*",
    ".phpbrew/php/*",
    ".plenv/versions/*",
    "perl5/perlbrew/perls/*",
    // Managers of several languages
    ".asdf/installs/*/*",
    ".local/share/mise/installs/*/*",
    ".local/share/rtx/installs/*/*",
];

/// Directories of a home that each hold the environment of one project. No link leads there: a project may keep what is
/// private beside its environment's packages.
const ENVIRONMENTS: &[&str] = &[
    ".local/share/virtualenvs/*",
    ".cache/pypoetry/virtualenvs/*",
    ".virtualenvs/*",
    ".pyenv/versions/*/envs/*",
    ".conda/envs/*",
    "anaconda3/envs/*",
    "mambaforge/envs/*",
    "miniconda3/envs/*",
    "miniforge3/envs/*",
    "micromamba/envs/*",
];

/// Directories of a home in each of which conda keeps its own environment, and those of projects in `envs`.
const CONDA: &[&str] = &["anaconda3", "mambaforge", "miniconda3", "miniforge3", "micromamba"];

/// Directories in a home of which a single program may be shown, or from which a flag shows one.
const PROGRAMS: &[&str] = &[".cargo/bin", ".linuxbrew/Cellar"];

/// Reports whether a path lies in a directory that every sandbox shows.
pub fn is_system(path: &Path) -> bool {
    const TOPS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
    let mut parts = path.components();
    // Asked for each path of a search, many times: the first name decides.
    matches!((parts.next(), parts.next()), (Some(Component::RootDir), Some(Component::Normal(top))) if TOPS.iter().any(|system| top == *system))
}

/// Reports whether a link that an earlier run may have made can lead to a path: a tool of a manager in the home, or what
/// every sandbox shows. Directories such as `/opt` hold more than tools, and an environment is that of one project.
pub(super) fn is_target(real: &Path, home: Option<&Path>) -> bool {
    is_system(real)
        || below(real, home).is_some_and(|names| {
            let is_in = |place: &&str| fits(&names, place, false);
            TOOLS.iter().chain(PROGRAMS).any(&is_in) && !ENVIRONMENTS.iter().any(is_in)
        })
}

/// Returns the directory of a version of pyenv in which a path lies. Such a version may be the environment of a project, which
/// only a look at it tells.
pub(super) fn version_of_pyenv<'p>(path: &'p Path, home: Option<&Path>) -> Option<&'p Path> {
    path.ancestors()
        .find(|directory| below(directory, home).is_some_and(|names| fits(&names, ".pyenv/versions/*", true)))
}

/// Reports whether a link belongs to the layout of a manager: it lies in a known place and leads to one (`current` → `21`).
pub(super) fn is_of_manager(link: &Path, real: &Path, home: Option<&Path>) -> bool {
    is_known(link, home) && is_known(real, home)
}

/// Reports whether a path lies where an administrator installs tools for all users of the machine. Others may have directories
/// there as well.
pub(super) fn is_of_machine(real: &Path) -> bool {
    OF_MACHINE.iter().any(|place| real.starts_with(place))
}

/// Reports whether a directory is the whole of one tool in a known place of the home.
pub(super) fn is_tool(directory: &Path, home: Option<&Path>) -> bool {
    below(directory, home).is_some_and(|names| TOOLS.iter().chain(ENVIRONMENTS).any(|place| fits(&names, place, true)))
}

/// Reports whether a directory is the whole of one tool in a known place of the home and not the environment of a project.
pub(super) fn is_tool_alone(directory: &Path, home: Option<&Path>) -> bool {
    below(directory, home).is_some_and(|names| {
        TOOLS.iter().any(|place| fits(&names, place, true))
            && !ENVIRONMENTS.iter().any(|place| fits(&names, place, false))
    })
}

/// Returns the installation of the system to which a directory of programs belongs. Below `/usr/local` anything else may lie.
pub(super) fn installation_of_system(bin: &Path) -> Option<&'static Path> {
    match bin.to_str()? {
        "/usr/bin" | "/bin" | "/usr/sbin" | "/sbin" => Some(Path::new("/usr")),
        "/usr/local/bin" | "/usr/local/sbin" => Some(Path::new("/usr/local")),
        _ => None,
    }
}

/// Reports whether a path lies in a known place of the home.
pub(super) fn is_known(path: &Path, home: Option<&Path>) -> bool {
    below(path, home).is_some_and(|names| TOOLS.iter().chain(ENVIRONMENTS).any(|place| fits(&names, place, false)))
}

/// Reports whether a directory of a known place is an environment, or conda's own one, beside which those of projects lie.
pub(super) fn is_environment(directory: &Path, home: Option<&Path>) -> bool {
    below(directory, home).is_some_and(|names| ENVIRONMENTS.iter().chain(CONDA).any(|place| fits(&names, place, true)))
}

/// Returns the directory without which a program of a package manager finds none of its libraries.
pub(super) fn store_of(real: &Path) -> Option<&Path> {
    if real.starts_with("/nix/store") {
        return Some(Path::new("/nix/store"));
    }
    real.ancestors().find(|path| path.ends_with("Cellar")).and_then(Path::parent)
}

/// Reports whether a link belongs to the layout of the system, so that no run can have made it: `/bin`, `/home`,
/// `/etc/alternatives/java`.
pub(super) fn is_of_system(link: &Path) -> bool {
    let is_top = link.parent().is_some_and(|parent| parent == Path::new("/") || parent == Path::new("/home"));
    let is_in = |places: &[&str]| places.iter().any(|place| link.starts_with(place));
    is_top || (is_in(LINKS_OF_SYSTEM) && !is_in(&["/usr/local", "/usr/src"]))
}

/// Returns the names of a path below the home, and `None` for a path elsewhere. They are compared with some fifty places.
fn below<'p>(path: &'p Path, home: Option<&Path>) -> Option<Vec<Component<'p>>> {
    Some(path.strip_prefix(home?).ok()?.components().collect())
}

/// Compares the names of a path below the home with a pattern: exactly, or with its beginning.
fn fits(names: &[Component<'_>], pattern: &str, is_whole: bool) -> bool {
    let mut names = names.iter();
    let is_beginning = pattern.split('/').all(|part| match names.next() {
        Some(Component::Normal(name)) => match part.strip_suffix('*') {
            Some(beginning) => name.as_encoded_bytes().starts_with(beginning.as_bytes()),
            None => *name == part,
        },
        _ => false,
    });
    is_beginning && (!is_whole || names.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_managers_are_known_and_others_are_not() {
        let home = Some(Path::new("/home/a"));
        for known in [
            "/usr/bin/python3",
            "/home/a/.pyenv/versions/3.12/bin/python3",
            "/home/a/.nvm/versions/node/v22/bin/node",
            "/home/a/miniconda3/bin/python",
            "/home/a/.cargo/bin/rustup",
        ] {
            assert!(is_target(Path::new(known), home), "{known}");
        }
        for other in [
            "/home/a",
            "/home/a/work/secret/notes.txt",
            "/home/a/.cargo/credentials.toml",
            "/home/a/.pyenv/versions",
            "/home/a/.nvm/versions/node",
            "/home/b/.pyenv/versions/3.12/bin/python3",
            "/home/a/work/.pyenv/versions/3.12",
            "/opt/node/bin/node",
            "/home/a/.virtualenvs/app",
            "/home/a/miniconda3/envs/x/bin/python",
            "/home/a/.conda/envs/x/bin/python",
            "/home/a/.pyenv/versions/3.12/envs/x/bin/python",
            "/home/a/sdk/android/bin/x",
            "/home/a/.linuxbrew/etc/my.cnf",
            "/root/.nvm/versions/node/v22",
        ] {
            assert!(!is_target(Path::new(other), home), "{other}");
        }
        assert!(!is_target(Path::new("/home/a/.pyenv/versions/3.12"), None));
    }

    #[test]
    fn a_path_lies_in_one_version_of_pyenv_or_in_none() {
        let home = Some(Path::new("/home/a"));
        let version = |path: &'static str| version_of_pyenv(Path::new(path), home).and_then(Path::to_str);
        assert_eq!(version("/home/a/.pyenv/versions/p/bin/python3"), Some("/home/a/.pyenv/versions/p"));
        assert_eq!(version("/home/a/.pyenv/versions/p"), Some("/home/a/.pyenv/versions/p"));
        assert_eq!(version("/home/a/.pyenv/versions"), None);
        assert_eq!(version("/home/b/.pyenv/versions/p"), None);
    }

    #[test]
    fn one_tool_of_a_known_place_is_whole_and_its_parts_are_not() {
        let home = Some(Path::new("/home/a"));
        let is_whole = |name: &str| is_tool(&Path::new("/home/a").join(name), home);
        for whole in [
            ".sdkman/candidates/java/21",
            "sdk/go1.25",
            "miniconda3",
            "miniconda3/envs/x",
            ".volta/tools/image/node/20",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for other in ["", ".sdkman", ".sdkman/candidates/java", "sdk/go1.25/bin", ".cargo", "work/envs/x", "go"] {
            assert!(!is_whole(other), "{other}");
        }
    }

    #[test]
    fn only_links_that_no_run_can_make_are_of_the_system() {
        for link in ["/bin", "/home", "/home/a", "/etc/alternatives/java", "/usr/bin/python3"] {
            assert!(is_of_system(Path::new(link)), "{link}");
        }
        for link in ["/home/a/.nvm", "/opt/x/current", "/usr/local/bin/node", "/root/x", "/srv/x/y"] {
            assert!(!is_of_system(Path::new(link)), "{link}");
        }
    }
}
