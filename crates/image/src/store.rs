//! The store of images: what was imported, by content.
//!
//! ```text
//!  images/version             form of the store
//!  images/lock                shared by whoever adds, exclusive for whoever removes
//!  images/images.json         the images with their names; replaced as a whole, under images/names.lock
//!  images/blobs/sha256/HEX    manifests, configurations and layers, as they came
//!  images/roots/HEX/tree      the unpacked layers, by the chain of their digests
//!  images/roots/HEX/lock      held by the runs that use it
//!  images/tmp/N/              an import at work; locked, so that the next one clears up what a killed one left
//! ```
//! Everything is made in `tmp` and renamed when it is complete.

use crate::digest::{Digest, Hashed};
use crate::document::{self, Configuration, Manifest, Platform, Settings};
use crate::error::{At as _, ImageError, shown};
use crate::files::{entries, is_young, lock_file, locked, make_dir, wait_for, write_new};
use crate::inflate::Bounded;
use crate::layer::Unpacked;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const VERSION: &str = "1\n";
/// Bytes of the list of images.
const MAX_LIST: u64 = 16 << 20;
const MAX_NAME: usize = 255;

/// One image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Digest of its manifest, which names everything in it.
    pub digest: Digest,
    /// Name of its unpacked root.
    pub root: Digest,
    /// Names by which it is found.
    pub names: Vec<String>,
    /// Time of the import, in seconds since 1970.
    pub imported: u64,
    /// Form of the archive that it came in.
    pub from: String,
    /// Machine that it is for.
    pub platform: Platform,
    /// Counts of what was unpacked and left out.
    pub unpacked: Unpacked,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    images: Vec<Image>,
}

/// Counts of a removal of unused data.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Blobs that are gone.
    pub blobs: u64,
    /// Roots that are gone.
    pub roots: u64,
    /// Roots without an image that a run uses, and that therefore stay.
    pub roots_in_use: u64,
    /// Directories of imports that were killed.
    pub leftovers: u64,
}

/// An unpacked root that no process removes while this lives.
#[derive(Debug)]
pub struct HeldRoot {
    path: PathBuf,
    _lock: File,
}

impl HeldRoot {
    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The store of images.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

/// A directory of one import; removed at its end.
pub struct Work {
    pub dir: PathBuf,
    _lock: File,
    _store: File,
}

impl Drop for Work {
    fn drop(&mut self) {
        // What stays is cleared up by the next import.
        std::fs::remove_dir_all(&self.dir).unwrap_or_default();
    }
}

impl Store {
    /// Opens the store in a state directory, and makes it where there is none.
    pub fn open(state: &Path) -> Result<Self, ImageError> {
        let dir = state.join("images");
        for path in ["", "blobs", "blobs/sha256", "roots", "tmp"].map(|name| dir.join(name)) {
            make_dir(&path)?;
        }
        let version = dir.join("version");
        match std::fs::read_to_string(&version) {
            Ok(text) if text == VERSION => {}
            Ok(_) => return Err(ImageError::Newer),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let aside = dir.join("tmp").join(format!("version.{}", std::process::id()));
                match write_new(&aside, VERSION.as_bytes()) {
                    // Another thread of this process is at it.
                    Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
                    other => other.and_then(|()| std::fs::rename(&aside, &version).at("write", &version))?,
                }
            }
            Err(error) => return Err(error).at("read", &version),
        }
        Ok(Self { dir })
    }

    /// Reports whether a state directory has a store. Looking for one makes none.
    #[must_use]
    pub fn is_there(state: &Path) -> bool {
        state.join("images/version").exists()
    }

    /// Returns all images, the last import first.
    pub fn images(&self) -> Result<Vec<Image>, ImageError> {
        Ok(self.list()?.images)
    }

