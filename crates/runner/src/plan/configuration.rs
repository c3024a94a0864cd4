//! Finds the places from which Nexus reads its own configuration: a run that could write there would decide the rights of the next
//! one. A change layer holds changes at these places back (`git_host`), a direct run covers them, and no bind opens them.
//!
//! A place may be reached through links (a repository of dotfiles), and it may be missing: the end of its way is where a file
//! would be.

use crate::host::Host;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links on one way, as the kernel counts them at most.
const MAX_LINKS: usize = 40;
/// Profiles of one directory that are looked at.
const MAX_DOCUMENTS: usize = 1000;
/// The directories of profiles and of policy documents.
const DOCUMENTS: [&str; 2] = ["profiles", "policy"];
/// Directory of the operator.
const OF_MACHINE: &str = "/etc/nexus";
/// The file with the key for a fleet, and the settings, which may hold the password of a proxy.
const WITH_KEYS: [&str; 2] = ["login.json", "config.toml"];

/// The configuration directories of the caller and of the machine, whether they count for this process or for a later one.
pub(crate) fn directories(host: &Host, homes: &[PathBuf]) -> Vec<PathBuf> {
    let named = host.variable("NEXUS_CONFIG_DIR").map(PathBuf::from);
    let usual = host.variable("XDG_CONFIG_HOME").map(PathBuf::from).map(|config| config.join("nexus"));
    let own = homes.iter().map(|home| home.join(".config/nexus"));
    let mut all: Vec<PathBuf> = Vec::new();
    for directory in named.into_iter().chain(usual).chain(own).chain([PathBuf::from(OF_MACHINE)]) {
        if directory.is_absolute() && !all.contains(&directory) {
            all.push(directory);
        }
    }
    all
}

/// The files with keys and passwords in these directories.
pub(crate) fn with_keys(host: &Host) -> Vec<PathBuf> {
    let homes: Vec<PathBuf> = host.home.clone().into_iter().collect();
    let files = |directory: PathBuf| WITH_KEYS.map(|name| directory.join(name));
    directories(host, &homes).into_iter().flat_map(files).collect()
}

/// Returns the paths of the files and directories that Nexus reads in these directories, including missing ones.
pub(crate) fn places(host: &Host, homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for directory in directories(host, homes) {
        for documents in DOCUMENTS.map(|name| directory.join(name)) {
            let entries = std::fs::read_dir(&documents).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let names = names.filter(|name| name.as_encoded_bytes().ends_with(b".yaml"));
            let files: Vec<PathBuf> = names.take(MAX_DOCUMENTS).map(|name| documents.join(name)).collect();
            all.push(documents);
            all.extend(files);
        }
        all.extend(WITH_KEYS.map(|name| directory.join(name)));
    }
    all
}

/// Settings of package clients from which a group takes what a run shows and reaches (`nexus_profiles::clients`).
pub(crate) fn of_clients(host: &Host, homes: &[PathBuf]) -> Vec<PathBuf> {
    const IN_HOME: &[&str] = &[
        ".npmrc",
        ".pip/pip.conf",
        ".config/pip/pip.conf",
        ".cargo/config.toml",
        ".cargo/config",
        ".cargo/registry/index",
    ];
    const NAMED: &[(&str, &[&str])] = &[
        ("PIP_CONFIG_FILE", &[""]),
        ("NPM_CONFIG_USERCONFIG", &[""]),
        ("NPM_CONFIG_GLOBALCONFIG", &[""]),
        ("XDG_CONFIG_HOME", &["pip/pip.conf"]),
        ("CARGO_HOME", &["config.toml", "config", "registry/index"]),
    ];
    // npm reads a variable of any case.
    let values = |name: &'static str| {
        let is_named = move |one: &&OsString| one.as_encoded_bytes().eq_ignore_ascii_case(name.as_bytes());
        host.variables.keys().filter(is_named).filter_map(|one| host.variable(one.to_str()?)).map(Path::new)
    };
    let named = NAMED.iter().flat_map(|(name, files)| values(name).map(move |value| (value, files)));
    // To join an empty name would add a slash.
    let file = |place: &Path, name: &str| if name.is_empty() { place.to_owned() } else { place.join(name) };
    let named = named.flat_map(|(place, files)| files.iter().map(move |name| file(place, name)));
    let own = homes.iter().flat_map(|home| IN_HOME.iter().map(move |name| home.join(name)));
    named.chain(own).filter(|path| path.is_absolute()).collect()
}

