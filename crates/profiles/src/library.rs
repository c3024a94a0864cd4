//! Finds profiles: in the user's directory, in the machine's, and among those built in; the nearest of a name wins.

use crate::document::{BrokenDocument, read};
use crate::host::Host;
use crate::owned::{ReadOwnedError, read_owned};
use nexus_policy::profile::{Library, Link, Loaded};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Profiles cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A file, or a directory with files, is refused.
    #[error(transparent)]
    File(#[from] ReadOwnedError),
    /// A document cannot be understood.
    #[error(transparent)]
    Document(#[from] BrokenDocument),
    /// The configuration directory is relative: it would change with the current directory, and could lie in the
    /// workspace.
    #[error("the configuration directory {} is not an absolute path", path.display())]
    Relative {
        /// Configuration directory as it was given.
        path: PathBuf,
    },
    /// The command could write the configuration.
    #[error("the configuration {} lies inside the workspace, where the command could write it", path.display())]
    InWorkspace {
        /// Configuration directory, or a directory or file of it, whose real place is inside the workspace.
        path: PathBuf,
    },
}

impl LibraryError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(inner) => inner.code(),
            Self::Document(inner) => inner.code(),
            Self::Relative { .. } | Self::InWorkspace { .. } => "config_dir",
        }
    }
}

/// Profiles that are part of the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("auto", include_str!("../profiles/auto.yaml")),
    ("default", include_str!("../profiles/default.yaml")),
    ("git", include_str!("../profiles/git.yaml")),
    ("go", include_str!("../profiles/go.yaml")),
    ("java", include_str!("../profiles/java.yaml")),
    ("node", include_str!("../profiles/node.yaml")),
    ("none", include_str!("../profiles/none.yaml")),
    ("perl", include_str!("../profiles/perl.yaml")),
    ("php", include_str!("../profiles/php.yaml")),
    ("python", include_str!("../profiles/python.yaml")),
    ("ruby", include_str!("../profiles/ruby.yaml")),
    ("rust", include_str!("../profiles/rust.yaml")),
];

/// Returns the names of the built-in profiles.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Directory of the operator's configuration.
pub const MACHINE: &str = "/etc/nexus";

/// Returns the user's configuration directory, and the machine's when it counts too.
pub fn directories(host: &Host) -> Vec<PathBuf> {
    if let Some(dir) = host.variable("NEXUS_CONFIG_DIR") {
        return vec![PathBuf::from(dir)];
    }
    let own = match host.variable("XDG_CONFIG_HOME") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => host.home.as_ref().map(|home| home.join(".config")),
    };
    own.map(|own| own.join("nexus")).into_iter().chain([PathBuf::from(MACHINE)]).collect()
}

/// Returns the directory in which this caller's own files are.
pub fn own_directory(host: &Host) -> Option<PathBuf> {
    directories(host).into_iter().next().filter(|directory| directory.is_absolute())
}

/// Refuses a configuration directory that is not an absolute path, and configuration that lies in the workspace or is led
/// there by a link. What does not exist yet counts too: the command could make it.
pub fn check_directories(host: &Host, workspace: &Path) -> Result<(), LibraryError> {
    let all = directories(host);
    if let Some(path) = all.iter().find(|directory| !directory.is_absolute()).cloned() {
        return Err(LibraryError::Relative { path });
    }
    let inside = |path: &PathBuf| place_of(path).is_none_or(|real| real.starts_with(workspace));
    match all.into_iter().flat_map(with_files).find(inside) {
        None => Ok(()),
        Some(path) => Err(LibraryError::InWorkspace { path }),
    }
}

/// Lists a configuration directory with what is read in it.
fn with_files(directory: PathBuf) -> Vec<PathBuf> {
    let profiles = directory.join("profiles");
    let entries = std::fs::read_dir(&profiles).into_iter().flatten();
    let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.extend([directory.join("config.toml"), profiles, directory]);
    all
}

