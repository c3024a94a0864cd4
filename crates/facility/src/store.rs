//! Creates, lists and removes the facilities of a territory.

use crate::beneath;
use crate::head::{self, Head};
use crate::kind::Kind;
use crate::lock::{self, Claim, Lock, LockError};
use crate::metadata::{MAX_BYTES, Metadata, MetadataError, VERSION};
use crate::name::FacilityName;
use crate::removal;
use nexus_model::RunId;
use nexus_model::ids::DirectiveId;
use nexus_model::mount_table::MountTable;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

const RECORD: &str = "facility.json";
/// The directory of the workspace in that of a facility.
pub(crate) const TREE: &str = "tree";
/// Begins the name of a facility that is being forked.
const FORKED: &str = ".fork-";
/// Begins the name of a facility that is being removed.
const GONE: &str = ".gone-";
/// Begins the name of a facility that is being made.
const MADE: &str = ".made-";

/// Returns the directory of a user's facilities without a fleet: beside the state directory, which no workspace may lie in.
#[must_use]
pub fn beside(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push("-facilities");
    state.with_file_name(name)
}

/// The directory with all facilities of a territory.
#[derive(Debug)]
pub struct Facilities {
    path: PathBuf,
    directory: OwnedFd,
}

/// One facility, opened.
#[derive(Debug)]
pub struct Facility {
    /// The name of the facility.
    pub name: FacilityName,
    /// The record of the facility.
    pub metadata: Metadata,
    directory: OwnedFd,
    tree: PathBuf,
}

/// Reason for which a facility, or the directory of them, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No facility has this name.
    #[error("there is no facility {name}")]
    Missing {
        /// The name of the facility.
        name: FacilityName,
    },
    /// The name is taken.
    #[error("there is a facility {name} already")]
    Exists {
        /// The name of the facility.
        name: FacilityName,
    },
    /// Another user can write to the directory, or owns it.
    #[error("{} is not a directory that only its owner can write", path.display())]
    OpenToOthers {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The record of a facility cannot be used. Nothing was changed.
    #[error("the record of the facility {name} cannot be used: {source}")]
    Record {
        /// The name of the facility.
        name: FacilityName,
        /// The fault of the record.
        source: MetadataError,
    },
    /// A file system is mounted in it, whose files are not of the facility. Nothing was changed.
    #[error("{} is mounted in the facility {name}", at.display())]
    Mounted {
        /// The name of the facility.
        name: FacilityName,
        /// The place of the first mount.
        at: PathBuf,
    },
    /// A directive works in it.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A call failed.
    #[error("the facilities in {} cannot be used: {source}", path.display())]
    Io {
        /// The path of the directory.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
}

impl StoreError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "not_found",
            Self::Exists { .. } => "exists",
            Self::OpenToOthers { .. } | Self::Record { .. } | Self::Io { .. } => "facility",
            Self::Mounted { .. } => "facility_mounted",
            Self::Lock(error) => error.code(),
        }
    }
}

