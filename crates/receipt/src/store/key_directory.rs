//! The keys of a state directory.
//!
//! ```text
//!  keys/ 0700   receipt.key      signs; made by the first run, whole before it has its name
//!               ID.pub           a public key; it stays when the key is retired
//!               ID.next.json     the key ID names its successor
//! ```
//! A process that can read `receipt.key` can sign in the user's name, and a process that can write here can put in a
//! key of its own. A directory or key that is open to others is therefore refused and not fixed: it may have been used
//! already.

use super::files::{self, DirectoryError};
use crate::form::Link;
use crate::keys::{KeyId, KeyTextError, Keyring, PRIVATE_KEY_BYTES, PublicKey, Seed};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const CURRENT: &str = "receipt.key";
const PUBLIC: &str = ".pub";
const NEXT: &str = ".next.json";
/// A public key has 113 bytes and a link under a thousand.
const MAX_BYTES: u64 = 64 * 1024;

/// Reason why the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The directory of the keys cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The file of the key can be read by others.
    #[error("the key {} is not a file that only you can read (owner {uid}, mode {mode:03o})", path.display())]
    Open {
        /// The path of the key.
        path: PathBuf,
        /// The user id of its owner.
        uid: u32,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error("the key {} is damaged: {source}", path.display())]
    Damaged {
        /// The path of the key.
        path: PathBuf,
        /// The reason, from the reader of keys.
        source: KeyTextError,
    },
    /// A system call failed.
    #[error("{} cannot be {doing}: {source}", path.display())]
    Io {
        /// The operation that failed, as a participle such as `written`.
        doing: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process is rotating the key.
    #[error("the key is being rotated by another process just now")]
    Busy,
}

impl KeyError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Directory(inner) => inner.code(),
            Self::Open { .. } | Self::Damaged { .. } | Self::Io { .. } | Self::Busy => "receipt_key",
        }
    }
}

/// The directory with the keys.
#[derive(Debug)]
pub struct KeyDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

/// The current key's file: looked at, and not kept in memory. A sandbox begins as a copy of this process.
#[derive(Debug)]
pub struct KeyFile {
    file: File,
    path: PathBuf,
}

/// Public keys of a state directory.
pub struct Known {
    /// The key that signs.
    pub current: Option<PublicKey>,
    /// All whose signatures count.
    pub all: Vec<PublicKey>,
}

impl Known {
    /// Returns the keys as a ring.
    pub fn ring(&self) -> Keyring {
        Keyring::new(self.all.clone())
    }
}

impl KeyDirectory {
    /// Opens the directory of the keys, and makes it if it is missing.
    pub fn open(state: &Path) -> Result<Self, KeyError> {
        let path = state.join("keys");
        Ok(Self { directory: files::directory(&path)?, path })
    }

    /// Returns the key that signs, and makes it if there is none.
    pub fn current(&self) -> Result<KeyFile, KeyError> {
        let path = self.path.join(CURRENT);
        let file = if let Some(file) = self.inspect()? {
            file
        } else {
            self.make()?;
            let gone = || io::Error::from(io::ErrorKind::NotFound);
            self.inspect()?.ok_or_else(|| self.io("read", CURRENT, gone()))?
        };
        let found = KeyFile { file, path };
        // The content is checked too: after the run it would be too late to find that the key cannot sign.
        found.seed()?;
        Ok(found)
    }

    fn io(&self, doing: &'static str, name: &str, source: impl Into<io::Error>) -> KeyError {
        KeyError::Io { doing, path: self.path.join(name), source: source.into() }
    }

    /// Opens the key's file as it is, if there is one.
    fn inspect(&self) -> Result<Option<File>, KeyError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, CURRENT, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.io("opened", CURRENT, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| self.io("looked at", CURRENT, error))?;
        let (uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || uid != rustix::process::geteuid().as_raw() || mode & 0o077 != 0 {
            return Err(KeyError::Open { path: self.path.join(CURRENT), uid, mode });
        }
        Ok(Some(file.into()))
    }

    /// Makes a new key, unless another process is faster: then that key stays.
    fn make(&self) -> Result<(), KeyError> {
        let seed = self.random()?;
        let public = seed.signer().public().clone();
        let made = files::write_new(&self.directory, CURRENT, seed.to_pem().as_bytes(), true);
        if made.map_err(|error| self.io("written", CURRENT, error))? {
            self.publish(&public)?;
            files::sync(&self.directory).map_err(|error| self.io("written", "", error))?;
        }
        Ok(())
    }

