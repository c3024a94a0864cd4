//! Kept files in a directory: `ACCOUNT/ID`.

use super::id::{BlobId, MAX_LISTED};
use crate::store::StoreError;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// File with the id of the directory.
const ID_FILE: &str = "id";

fn id_of(name: &OsStr) -> Option<[u8; 16]> {
    name.to_str()?.parse::<Uuid>().ok().map(Uuid::into_bytes)
}

/// The directory of the bytes.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Opens the directory, and makes it, closed to others, where it is missing.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| StoreError::Directory { path: path.display().to_string(), why: error.to_string() })?;
        Ok(Self { path: path.to_owned() })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the id of the directory, which is made at the first call. Servers that share a database compare it: each has to have the same directory.
    pub fn id(&self) -> Result<[u8; 16], StoreError> {
        let path = self.path.join(ID_FILE);
        let fault = |why: String| StoreError::Directory { path: path.display().to_string(), why };
        // The name appears with its content: another server that starts now reads a whole id.
        let new = self.path.join(format!("{ID_FILE}.{}", Uuid::now_v7()));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
            file.write_all(Uuid::now_v7().to_string().as_bytes())?;
            file.sync_data()?;
            std::fs::hard_link(&new, &path)
        });
        std::fs::remove_file(&new).map_err(|error| fault(error.to_string()))?;
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fault(error.to_string())),
            _ => {}
        }
        let text = std::fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?;
        id_of(OsStr::new(text.trim())).ok_or_else(|| fault("the id of the directory is not one".to_owned()))
    }

    fn place(&self, blob: BlobId) -> PathBuf {
        self.path.join(Uuid::from_bytes(blob.account).to_string()).join(Uuid::from_bytes(blob.id).to_string())
    }

    /// Takes the turn to write a file, until what is returned is dropped. It counts for every process of this machine. `None` while
    /// another one has it.
    pub async fn turn(&self, blob: BlobId) -> Result<Option<File>, StoreError> {
        let place = self.place(blob);
        blocking(move || {
            if let Some(parent) = place.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&place)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(file)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        })
        .await
    }

    /// Writes bytes at a place of a file, and brings them to the disk.
    pub async fn write(&self, blob: BlobId, offset: u64, bytes: Vec<u8>) -> Result<(), StoreError> {
        let place = self.place(blob);
        blocking(move || {
            let is_new = offset == 0;
            if let Some(parent) = place.parent()
                && is_new
            {
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let file = OpenOptions::new().write(true).create(is_new).truncate(false).mode(0o600).open(&place)?;
            file.write_all_at(&bytes, offset)?;
            file.sync_data()?;
            match place.parent() {
                Some(parent) if is_new => File::open(parent)?.sync_all(),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Returns the BLAKE3 hash of the first `size` bytes of a file, in hexadecimal.
    pub async fn hash(&self, blob: BlobId, size: u64) -> Result<String, StoreError> {
        let place = self.place(blob);
        blocking(move || {
            let file = File::open(&place)?;
            let mut hash = blake3::Hasher::new();
            let mut buffer = vec![0; 256 * 1024];
            let mut at = 0;
            while at < size {
                let most = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
                let piece = buffer.get_mut(..most).unwrap_or_default();
                file.read_exact_at(piece, at)?;
                hash.update(piece);
                at += most as u64;
            }
            Ok(hash.finalize().to_hex().to_string())
        })
        .await
    }

    /// Reads a piece of a file.
    pub async fn read(&self, blob: BlobId, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let place = self.place(blob);
        blocking(move || {
            let mut bytes = vec![0; length];
            File::open(&place)?.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        })
        .await
    }

    /// Lists files that were written so long ago by the clock of the file system, at most [`MAX_LISTED`].
    pub async fn older_than(&self, age: Duration) -> Result<Vec<BlobId>, StoreError> {
        let path = self.path.clone();
        blocking(move || {
            let (mut found, now) = (Vec::new(), SystemTime::now());
            for account in std::fs::read_dir(&path)? {
                let account = account?;
                let Some(owner) = id_of(&account.file_name()) else { continue };
                for file in std::fs::read_dir(account.path())? {
                    let file = file?;
                    let is_old = now.duration_since(file.metadata()?.modified()?).is_ok_and(|passed| passed >= age);
                    if let Some(id) = id_of(&file.file_name()).filter(|_| is_old) {
                        found.push(BlobId { account: owner, id });
                    }
                    if found.len() >= MAX_LISTED {
                        return Ok(found);
                    }
                }
            }
            Ok(found)
        })
        .await
    }

    /// Removes a file; a missing one is fine.
    pub async fn remove(&self, blob: BlobId) -> Result<(), StoreError> {
        let place = self.place(blob);
        blocking(move || match std::fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?;
    done.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
        _ => StoreError::corrupt(format!("the bytes of a kept file: {error}")),
    })
}