impl Facilities {
    /// Opens the directory. Where it is missing it is made, with the mode 0700. Facilities whose removal was interrupted are removed.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |source: io::Error| StoreError::Io { path: path.to_owned(), source };
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| failed(error.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(StoreError::OpenToOthers { path: path.to_owned() });
        }
        let path = std::fs::canonicalize(path).map_err(failed)?;
        Ok(Self { path, directory })
    }

    /// Creates a facility. It gets its name when it is complete.
    pub fn create(&self, name: &FacilityName, kind: Kind, now_ms: u64) -> Result<Facility, StoreError> {
        // A name of its own: two threads may make the same facility.
        let hidden = format!("{MADE}{name}-{}", RunId::new());
        self.create_as(name, kind, now_ms, &hidden, |_| Ok(()))
    }

    /// Creates a facility whose directory `fill` fills, with the workspace empty in it, before it has its name.
    pub(crate) fn create_filled<E: From<StoreError>>(
        &self,
        name: &FacilityName,
        kind: Kind,
        now_ms: u64,
        fill: impl FnOnce(&OwnedFd) -> Result<(), E>,
    ) -> Result<Facility, E> {
        if beneath::directory(&self.directory, name.as_str()).is_ok() {
            return Err(StoreError::Exists { name: name.clone() }.into());
        }
        self.create_as(name, kind, now_ms, &format!("{FORKED}{name}-{}", RunId::new()), fill)
    }

    fn create_as<E: From<StoreError>>(
        &self,
        name: &FacilityName,
        kind: Kind,
        now_ms: u64,
        hidden: &str,
        fill: impl FnOnce(&OwnedFd) -> Result<(), E>,
    ) -> Result<Facility, E> {
        let metadata = Metadata { version: VERSION, kind, created_ms: now_ms };
        let made = || -> io::Result<OwnedFd> {
            mkdirat(&self.directory, hidden, Mode::RWXU)?;
            let directory = beneath::directory(&self.directory, hidden)?;
            mkdirat(&directory, TREE, Mode::RWXU)?;
            let text = serde_json::to_vec(&metadata)?;
            beneath::write_whole(&directory, RECORD, &text)?;
            Ok(directory)
        };
        let filled = made().map_err(|error| E::from(self.failed(error))).and_then(|directory| fill(&directory));
        let named = filled.and_then(|()| {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&self.directory, hidden, &self.directory, name.as_str(), flags) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => Err(StoreError::Exists { name: name.clone() }.into()),
                Err(error) => Err(self.failed(error.into()).into()),
            }
        });
        if let Err(error) = named {
            // Nothing of it is a facility yet; what cannot be removed now goes at a later sweep.
            self.remove_hidden(hidden).ok();
            return Err(error);
        }
        rustix::fs::fsync(&self.directory).map_err(|error| self.failed(error.into()))?;
        Ok(self.get(name)?)
    }

    /// Opens a facility.
    pub fn get(&self, name: &FacilityName) -> Result<Facility, StoreError> {
        let directory = match beneath::directory(&self.directory, name.as_str()) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { name: name.clone() });
            }
            Err(error) => return Err(self.failed(error)),
        };
        let record = beneath::file(&directory, RECORD, false).and_then(|file| beneath::read(&file, MAX_BYTES));
        let record = record.map_err(|error| self.failed(error))?;
        let metadata = Metadata::read(&record).map_err(|source| StoreError::Record { name: name.clone(), source })?;
        // A link or a file in its place is an error here, before any path is given away.
        beneath::directory(&directory, TREE).map_err(|error| self.failed(error))?;
        let tree = self.path.join(name.as_str()).join(TREE);
        Ok(Facility { name: name.clone(), metadata, directory, tree })
    }

    /// Opens a facility, and creates it where it is missing.
    pub fn ensure(&self, name: &FacilityName, kind: Kind, now_ms: u64) -> Result<Facility, StoreError> {
        match self.get(name) {
            Err(StoreError::Missing { .. }) => match self.create(name, kind, now_ms) {
                // Another thread was faster.
                Err(StoreError::Exists { .. }) => self.get(name),
                other => other,
            },
            other => other,
        }
    }

    /// Remembers that a directive ended whose commit the recovery finished: no later claim of it gets the facility in which it worked.
    pub fn end_of_the_dead(&self, directive: DirectiveId) -> Result<(), StoreError> {
        for name in self.names()? {
            let facility = beneath::directory(&self.directory, name.as_str());
            let noted = facility.and_then(|facility| lock::end_of_the_dead(facility, directive));
            noted.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Locks each facility in which the directive worked when its process died. No other directive gets it until the locks are dropped.
    pub fn hold_of_the_dead(&self, directive: DirectiveId) -> Result<Vec<Lock>, StoreError> {
        let mut held = Vec::new();
        for name in self.names()? {
            let facility = beneath::directory(&self.directory, name.as_str());
            let lock = facility.and_then(|facility| lock::hold_of_the_dead(facility, directive));
            held.extend(lock.map_err(|error| self.failed(error))?);
        }
        Ok(held)
    }

    /// Lists the names of all facilities, in order.
    pub fn names(&self) -> Result<Vec<FacilityName>, StoreError> {
        let names = beneath::names(&self.directory).map_err(|error| self.failed(error))?;
        let mut names: Vec<FacilityName> = names.iter().filter_map(|name| name.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a facility with everything in it, unless a directive works in it.
    pub fn remove(&self, name: &FacilityName) -> Result<(), StoreError> {
        let directory = match beneath::directory(&self.directory, name.as_str()) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { name: name.clone() });
            }
            Err(error) => return Err(self.failed(error)),
        };
        let _held = Lock::for_upkeep(&directory)?;
        self.refuse_mounts(name)?;
        let hidden = format!("{GONE}{name}-{}", RunId::new());
        let renamed = rustix::fs::renameat(&self.directory, name.as_str(), &self.directory, hidden.as_str());
        renamed.map_err(|error| self.failed(error.into()))?;
        self.remove_hidden(&hidden).map_err(|error| self.failed(error))
    }

    /// Refuses a facility in which a file system is mounted: its files would be removed with the tree.
    pub(crate) fn refuse_mounts(&self, name: &FacilityName) -> Result<(), StoreError> {
        let read = || -> io::Result<Option<PathBuf>> {
            let own = std::fs::canonicalize(&self.path)?.join(name.as_str());
            let table = MountTable::parse(&std::fs::read("/proc/self/mountinfo")?);
            Ok(table.below(&own).first().map(|mount| mount.at.clone()))
        };
        match read().map_err(|error| self.failed(error))? {
            None => Ok(()),
            Some(at) => Err(StoreError::Mounted { name: name.clone(), at }),
        }
    }

    /// Removes the remains of facilities whose creation or removal was interrupted. Call it while no other process works here.
    pub fn sweep(&self) -> Result<(), StoreError> {
        for name in beneath::names(&self.directory).map_err(|error| self.failed(error))? {
            if name.starts_with(GONE) || name.starts_with(MADE) {
                self.remove_hidden(&name).map_err(|error| self.failed(error))?;
            }
        }
        self.sweep_forks()
    }

    /// Removes the remains of interrupted forks. Call it while no fork is being made.
    pub(crate) fn sweep_forks(&self) -> Result<(), StoreError> {
        for name in beneath::names(&self.directory).map_err(|error| self.failed(error))? {
            if name.starts_with(FORKED) {
                self.remove_hidden(&name).map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn remove_hidden(&self, hidden: &str) -> io::Result<()> {
        let directory = beneath::directory(&self.directory, hidden)?;
        removal::empty(directory.as_fd())?;
        Ok(rustix::fs::unlinkat(&self.directory, hidden, AtFlags::REMOVEDIR)?)
    }

    pub(crate) fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.clone(), source }
    }
}

impl Facility {
    /// Returns the path of its workspace. Its parents belong to the territory alone; its content is hostile.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Gives the facility to a claim.
    pub fn lock(&self, claim: Claim) -> Result<Lock, LockError> {
        Lock::acquire(&self.directory, claim)
    }

    /// Takes the lock for work on the facility as a whole, so that no claim gets it until the lock is dropped. No claim is noted.
    pub fn hold(&self) -> Result<Lock, LockError> {
        Lock::for_upkeep(&self.directory)
    }

    /// Returns the directory of the facility, which has the workspace in it.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Reads which commit its repository is at; `None` where the workspace holds none in the plain form.
    pub fn head(&self) -> io::Result<Option<Head>> {
        head::read(beneath::directory(&self.directory, TREE)?)
    }

    /// Reports whether its workspace holds nothing.
    pub fn is_empty(&self) -> io::Result<bool> {
        let tree = beneath::directory(&self.directory, TREE)?;
        for entry in rustix::fs::Dir::read_from(&tree)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