    fn random(&self) -> Result<Seed, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        // getrandom(2) gives up to 256 bytes whole or not at all.
        let count = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
        match count {
            Ok(32) => Ok(Seed::new(bytes)),
            Ok(_) => Err(self.io("made", CURRENT, io::Error::from(io::ErrorKind::UnexpectedEof))),
            Err(error) => Err(self.io("made", CURRENT, error)),
        }
    }

    fn publish(&self, key: &PublicKey) -> Result<(), KeyError> {
        let name = format!("{}{PUBLIC}", key.id());
        let made = files::write_new(&self.directory, &name, key.to_pem().as_bytes(), true);
        made.map(drop).map_err(|error| self.io("written", &name, error))
    }

    /// Returns every key whose signatures count here. Makes none.
    pub fn known(&self) -> Result<Known, KeyError> {
        let current = match self.inspect()? {
            None => None,
            Some(file) => Some(KeyFile { file, path: self.path.join(CURRENT) }.seed()?.signer().public().clone()),
        };
        let mut all: Vec<PublicKey> = current.iter().cloned().collect();
        for name in self.names(PUBLIC)? {
            let text = self.read(&name)?;
            let text = String::from_utf8_lossy(&text);
            let damaged = |source| KeyError::Damaged { path: self.path.join(&name), source };
            let key: PublicKey = text.parse().map_err(damaged)?;
            if !all.contains(&key) {
                all.push(key);
            }
        }
        Ok(Known { current, all })
    }

    /// Links between keys, by the old key's id: what stands in their files.
    pub fn links(&self) -> Result<Vec<(String, Vec<u8>)>, KeyError> {
        let names = self.names(NEXT)?;
        names
            .into_iter()
            .map(|name| {
                let content = self.read(&name)?;
                Ok((name.trim_end_matches(NEXT).to_owned(), content))
            })
            .collect()
    }

    fn names(&self, end: &str) -> Result<Vec<String>, KeyError> {
        let all = files::names(&self.directory).map_err(|error| self.io("listed", "", error))?;
        let mut found: Vec<String> = all
            .into_iter()
            .filter(|name| name.strip_suffix(end).is_some_and(|id| KeyId::try_from(id.to_owned()).is_ok()))
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, KeyError> {
        files::read(&self.directory, name, MAX_BYTES).map_err(|error| self.io("read", name, error))
    }

    /// Puts a new key in place of the current one, which signs its successor before it goes. The rename of the new key
    /// is the decisive moment: until then the old key is in force, whatever other files were written.
    pub fn rotate(&self, now_unix_ms: u64) -> Result<(PublicKey, PublicKey), KeyError> {
        match rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(KeyError::Busy),
            Err(error) => return Err(self.io("locked", "", error)),
        }
        // A rotation that was killed leaves a private key that will never be used.
        for name in files::hidden(&self.directory).map_err(|error| self.io("listed", "", error))? {
            files::remove(&self.directory, &name).map_err(|error| self.io("removed", &name, error))?;
        }
        let old = self.current()?.seed()?.signer();
        let seed = self.random()?;
        let new = seed.signer().public().clone();
        self.publish(old.public())?;
        self.publish(&new)?;
        let link = format!("{}{NEXT}", old.public().id());
        let sealed = Link::seal(&old, &new, now_unix_ms).map_err(|error| self.io("written", &link, error))?;
        let replace = |name: &str, content: &[u8]| {
            files::replace(&self.directory, name, content).map_err(|error| self.io("written", name, error))
        };
        replace(&link, &sealed.file)?;
        replace(CURRENT, seed.to_pem().as_bytes())?;
        files::sync(&self.directory).map_err(|error| self.io("written", "", error))?;
        Ok((old.public().clone(), new))
    }
}

impl KeyFile {
    /// Reads the key.
    pub fn seed(&self) -> Result<Seed, KeyError> {
        // One byte more, so that a longer file is noticed and not read as a key.
        let mut text = Zeroizing::new([0; PRIVATE_KEY_BYTES + 1]);
        let count = self.file.read_at(&mut *text, 0).map_err(|source| KeyError::Io {
            doing: "read",
            path: self.path.clone(),
            source,
        })?;
        Seed::from_pem(&text[..count]).map_err(|source| KeyError::Damaged { path: self.path.clone(), source })
    }
}

#[cfg(test)]
#[path = "key_directory_tests.rs"]
mod tests;