/// Settings of git, package clients and build tools that name programs, hosts or files which these use for the caller, whether there
/// is something or not.
pub(crate) fn of_programs(host: &Host, homes: &[PathBuf]) -> Vec<PathBuf> {
    const IN_HOME: &[&str] = &[
        ".gitconfig",
        ".config/git",
        ".bundle/config",
        ".bunfig.toml",
        ".cargo/env",
        ".condarc",
        ".config/composer",
        ".config/go/env",
        ".config/NuGet",
        ".config/pnpm",
        ".config/uv",
        ".config/yarn",
        ".gemrc",
        ".gradle/gradle.properties",
        ".gradle/init.d",
        ".gradle/init.gradle",
        ".gradle/init.gradle.kts",
        ".m2/extensions.xml",
        ".m2/settings-security.xml",
        ".m2/settings.xml",
        ".nuget/NuGet",
        ".pydistutils.cfg",
        ".sbt",
        ".yarnrc",
        ".yarnrc.yml",
    ];
    const NAMED: &[(&str, &str)] = &[
        ("GIT_CONFIG_GLOBAL", ""),
        ("XDG_CONFIG_HOME", "git"),
        ("XDG_CONFIG_HOME", "uv"),
        ("GRADLE_USER_HOME", "init.d"),
        ("GRADLE_USER_HOME", "gradle.properties"),
    ];
    let named = NAMED.iter().filter_map(|(name, rest)| {
        let value = Path::new(host.variable(name)?);
        Some(if rest.is_empty() { value.to_owned() } else { value.join(rest) })
    });
    let own = homes.iter().flat_map(|home| IN_HOME.iter().map(move |name| home.join(name)));
    let mut all = of_clients(host, homes);
    all.extend(named.chain(own).filter(|path| path.is_absolute()));
    all
}

/// Directories of the home in which package clients and build tools keep what they downloaded and built, and what later builds of the
/// caller execute.
pub(crate) fn is_cache(real: &Path, homes: &[PathBuf]) -> bool {
    const CACHES: &[&str] = &[
        ".cache/coursier",
        ".cache/go-build",
        ".cache/pip",
        ".cache/pnpm",
        ".cache/uv",
        ".cache/yarn",
        ".cargo/git",
        ".cargo/registry",
        ".gradle/caches",
        ".gradle/wrapper",
        ".ivy2",
        ".local/share/pnpm",
        ".m2/repository",
        ".npm",
        ".nuget/packages",
        "go/pkg/mod",
    ];
    let caches = homes.iter().flat_map(|home| CACHES.iter().map(move |name| Followed::of(&home.join(name)).end));
    caches.into_iter().any(|cache| real.starts_with(&cache) || cache.starts_with(real))
}

/// The way of a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Real paths of the links on it.
    links: Vec<PathBuf>,
    /// Its end, whether there is something or not.
    end: PathBuf,
}

impl Followed {
    /// Follows an absolute path.
    pub(crate) fn of(path: &Path) -> Self {
        let mut links = Vec::new();
        let mut at = PathBuf::from("/");
        let mut rest = parts(path);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let here = at.join(&name);
            let Ok(target) = std::fs::read_link(&here) else {
                at = here;
                continue;
            };
            if links.len() == MAX_LINKS {
                return Self { links, end: here };
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in parts(&target).into_iter().rev() {
                rest.push_front(part);
            }
            links.push(here);
        }
        Self { links, end: at }
    }

