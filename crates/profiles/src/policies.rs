//! Reads the policy documents that hold on this machine.
//!
//! ```text
//!  /etc/nexus/policy/*.yaml ──────── global, account, user ─┐
//!  ~/.config/nexus/policy/*.yaml ─── user ──────────────────┼─▶ PolicySet, or nothing runs
//!  WORKSPACE/.nexus-policy.yaml ──── facility, ceilings only ┘
//! ```
//!
//! The machine's documents hold for every user, wherever `NEXUS_CONFIG_DIR` points; for root, who is the operator, the
//! variable takes their place. The file of the workspace is hostile: it is read as `nexus.yaml` is, and says only what
//! can take something away.

use crate::host::Host;
use crate::library::{MACHINE, directories};
use crate::owned::{ReadOwnedError, read_owned};
use crate::workspace_file::{TextError, text_below};
use nexus_model::plan::FileId;
use nexus_policy::document::{Level, LoadedPolicy, PolicySet, SetError};
use nexus_policy::profile::DocumentError;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Directory of policy documents, in a configuration directory.
pub const DIRECTORY: &str = "policy";
/// Name of the document in the top directory of a workspace. Changes of it wait for an accept, as of every `.nexus*`.
pub const WORKSPACE_NAME: &str = ".nexus-policy.yaml";
/// Most documents of one directory.
const MAX_DOCUMENTS: usize = 1000;

/// The policy documents cannot be used, and so nothing may run.
#[derive(Debug, thiserror::Error)]
pub enum PoliciesError {
    /// A file or directory is refused.
    #[error(transparent)]
    File(#[from] ReadOwnedError),
    /// The workspace's file cannot be read.
    #[error("{} cannot be used: {reason}", path.display())]
    Workspace {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the refusal.
        reason: TextError,
    },
    /// A document cannot be understood.
    #[error("{}:{}: {}", path.display(), error.place, error.message)]
    Broken {
        /// Path of the document.
        path: PathBuf,
        /// Place and description of the mistake.
        error: DocumentError,
    },
    /// A document says what its place does not allow.
    #[error("{}: {why}", path.display())]
    Misplaced {
        /// Path of the document.
        path: PathBuf,
        /// The part that is not allowed there.
        why: String,
    },
    /// The documents together cannot hold.
    #[error(transparent)]
    Set(#[from] SetError),
}

impl PoliciesError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(inner) => inner.code(),
            Self::Workspace { .. } | Self::Broken { .. } | Self::Misplaced { .. } | Self::Set(_) => "policy_document",
        }
    }
}

/// The directory of a workspace, held open: its identity and its document are those of one directory, whatever becomes
/// of its path.
#[derive(Debug)]
pub struct HeldWorkspace {
    path: PathBuf,
    directory: OwnedFd,
    /// The device and inode of the directory.
    pub id: FileId,
}

impl HeldWorkspace {
    /// Opens the directory at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Ok(Self { path: path.to_owned(), directory, id })
    }
}

/// Reads the documents of this machine and this user, and that of `workspace`.
pub fn load(host: &Host, workspace: Option<&Path>) -> Result<PolicySet, PoliciesError> {
    let Some(path) = workspace else { return set(host, None) };
    let held = HeldWorkspace::open(path)
        .map_err(|error| PoliciesError::Workspace { path: path.join(WORKSPACE_NAME), reason: TextError::Io(error) })?;
    set(host, Some(&held))
}

/// Reads the documents of this machine and this user, and that of a workspace that is held open.
pub fn load_held(host: &Host, workspace: &HeldWorkspace) -> Result<PolicySet, PoliciesError> {
    set(host, Some(workspace))
}

/// Reports whether a document of the workspace is among those of `set`.
pub fn has_workspace_document(set: &PolicySet) -> bool {
    set.documents().iter().any(|loaded| loaded.document.level == Level::Facility)
}

fn set(host: &Host, workspace: Option<&HeldWorkspace>) -> Result<PolicySet, PoliciesError> {
    let path = workspace.map(|workspace| workspace.path.as_path());
    let mut all = Vec::new();
    for directory in places(host) {
        all.extend(of_directory(host, &directory, path)?);
    }
    if let Some(workspace) = workspace {
        all.extend(of_workspace(workspace)?);
    }
    Ok(PolicySet::build(all)?)
}

