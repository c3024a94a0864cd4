//! Imports an image: finds it in what was given, copies and verifies its blobs, and unpacks its layers.

use crate::archive::{self, Archive, Kind};
use crate::digest::Digest;
use crate::document::{self, Configuration, Index, Manifest, Platform, Saved};
use crate::error::{At as _, ImageError};
use crate::inflate;
use crate::layer::{self, Unpacked};
use crate::limits::Limits;
use crate::store::{Image, Store, Work, check_name};
use crate::tree::Tree;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lists of manifests in lists of manifests that are read.
const MAX_NESTED: usize = 3;
const MANIFEST: &str = "the manifest of the image";
const CONFIGURATION: &str = "the configuration of the image";

/// Step of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Copies a layer into the store.
    Copy {
        /// Its number, from one.
        layer: usize,
        /// The number of layers.
        of: usize,
    },
    /// Unpacks a layer.
    Unpack {
        /// Its number, from one.
        layer: usize,
        /// The number of layers.
        of: usize,
    },
}

/// An image that was imported.
#[derive(Debug)]
pub struct Imported {
    /// Entry of the store.
    pub image: Image,
    /// False if its root was unpacked before.
    pub is_new_root: bool,
}

/// Imports the one image that a directory or an archive has for this machine. `name` takes the place of the names in it.
pub fn import(
    store: &Store,
    path: &Path,
    name: Option<&str>,
    limits: &Limits,
    progress: &mut dyn FnMut(Progress),
) -> Result<Imported, ImageError> {
    name.map_or(Ok(()), check_name)?;
    let work = store.begin()?;
    let (archive, kind) = archive::open(path, &work.dir.join("spool"), limits)?;
    let mut import = Import { store, work: &work, archive: &archive, limits, progress };
    let found = match kind {
        Kind::Layout => import.layout()?,
        Kind::Docker => import.docker()?,
        Kind::Root => import.root()?,
    };
    let (unpacked, root, is_new_root) = import.unpack(&found)?;
    // A name in the archive that cannot be one is left out: the image has its digest.
    let own = found.names.into_iter().filter(|name| check_name(name).is_ok());
    let image = Image {
        digest: found.digest,
        root,
        names: name.map_or_else(|| own.collect(), |name| vec![name.to_owned()]),
        imported: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        from: kind.name().to_owned(),
        platform: found.config.platform,
        unpacked,
    };
    Ok(Imported { image: store.enter(image)?, is_new_root })
}

/// An image whose blobs are in the store.
struct Found {
    digest: Digest,
    layers: Vec<(Digest, u64)>,
    config: Configuration,
    names: Vec<String>,
}

struct Import<'a> {
    store: &'a Store,
    work: &'a Work,
    archive: &'a Archive,
    limits: &'a Limits,
    progress: &'a mut dyn FnMut(Progress),
}