/// Returns the place to which a path leads, with its links followed, whether anything is there or not; `None` after too many
/// links.
fn place_of(path: &Path) -> Option<PathBuf> {
    /// Maximum number of links on a path, as in the kernel.
    const MAX_LINKS: usize = 40;
    let mut links = 0;
    let mut at = PathBuf::new();
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(next) = rest.pop() {
        let mut parts = next.components();
        let Some(part) = parts.next() else { continue };
        rest.push(parts.as_path().to_owned());
        match part {
            Component::ParentDir => {
                at.pop();
            }
            Component::Normal(name) => {
                let beside = at.join(name);
                match std::fs::read_link(&beside) {
                    Ok(target) => {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        rest.push(target);
                    }
                    Err(_) => at = beside,
                }
            }
            Component::RootDir => at = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(at)
}

/// All profiles that this caller can use.
#[derive(Clone)]
pub struct ProfileStore {
    host: Host,
    directories: Vec<PathBuf>,
    workspace: Option<PathBuf>,
}

impl ProfileStore {
    /// Creates the store of the caller; no file of it may lie in `workspace`.
    pub fn new(host: &Host, workspace: Option<&Path>) -> Self {
        Self { host: host.clone(), directories: directories(host), workspace: workspace.map(Path::to_owned) }
    }

    fn file(directory: &Path, name: &str) -> PathBuf {
        directory.join("profiles").join(format!("{name}.yaml"))
    }

    /// Reports whether a file for this name exists.
    pub fn has(&self, name: &str) -> bool {
        self.directories.iter().any(|directory| Self::file(directory, name).exists())
    }

    /// Returns the names with their sources, the nearest first.
    pub fn list(&self) -> Result<Vec<(String, String)>, LibraryError> {
        let mut found = Vec::new();
        for directory in &self.directories {
            let directory = directory.join("profiles");
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(error) => return Err(ReadOwnedError::unreadable(&directory, &error).into()),
            };
            let mut names = Vec::new();
            for entry in entries {
                let name = entry.map_err(|error| ReadOwnedError::unreadable(&directory, &error))?.file_name();
                names.extend(name.to_str().and_then(|name| name.strip_suffix(".yaml")).map(str::to_owned));
            }
            names.sort();
            found.extend(names.into_iter().map(|name| {
                let source = directory.join(format!("{name}.yaml")).display().to_string();
                (name, source)
            }));
        }
        found.extend(BUILT_IN.iter().map(|(name, _)| ((*name).to_owned(), built_in(name))));
        Ok(found)
    }
}

fn built_in(name: &str) -> String {
    format!("built-in profile {name}")
}

impl Library for ProfileStore {
    type Error = LibraryError;

    fn load(&mut self, link: &Link) -> Result<Option<Loaded>, LibraryError> {
        let mut skip = link.skip;
        for directory in &self.directories {
            let path = Self::file(directory, &link.name);
            let Some(text) = read_owned(&self.host, &path, self.workspace.as_deref())? else { continue };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            return Ok(Some(read(&link.name, path.display().to_string(), &text)?));
        }
        match BUILT_IN.iter().find(|(name, _)| *name == link.name && skip == 0) {
            Some((name, text)) => Ok(Some(read(name, built_in(name), text)?)),
            None => Ok(None),
        }
    }

    fn names(&self) -> Vec<String> {
        // A suggestion is not worth a failure.
        self.list().unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;
    use nexus_policy::profile::{Origin, resolve};

    #[test]
    fn every_built_in_profile_can_be_read_and_resolved() {
        for (name, _) in BUILT_IN {
            let mut store = ProfileStore { host: host(), directories: Vec::new(), workspace: None };
            let found = resolve(&mut store, &[((*name).to_owned(), Origin::Standard)]).unwrap();
            assert!(found[0].document.description.is_some(), "{name}");
        }
    }
}