/// Returns the configuration directories whose documents count, the operator's last.
fn places(host: &Host) -> Vec<PathBuf> {
    let mut all = directories(host);
    let machine = PathBuf::from(MACHINE);
    if host.uid != 0 && !all.contains(&machine) {
        all.push(machine);
    }
    all
}

/// Returns the directory into which a document of this level is put by this caller.
pub fn directory_for(host: &Host, level: Level) -> Result<PathBuf, String> {
    let all = places(host);
    // A user's own documents lie in the user's directory, also root's; the operator's in that of the machine.
    let found = if level == Level::User { all.first() } else { all.last() };
    match (found, level) {
        (_, Level::Facility) => {
            Err(format!("a document of the level facility is the file {WORKSPACE_NAME} of a workspace"))
        }
        (_, Level::Global | Level::Account) if host.uid != 0 => {
            Err("a document of the levels global and account belongs to the operator: apply it as root".to_owned())
        }
        (Some(directory), _) if directory.is_absolute() => Ok(directory.join(DIRECTORY)),
        (_, _) => Err("there is no configuration directory: set HOME or NEXUS_CONFIG_DIR".to_owned()),
    }
}

fn of_directory(host: &Host, directory: &Path, workspace: Option<&Path>) -> Result<Vec<LoadedPolicy>, PoliciesError> {
    let is_operators = host.uid == 0 || directory == Path::new(MACHINE);
    let directory = directory.join(DIRECTORY);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound && is_absent(&directory) => return Ok(Vec::new()),
        Err(error) => return Err(ReadOwnedError::unreadable(&directory, &error).into()),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| ReadOwnedError::unreadable(&directory, &error))?.file_name();
        let path = directory.join(&name);
        // A document that an apply is writing, and backups of editors.
        if name.as_encoded_bytes().starts_with(b".") || name.as_encoded_bytes().ends_with(b"~") {
            continue;
        }
        if !name.as_encoded_bytes().ends_with(b".yaml") {
            // Passed over it would hold nothing, and its author would not know.
            let why = "only NAME.yaml is a policy document: rename it, or move it away".to_owned();
            return Err(PoliciesError::Misplaced { path, why });
        }
        paths.push(path);
    }
    if paths.len() > MAX_DOCUMENTS {
        let why = format!("it holds more than {MAX_DOCUMENTS} documents");
        return Err(PoliciesError::Misplaced { path: directory, why });
    }
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let Some(text) = read_owned(host, &path, workspace)? else {
            // One that went meanwhile was taken away by its owner. A link that leads nowhere still stands for a document.
            if is_absent(&path) {
                continue;
            }
            return Err(ReadOwnedError::unreadable(&path, &"it is a link that leads nowhere").into());
        };
        let loaded = read(&path, &text)?;
        let level = loaded.document.level;
        if level == Level::Facility || (level != Level::User && !is_operators) {
            let why = format!("a document of the level {} does not hold here", level.word());
            return Err(PoliciesError::Misplaced { path, why });
        }
        all.push(loaded);
    }
    Ok(all)
}

/// Reports whether nothing has this name, not even a link that leads nowhere.
fn is_absent(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn of_workspace(workspace: &HeldWorkspace) -> Result<Option<LoadedPolicy>, PoliciesError> {
    let path = workspace.path.join(WORKSPACE_NAME);
    let text = text_below(&workspace.directory, WORKSPACE_NAME);
    let text = text.map_err(|reason| PoliciesError::Workspace { path: path.clone(), reason })?;
    let Some(text) = text else { return Ok(None) };
    let loaded = read(&path, &text)?;
    let document = &loaded.document;
    let why = if document.level != Level::Facility {
        format!("it says level {}, and a workspace's own document is of the level facility", document.level.word())
    } else if document.secrets.is_some() || document.sandbox.is_some() {
        // The nearest level replaces these, so a workspace could widen them.
        "a workspace's own document takes no secrets and no sandbox: they would take the place of yours".to_owned()
    } else {
        return Ok(Some(loaded));
    };
    Err(PoliciesError::Misplaced { path, why })
}

/// Reads the text of a document.
pub fn read(path: &Path, text: &str) -> Result<LoadedPolicy, PoliciesError> {
    LoadedPolicy::read(&path.display().to_string(), text)
        .map_err(|error| PoliciesError::Broken { path: path.to_owned(), error })
}