impl Import<'_> {
    fn layout(&mut self) -> Result<Found, ImageError> {
        let most = self.limits.document_bytes;
        let (stream, _) = self.archive.open("index.json")?;
        let bytes = inflate::read_document(stream, "index.json", most)?;
        let mut index: Index = document::parse(&bytes, "index.json")?;
        let wanted = Platform::here();
        let mut name = None;
        for _ in 0..MAX_NESTED {
            let chosen = index.choose(&wanted)?;
            name = name.or_else(|| chosen.name().map(str::to_owned));
            let what = if chosen.is_index() { "a list of manifests" } else { MANIFEST };
            let (bytes, digest) =
                self.document(&blob(chosen.digest), what, (Some(chosen.digest), Some(chosen.size)))?;
            if chosen.is_index() {
                index = document::parse(&bytes, what)?;
                continue;
            }
            let manifest: Manifest = document::parse(&bytes, MANIFEST)?;
            self.check_layers(manifest.layers.len())?;
            let expected = (Some(manifest.config.digest), Some(manifest.config.size));
            let (config, _) = self.document(&blob(manifest.config.digest), CONFIGURATION, expected)?;
            let config = Configuration::read(&config, &wanted, manifest.layers.len())?;
            for (at, one) in manifest.layers.iter().enumerate() {
                self.layer(&blob(one.digest), (Some(one.digest), Some(one.size)), (at, manifest.layers.len()))?;
            }
            let layers = manifest.layers.iter().map(|one| (one.digest, one.size)).collect();
            return Ok(Found { digest, layers, config, names: name.into_iter().collect() });
        }
        Err(ImageError::TooMuch { what: "lists of manifests in each other".to_owned(), most: MAX_NESTED as u64 })
    }

    fn docker(&mut self) -> Result<Found, ImageError> {
        let (stream, _) = self.archive.open("manifest.json")?;
        let bytes = inflate::read_document(stream, "manifest.json", self.limits.document_bytes)?;
        let all: Vec<Saved> = document::parse(&bytes, "manifest.json")?;
        let [saved] = &all[..] else { return Err(ImageError::Several { count: all.len() }) };
        self.check_layers(saved.layers.len())?;
        // Its name is its digest, as docker save writes it.
        let stem = saved.config.rsplit('/').next().unwrap_or_default();
        let named = Digest::from_hex(stem.strip_suffix(".json").unwrap_or(stem));
        let (config, config_digest) = self.document(&saved.config, CONFIGURATION, (named, None))?;
        let read = Configuration::read(&config, &Platform::here(), saved.layers.len())?;
        let mut layers = Vec::new();
        for (at, name) in saved.layers.iter().enumerate() {
            layers.push(self.layer(name, (None, None), (at, saved.layers.len()))?);
        }
        let manifest = Manifest::of((config_digest, config.len() as u64), &layers);
        let names = saved.repo_tags.clone().unwrap_or_default();
        Ok(Found { digest: self.put_document(&manifest, MANIFEST)?.0, layers, config: read, names })
    }

    fn root(&mut self) -> Result<Found, ImageError> {
        (self.progress)(Progress::Copy { layer: 1, of: 1 });
        let (stream, bytes) = self.archive.whole()?;
        let most = self.limits.unpacked_bytes;
        let layer = self.store.put(self.work, "the archive", stream, (None, Some(bytes)), most)?;
        let config = Configuration::of_root(layer.0);
        let written = self.put_document(&config, CONFIGURATION)?;
        let manifest = Manifest::of(written, &[layer]);
        let digest = self.put_document(&manifest, MANIFEST)?.0;
        Ok(Found { digest, layers: vec![layer], config, names: Vec::new() })
    }

    /// Copies a document into the store, and returns it with its digest.
    fn document(
        &self,
        name: &str,
        what: &str,
        expected: (Option<Digest>, Option<u64>),
    ) -> Result<(Vec<u8>, Digest), ImageError> {
        let (stream, _) = self.archive.open(name)?;
        let bytes = inflate::read_document(stream, what, self.limits.document_bytes)?;
        let (digest, _) = self.store.put(self.work, what, &bytes[..], expected, self.limits.document_bytes)?;
        Ok((bytes, digest))
    }

    fn put_document<T: serde::Serialize>(&self, document: &T, what: &str) -> Result<(Digest, u64), ImageError> {
        let bytes = document::write(document, what)?;
        self.store.put(self.work, what, &bytes[..], (None, None), self.limits.document_bytes)
    }

    fn layer(
        &mut self,
        name: &str,
        expected: (Option<Digest>, Option<u64>),
        (at, of): (usize, usize),
    ) -> Result<(Digest, u64), ImageError> {
        (self.progress)(Progress::Copy { layer: at + 1, of });
        let (stream, bytes) = self.archive.open(name)?;
        let expected = (expected.0, expected.1.or(Some(bytes)));
        let what = format!("layer {} of {of}", at + 1);
        self.store.put(self.work, &what, stream, expected, self.limits.layer_bytes)
    }

    fn check_layers(&self, count: usize) -> Result<(), ImageError> {
        if count <= self.limits.layers {
            return Ok(());
        }
        Err(ImageError::TooMuch { what: "layers of one image".to_owned(), most: self.limits.layers as u64 })
    }

    /// Unpacks the layers from the store, where no other process changes them, unless that was done before.
    fn unpack(&mut self, found: &Found) -> Result<(Unpacked, Digest, bool), ImageError> {
        let diff_ids = &found.config.rootfs.diff_ids;
        let root = Digest::chain(diff_ids);
        let place = self.store.root_path(root);
        if let Some(counts) = unpacked(&place)? {
            return Ok((counts, root, false));
        }
        let made = self.work.dir.join("root");
        let tree_path = made.join("tree");
        std::fs::create_dir_all(&tree_path).at("make", &tree_path)?;
        let mut tree = Tree::open(&tree_path, self.limits.path_bytes)?;
        let mut counts = Unpacked::default();
        for (at, ((digest, bytes), diff_id)) in found.layers.iter().zip(diff_ids).enumerate() {
            (self.progress)(Progress::Unpack { layer: at + 1, of: diff_ids.len() });
            let path = self.store.blob_path(*digest);
            let stored = File::open(&path).at("open", &path)?;
            let content = layer::unpack(&mut tree, stored, *bytes, self.limits, &mut counts)?;
            if content != *diff_id {
                let what = format!("layer {} of {}, unpacked,", at + 1, diff_ids.len());
                return Err(ImageError::DigestMismatch { what, expected: *diff_id, found: content });
            }
        }
        // Others than this user reach the tree only inside, and then need a way into it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&tree_path, open).at("change the mode of", &tree_path)?;
        let about = made.join("unpacked.json");
        std::fs::write(&about, document::write(&counts, "the counts")?).at("write", &about)?;
        let lock = made.join("lock");
        std::fs::write(&lock, "").at("write", &lock)?;
        tree.sync()?;
        self.store.put_root(&made, root)?;
        Ok((counts, root, true))
    }
}

/// Reads the counts of a root that is there.
fn unpacked(place: &Path) -> Result<Option<Unpacked>, ImageError> {
    let about = place.join("unpacked.json");
    let mut bytes = Vec::new();
    match File::open(&about).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.at("read", &about).and_then(|_| document::parse(&bytes, "unpacked.json").map(Some)),
    }
}

/// Returns the name of a blob in a layout.
fn blob(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
