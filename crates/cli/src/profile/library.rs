//! Where profiles come from: the user's folder, the machine's, and those built in; the nearest of a name wins.
//!
//! A folder or file that somebody else can write could grant anything in the user's name, so it is refused, and so is
//! one inside the workspace: the command would write its own permissions (Claude Code CVE-2026-25725 and its family).

use crate::failure::Failure;
use crate::places;
use nexus_model::Digest;
use nexus_policy::profile::{DocumentError, Library, Link, Loaded, MAX_BYTES, parse};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Profiles that are part of the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("default", include_str!("../../profiles/default.yaml")),
    ("git", include_str!("../../profiles/git.yaml")),
    ("go", include_str!("../../profiles/go.yaml")),
    ("java", include_str!("../../profiles/java.yaml")),
    ("node", include_str!("../../profiles/node.yaml")),
    ("python", include_str!("../../profiles/python.yaml")),
    ("rust", include_str!("../../profiles/rust.yaml")),
];

/// Their names.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Where the operator's configuration is.
pub const MACHINE: &str = "/etc/nexus";

/// The user's configuration folder, and the machine's when it counts too.
pub fn folders() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("NEXUS_CONFIG_DIR").filter(|value| !value.is_empty()) {
        return vec![PathBuf::from(dir)];
    }
    let own = match std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()) {
        Some(dir) => Some(PathBuf::from(dir)),
        None => places::home().map(|home| home.join(".config")),
    };
    own.map(|own| own.join("nexus")).into_iter().chain([PathBuf::from(MACHINE)]).collect()
}

/// The folder in which this caller's own files are.
pub fn own_folder() -> Option<PathBuf> {
    folders().into_iter().next().filter(|folder| folder.is_absolute())
}

/// All profiles that this caller has.
pub struct Shelf {
    folders: Vec<PathBuf>,
    workspace: Option<PathBuf>,
}

impl Shelf {
    /// The caller's; `workspace` is where nothing of it may lie.
    pub fn new(workspace: Option<&Path>) -> Self {
        Self { folders: folders(), workspace: workspace.map(Path::to_owned) }
    }

    fn file(folder: &Path, name: &str) -> PathBuf {
        folder.join("profiles").join(format!("{name}.yaml"))
    }

    /// Whether there is a file of this name.
    pub fn has(&self, name: &str) -> bool {
        self.folders.iter().any(|folder| Self::file(folder, name).exists())
    }