    /// Finds an image by one of its names, by its digest, or by at least eight digits that begin it.
    pub fn find(&self, reference: &str) -> Result<Image, ImageError> {
        let images = self.images()?;
        let unknown = || ImageError::Unknown { reference: shown(reference.as_bytes()) };
        // The name before a pinned digest is for people.
        let pinned = reference.rsplit_once('@').map_or(reference, |(_, digest)| digest);
        let by_name = |name: &str| images.iter().find(|one| one.names.iter().any(|other| other == name));
        if pinned == reference {
            let latest = format!("{reference}:latest");
            if let Some(found) = by_name(reference).or_else(|| by_name(&latest)) {
                return Ok(found.clone());
            }
        }
        let hex = pinned.strip_prefix("sha256:").unwrap_or(pinned);
        if hex.len() < 8 || (pinned != reference && hex.len() != 64) {
            return Err(unknown());
        }
        let mut found = images.iter().filter(|one| one.digest.hex().starts_with(hex));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (None, _) => Err(unknown()),
            _ => Err(ImageError::Ambiguous { reference: shown(reference.as_bytes()) }),
        }
    }

    /// Reads what an image says about its use.
    pub fn settings(&self, image: &Image) -> Result<Settings, ImageError> {
        Ok(self.configuration(image)?.1.config)
    }

    /// Returns the layers of an image, as they are stored, with their sizes.
    pub fn layers(&self, image: &Image) -> Result<Vec<(Digest, u64)>, ImageError> {
        let (manifest, _) = self.configuration(image)?;
        Ok(manifest.layers.iter().map(|layer| (layer.digest, layer.size)).collect())
    }

    fn configuration(&self, image: &Image) -> Result<(Manifest, Configuration), ImageError> {
        let manifest: Manifest = document::parse(&self.blob(image.digest)?, "the manifest of the image")?;
        let config = self.blob(manifest.config.digest)?;
        let config = Configuration::read(&config, &image.platform, manifest.layers.len())?;
        Ok((manifest, config))
    }

    /// Holds the unpacked root of an image for a run.
    pub fn hold(&self, image: &Image) -> Result<HeldRoot, ImageError> {
        let root = self.dir.join("roots").join(image.root.hex());
        let lock = root.join("lock");
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let file = match File::open(&lock) {
            Err(error) if gone(&error) => {
                return Err(ImageError::Damaged { what: format!("the root {} is not there", image.root) });
            }
            other => other.at("open", &lock)?,
        };
        locked(&file, FlockOperation::NonBlockingLockShared, &lock)?;
        // It may have been removed before it was locked.
        let path = root.join("tree");
        std::fs::symlink_metadata(&path).at("look at", &path)?;
        Ok(HeldRoot { path, _lock: file })
    }

    /// Takes a name away from its image, or the image with all its names. Its data stay until [`Store::collect`].
    pub fn remove(&self, reference: &str) -> Result<(Image, bool), ImageError> {
        let image = self.find(reference)?;
        let is_gone = self.change(|list| {
            let Some(at) = list.images.iter().position(|one| one.digest == image.digest) else { return true };
            let latest = format!("{reference}:latest");
            let has = list.images[at].names.iter().any(|name| name == reference);
            let name = if has { reference } else { &latest };
            let named = list.images[at].names.iter().any(|other| other == name);
            list.images[at].names.retain(|other| other != name);
            let is_last = !named || list.images[at].names.is_empty();
            if is_last {
                list.images.remove(at);
            }
            is_last
        })?;
        Ok((image, is_gone))
    }

    /// Removes what no image needs, and what killed imports left.
    pub fn collect(&self) -> Result<Removed, ImageError> {
        let path = self.dir.join("lock");
        let lock = lock_file(&path)?;
        locked(&lock, FlockOperation::NonBlockingLockExclusive, &path)?;
        let mut removed = Removed { leftovers: self.clear_leftovers()?, ..Removed::default() };
        let mut blobs = BTreeSet::new();
        let mut roots = BTreeSet::new();
        for image in self.images()? {
            roots.insert(image.root.hex());
            let manifest: Manifest = document::parse(&self.blob(image.digest)?, "the manifest of the image")?;
            let layers = manifest.layers.iter().map(|layer| layer.digest.hex());
            blobs.extend(layers.chain([image.digest.hex(), manifest.config.digest.hex()]));
        }
        for (name, path) in entries(&self.dir.join("roots"))? {
            if roots.contains(&name) {
                continue;
            }
            let file = lock_file(&path.join("lock"))?;
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                removed.roots_in_use += 1;
                continue;
            }
            let aside = self.dir.join("tmp").join(format!("root.{name}"));
            std::fs::rename(&path, &aside).at("remove", &path)?;
            std::fs::remove_dir_all(&aside).at("remove", &aside)?;
            removed.roots += 1;
        }
        for (name, path) in entries(&self.dir.join("blobs/sha256"))? {
            if !blobs.contains(&name) {
                std::fs::remove_file(&path).at("remove", &path)?;
                removed.blobs += 1;
            }
        }
        Ok(removed)
    }

    /// Begins an import, and clears up what killed ones left.
    pub fn begin(&self) -> Result<Work, ImageError> {
        let path = self.dir.join("lock");
        let store = lock_file(&path)?;
        wait_for(&store, FlockOperation::NonBlockingLockShared, &path)?;
        self.clear_leftovers()?;
        let tmp = self.dir.join("tmp");
        for attempt in 0..1000u32 {
            // Never a name that was used before: a process that found the directory of then unlocked would remove this one.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            let dir = tmp.join(format!("{}.{now}.{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.at("make", &dir)?,
            }
            let lock = dir.join("lock");
            let file = lock_file(&lock)?;
            // Another import may have taken the new directory for a leftover, and removes it.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && lock.exists() {
                return Ok(Work { dir, _lock: file, _store: store });
            }
        }
        Err(ImageError::Busy)
    }

    fn clear_leftovers(&self) -> Result<u64, ImageError> {
        let mut cleared = 0;
        for (_, path) in entries(&self.dir.join("tmp"))? {
            let lock = path.join("lock");
            // Held until it is gone: an import that has just made its directory takes another one then.
            let file = File::open(&lock);
            match &file {
                Ok(file) if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err() => continue,
                // One that has just started has no lock yet: it is left alone until it is old.
                Err(_) if is_young(&path) => continue,
                _ => {}
            }
            let gone = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match gone {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.at("remove", &path)?,
            }
            cleared += 1;
        }
        Ok(cleared)
    }

    /// Returns the path of a blob.
    pub fn blob_path(&self, digest: Digest) -> PathBuf {
        self.dir.join("blobs/sha256").join(digest.hex())
    }

    /// Returns the path of an unpacked root.
    pub fn root_path(&self, root: Digest) -> PathBuf {
        self.dir.join("roots").join(root.hex())
    }

    fn blob(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        let path = self.blob_path(digest);
        let bytes = std::fs::read(&path).at("read", &path)?;
        if Digest::of(&bytes) == digest {
            return Ok(bytes);
        }
        Err(ImageError::Damaged { what: format!("the blob {digest} has other content") })
    }

    /// Adds a blob: what is read must have this digest and size, where they are known. Returns both.
    pub fn put(
        &self,
        work: &Work,
        what: &str,
        content: impl Read,
        expected: (Option<Digest>, Option<u64>),
        most: u64,
    ) -> Result<(Digest, u64), ImageError> {
        let aside = work.dir.join("blob");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&aside);
        let file = file.as_mut().map_err(|error| io::Error::from(error.kind())).at("make", &aside)?;
        // A byte more than was said is enough to refuse it.
        let most_here = expected.1.map_or(most, |bytes| bytes.saturating_add(1).min(most));
        let mut content = Hashed::new(Bounded::new(content, most_here));
        match io::copy(&mut content, file) {
            Ok(_) => {}
            Err(_) if content.inner().is_over() && most_here < most => {}
            Err(_) if content.inner().is_over() => {
                return Err(ImageError::TooMuch { what: format!("bytes of {what}"), most });
            }
            Err(source) => return Err(source).at("copy to", &aside),
        }
        let (found, bytes) = content.finish();
        if let Some(expected) = expected.1.filter(|size| *size != bytes) {
            return Err(ImageError::SizeMismatch { what: what.to_owned(), expected, found: bytes });
        }
        if let Some(expected) = expected.0.filter(|digest| *digest != found) {
            return Err(ImageError::DigestMismatch { what: what.to_owned(), expected, found });
        }
        file.sync_all().at("write", &aside)?;
        let path = self.blob_path(found);
        std::fs::rename(&aside, &path).at("write", &path)?;
        Ok((found, bytes))
    }

    /// Moves an unpacked root from the directory of an import to its place, unless another import was first.
    pub fn put_root(&self, made: &Path, root: Digest) -> Result<(), ImageError> {
        let path = self.root_path(root);
        match rustix::fs::rename(made, &path) {
            Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(()),
            Err(error) => Err(error).at("write", &path),
        }
    }

    /// Enters an image, and gives it its names, which no other one has then.
    pub fn enter(&self, image: Image) -> Result<Image, ImageError> {
        self.change(|list| {
            for other in &mut list.images {
                other.names.retain(|name| !image.names.contains(name));
            }
            let mut image = image;
            if let Some(at) = list.images.iter().position(|one| one.digest == image.digest) {
                let before = list.images.remove(at);
                let more = before.names.into_iter().filter(|name| !image.names.contains(name)).collect::<Vec<_>>();
                image.names.extend(more);
            }
            list.images.insert(0, image.clone());
            image
        })
    }

    fn list(&self) -> Result<List, ImageError> {
        let path = self.dir.join("images.json");
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(List::default()),
            other => other.at("open", &path)?,
        };
        let bytes = crate::inflate::read_document(file, "the list of images", MAX_LIST)?;
        serde_json::from_slice(&bytes).map_err(|error| ImageError::Damaged { what: format!("images.json: {error}") })
    }

    fn change<T>(&self, change: impl FnOnce(&mut List) -> T) -> Result<T, ImageError> {
        let path = self.dir.join("names.lock");
        let lock = lock_file(&path)?;
        wait_for(&lock, FlockOperation::NonBlockingLockExclusive, &path)?;
        let mut list = self.list()?;
        let done = change(&mut list);
        let aside = self.dir.join("images.json.new");
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).at("remove", &aside),
            _ => {}
        }
        write_new(&aside, &document::write(&list, "the list of images")?)?;
        let path = self.dir.join("images.json");
        std::fs::rename(&aside, &path).at("write", &path)?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).at("write", &self.dir)?;
        Ok(done)
    }
}

/// Checks a name that a person or an archive gives to an image.
pub fn check_name(name: &str) -> Result<(), ImageError> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_hex = name.len() >= 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if begins && name.len() <= MAX_NAME && name.bytes().all(is_fine) && !name.starts_with("sha256:") && !is_hex {
        return Ok(());
    }
    Err(ImageError::Name { name: shown(name.as_bytes()) })
}