    /// Reports whether who can write to all of this directory decides what is at the end.
    fn leads_through(&self, directory: &Path) -> bool {
        self.links.iter().chain([&self.end]).any(|real| real.starts_with(directory))
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// Returns a place that a command decides which can write to the directory with this real path, or to a directory in the
/// configuration.
pub(crate) fn written_through(places: &[PathBuf], real: &Path) -> Option<PathBuf> {
    let is_written = |place: &&PathBuf| {
        let way = Followed::of(place);
        way.leads_through(real) || real.starts_with(&way.end)
    };
    places.iter().find(is_written).cloned()
}

/// Returns a place that would lie in the workspace and is missing, so that no cover holds it.
pub(crate) fn missing_in(places: &[PathBuf], workspace: &Path) -> Option<PathBuf> {
    let in_workspace: Vec<PathBuf> =
        places.iter().map(|place| Followed::of(place).end).filter(|end| end.starts_with(workspace)).collect();
    let (there, missing): (Vec<&PathBuf>, Vec<&PathBuf>) =
        in_workspace.iter().partition(|end| end.symlink_metadata().is_ok());
    missing.into_iter().find(|end| !there.iter().any(|covered| end.starts_with(covered))).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scene() -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(base.join("home/.config/nexus")).unwrap();
        std::fs::create_dir_all(base.join("home/dot")).unwrap();
        let host = Host {
            variables: std::collections::BTreeMap::new(),
            home: Some(base.join("home")),
            uid: rustix::process::geteuid().as_raw(),
        };
        symlink("../../dot/prof", base.join("home/.config/nexus/profiles")).unwrap();
        let all = places(&host, &[base.join("home")]);
        (directory, base, all)
    }

    #[test]
    fn a_place_is_followed_through_links_to_what_is_missing() {
        let (_directory, base, all) = scene();
        let dot = base.join("home/dot");
        assert_eq!(Followed::of(&base.join("home/.config/nexus/profiles/x.yaml")).end, dot.join("prof/x.yaml"));
        for open in ["home/dot", "home/dot/prof", "home/dot/prof/deep", "home/.config", "home/.config/nexus", "home"] {
            assert!(written_through(&all, &base.join(open)).is_some(), "{open}");
        }
        for other in ["home/do", "home/.config/other", "home/.config/nexusx", "else"] {
            assert_eq!(written_through(&all, &base.join(other)), None, "{other}");
        }
    }

    #[test]
    fn settings_of_programs_and_their_caches_are_known() {
        let (_directory, base, _) = scene();
        let home = base.join("home");
        let variable = (OsString::from("Npm_config_UserConfig"), base.join("else/nrc").into());
        let host = Host { variables: [variable].into(), home: Some(home.clone()), uid: 1000 };
        let settings = of_programs(&host, std::slice::from_ref(&home));
        for open in [
            ".gitconfig",
            ".config/git",
            ".config/git/hooks",
            ".config/pip",
            ".cargo",
            ".cargo/registry",
            ".cargo/registry/index",
            ".m2",
            ".gradle",
            ".gradle/init.d",
            ".nuget",
            ".config",
            "../else/nrc",
            "../else",
        ] {
            let path = Followed::of(&home.join(open)).end;
            assert!(written_through(&settings, &path).is_some(), "{open}");
        }
        for other in [
            ".npm",
            ".cargo/registry/cache",
            ".cargo/git",
            ".m2/repository",
            ".gradle/caches",
            ".nuget/packages",
            ".config/app",
            ".gitconfigs",
            "data",
        ] {
            assert_eq!(written_through(&settings, &home.join(other)), None, "{other}");
        }
        let homes = [home.clone()];
        for cache in [".npm", ".npm/_cacache", ".cargo/registry/cache", ".m2/repository", ".local/share", "go"] {
            assert!(is_cache(&home.join(cache), &homes), "{cache}");
        }
        for other in ["data", ".npmx", ".cache/app", ".cargo/registryx"] {
            assert!(!is_cache(&home.join(other), &homes), "{other}");
        }
    }

    #[test]
    fn a_run_changes_no_policy_that_later_runs_obey() {
        let (_directory, base, all) = scene();
        symlink("../../dot/pol", base.join("home/.config/nexus/policy")).unwrap();
        assert!(written_through(&all, &base.join("home/dot/pol")).is_some());
        std::fs::create_dir(base.join("home/dot/prof")).unwrap();
        assert_eq!(missing_in(&all, &base.join("home/dot")), Some(base.join("home/dot/pol")));
    }

    #[test]
    fn what_is_missing_in_the_workspace_is_found_unless_a_cover_holds_it() {
        let (_directory, base, all) = scene();
        let dot = base.join("home/dot");
        assert_eq!(missing_in(&all, &dot), Some(dot.join("prof")));
        std::fs::create_dir(dot.join("prof")).unwrap();
        assert_eq!(missing_in(&all, &dot), None);
        assert_eq!(missing_in(&all, &base.join("else")), None);
    }
}