    /// The names with their sources, the nearest first.
    pub fn list(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut found = Vec::new();
        for folder in &self.folders {
            let folder = folder.join("profiles");
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(error) => return Err(unreadable(&folder, &error.to_string())),
            };
            let mut names = Vec::new();
            for entry in entries {
                let name = entry.map_err(|error| unreadable(&folder, &error.to_string()))?.file_name();
                names.extend(name.to_str().and_then(|name| name.strip_suffix(".yaml")).map(str::to_owned));
            }
            names.sort();
            found.extend(names.into_iter().map(|name| {
                let source = folder.join(format!("{name}.yaml")).display().to_string();
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

impl Library for Shelf {
    type Error = Failure;

    fn load(&mut self, link: &Link) -> Result<Option<Loaded>, Failure> {
        let mut skip = link.skip;
        for folder in &self.folders {
            let path = Self::file(folder, &link.name);
            let Some(text) = read_owned(&path, self.workspace.as_deref())? else { continue };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            return read(&link.name, path.display().to_string(), &text).map(Some);
        }
        match BUILT_IN.iter().find(|(name, _)| *name == link.name && skip == 0) {
            Some((name, text)) => read(name, built_in(name), text).map(Some),
            None => Ok(None),
        }
    }

    fn names(&self) -> Vec<String> {
        // A suggestion is worth no failure of its own.
        self.list().unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    }
}

/// Reads a document's text.
pub fn read(name: &str, source: String, text: &str) -> Result<Loaded, Failure> {
    match parse(text) {
        Ok(document) => Ok(Loaded { name: name.to_owned(), source, hash: Digest::of(text.as_bytes()), document }),
        Err(error) => Err(broken(name, &source, &error)),
    }
}

/// A document that cannot be understood.
fn broken(name: &str, source: &str, error: &DocumentError) -> Failure {
    let message = format!("{source}:{}: {}", error.place, error.message);
    // Without a name the check looks at profiles only, and the workspace's file is none.
    let hint = match name {
        super::workspace_file::NAME => "mend the line; in the workspace nexus profile check nexus.yaml looks at it",
        _ => "mend the line; nexus profile check looks at all profiles",
    };
    Failure::refused("profile", message, hint)
}

fn unreadable(path: &Path, reason: &str) -> Failure {
    Failure::refused(
        "profile",
        format!("{} cannot be read: {reason}", path.display()),
        "make it readable, or move it away",
    )
}

/// Reads a configuration file that only its owner can have written; `None` when there is none.
pub fn read_owned(path: &Path, workspace: Option<&Path>) -> Result<Option<String>, Failure> {
    // A FIFO would wait for a writer; what the path is, is looked at below.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error.to_string())),
    };
    let real = std::fs::canonicalize(path).map_err(|error| unreadable(path, &error.to_string()))?;
    if workspace.is_some_and(|workspace| real.starts_with(workspace)) {
        let message = format!("{} lies inside the workspace, where the command could write it", real.display());
        let hint = "move the configuration out of the workspace, or set NEXUS_CONFIG_DIR to another folder";
        return Err(Failure::refused("config_dir", message, hint));
    }
    let folder = real.parent().unwrap_or(&real);
    let parent = std::fs::metadata(folder).map_err(|error| unreadable(folder, &error.to_string()))?;
    let meta = file.metadata().map_err(|error| unreadable(path, &error.to_string()))?;
    if !meta.is_file() {
        return Err(unreadable(path, "it is no file"));
    }
    for (what, meta) in [(folder, &parent), (real.as_path(), &meta)] {
        if !is_owner(meta.uid()) || meta.mode() & 0o022 != 0 {
            let message = format!("{} can be written by others, who could grant anything in your name", what.display());
            let hint = "chown it to yourself and take the right to write from others: chmod go-w";
            return Err(Failure::refused("config_dir", message, hint));
        }
    }
    let mut text = String::new();
    let most = MAX_BYTES as u64 + 1;
    file.take(most).read_to_string(&mut text).map_err(|error| unreadable(path, &error.to_string()))?;
    if text.len() > MAX_BYTES {
        // Cut off, it would say less than its author meant.
        return Err(unreadable(path, &format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

/// The caller, root, and for root whoever called sudo.
fn is_owner(uid: u32) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let sudo = || std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok());
    uid == 0 || uid == me || (me == 0 && sudo() == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::profile::{Origin, resolve};

    #[test]
    fn every_built_in_profile_can_be_read_and_resolved() {
        for (name, _) in BUILT_IN {
            let mut shelf = Shelf { folders: Vec::new(), workspace: None };
            let found = resolve(&mut shelf, &[((*name).to_owned(), Origin::Standard)]).unwrap();
            assert!(found[0].document.description.is_some(), "{name}");
        }
    }

    #[test]
    fn a_fifo_in_place_of_the_configuration_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let failure = read_owned(&path, None).unwrap_err();
        assert!(failure.message.contains("it is no file"), "{}", failure.message);
    }

    #[test]
    fn a_file_that_others_can_write_or_that_lies_in_the_workspace_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let path = root.join("p.yaml");
        std::fs::write(&path, "changes: review\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_owned(&path, None).unwrap().unwrap(), "changes: review\n");
        assert!(read_owned(&path, Some(&root)).is_err());
        assert!(read_owned(&root.join("missing"), None).unwrap().is_none());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read_owned(&path, None).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read_owned(&path, None).is_err());
    }
}
