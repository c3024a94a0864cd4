//! Copies the files that a directive keeps, with their hashes, into a directory of the territory: the next directive may
//! change the workspace while they are uploaded.
//!
//! ```text
//!  globs ─▶ files as the run left them (layer over workspace) ─▶ copied and hashed ─▶ SPOOL/0, SPOOL/1, … and a manifest
//! ```
//! The files were written by a hostile process. Links are named and never followed; a name that is not plain text is left out, and the
//! manifest says so.

use crate::glob::Glob;
use nexus_layer::meta::EntryType;
use nexus_layer::review::after_run::{FileAfter, FilesAfter, files_of};
use nexus_layer::{Layer, Rules, Workspace};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of the manifest.
pub const FORM: u32 = 1;
/// Longest name of a file, in bytes.
pub const MAX_NAME: usize = 1024;
/// Names of left out files in a manifest, at most.
const MAX_OMITTED: usize = 100;

/// Bounds of the files of one directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Largest number of files and links.
    pub files: usize,
    /// Largest sum of their sizes, in bytes.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { files: 1000, bytes: 1 << 30 }
    }
}

/// The kept files of a directive, as its report names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Manifest {
    /// Version of the form.
    pub version: u32,
    /// The files, in the order of their names.
    pub artifacts: Vec<Artifact>,
    /// Files that matched and were left out (the first few).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<Omitted>,
    /// True if files are missing: some were left out, or a directory could not be read.
    #[serde(default)]
    pub truncated: bool,
}

/// One kept file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Path relative to the workspace, safe as the name of a file.
    pub name: String,
    /// `file` or `symlink`.
    pub kind: String,
    /// Bytes of a file.
    pub size: u64,
    /// BLAKE3 hash of a file, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Media type by the name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// True for a file that its owner may execute.
    #[serde(default)]
    pub executable: bool,
    /// Target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Artifact {
    /// Reports whether it has bytes to upload.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FILE
    }
}

/// A file that matched and is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    /// Its name, with marks in the place of what is not plain text.
    pub name: String,
    /// Reason why it is not kept.
    pub why: String,
}

const FILE: &str = "file";
const SYMLINK: &str = "symlink";

/// Copies the files that match, from a workspace with the changes of a layer that are not decided yet.
pub fn of_layer(
    layer: &Layer,
    workspace: &Workspace,
    rules: &Rules,
    globs: &[Glob],
    bounds: Bounds,
    spool: &Path,
) -> Result<Manifest, String> {
    let after = layer.files_after(workspace, rules, &|path| globs.iter().any(|glob| glob.matches(path)));
    collect(&after.map_err(|error| error.to_string())?, bounds, spool).map_err(|error| error.to_string())
}

/// Copies the files that match, from a workspace that stays as it is.
pub fn of_tree(tree: &Path, globs: &[Glob], bounds: Bounds, spool: &Path) -> Result<Manifest, String> {
    let workspace = Workspace::open(tree).map_err(|error| error.to_string())?;
    let after = files_of(&workspace, &|path| globs.iter().any(|glob| glob.matches(path)));
    collect(&after.map_err(|error| error.to_string())?, bounds, spool).map_err(|error| error.to_string())
}

/// Returns the place of the copy of the file with this number in a manifest.
#[must_use]
pub fn place(spool: &Path, number: usize) -> PathBuf {
    spool.join(number.to_string())
}

fn collect(after: &FilesAfter<'_>, bounds: Bounds, spool: &Path) -> io::Result<Manifest> {
    let mut manifest = Manifest { version: FORM, truncated: after.incomplete, ..Manifest::default() };
    let mut left = bounds.bytes;
    for one in &after.files {
        let why = if let Some(name) = safe_name(&one.path) {
            if manifest.artifacts.len() >= bounds.files {
                Err(format!("more than {} files match", bounds.files))
            } else {
                keep(after, one, name, &mut left, &place(spool, manifest.artifacts.len()))?
            }
        } else {
            Err("its name is not plain text, or is too long".to_owned())
        };
        match why {
            Ok(artifact) => manifest.artifacts.push(artifact),
            Err(why) => {
                manifest.truncated = true;
                if manifest.omitted.len() < MAX_OMITTED {
                    manifest.omitted.push(Omitted { name: shown(&one.path), why });
                }
            }
        }
    }
    if manifest.artifacts.iter().any(Artifact::is_file) {
        File::open(spool)?.sync_all()?;
    }
    Ok(manifest)
}

/// Copies one file. The inner error is the reason why it is left out; the outer one ends the collection.
fn keep(
    after: &FilesAfter<'_>,
    one: &FileAfter,
    name: String,
    left: &mut u64,
    to: &Path,
) -> io::Result<Result<Artifact, String>> {
    let executable = one.mode & 0o100 != 0;
    if one.kind == EntryType::Symlink {
        let target = match after.target(one) {
            Ok(target) => target,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some(target) = String::from_utf8(target).ok().filter(|target| !target.chars().any(char::is_control)) else {
            return Ok(Err("the target of the link is not plain text".to_owned()));
        };
        let kind = SYMLINK.to_owned();
        let target = Some(target);
        return Ok(Ok(Artifact { name, kind, size: 0, blake3: None, media_type: None, executable: false, target }));
    }
    if one.size > *left {
        return Ok(Err("the files together are larger than the bound".to_owned()));
    }
    let mut from = match after.open(one) {
        Ok(from) => from,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(parent) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut copy = File::options().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    // Nothing runs in the workspace any more; a file that grows all the same is cut off at the bound, and left out.
    let copied = copied(&mut from, &mut copy, *left);
    let (size, hash) = match copied {
        Ok(Some(copied)) => copied,
        Ok(None) => {
            std::fs::remove_file(to)?;
            return Ok(Err("the files together are larger than the bound".to_owned()));
        }
        Err(error) => {
            // What was written of it goes, so that the result of the directive has the room.
            std::fs::remove_file(to)?;
            return Ok(Err(error.to_string()));
        }
    };
    *left -= size;
    let media_type = Some(media_type(&name).to_owned());
    let kind = FILE.to_owned();
    Ok(Ok(Artifact { name, kind, size, blake3: Some(hash), media_type, executable, target: None }))
}

/// Copies and hashes at most `most` bytes; `None` when there are more.
fn copied(from: &mut File, to: &mut File, most: u64) -> io::Result<Option<(u64, String)>> {
    let mut hash = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut size = 0u64;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            to.sync_all()?;
            return Ok(Some((size, hash.finalize().to_hex().to_string())));
        }
        size += count as u64;
        if size > most {
            return Ok(None);
        }
        let piece = buffer.get(..count).unwrap_or_default();
        hash.update(piece);
        to.write_all(piece)?;
    }
}

/// Returns a path as a name that is safe on every machine of a fleet; `None` for a path that has none.
#[must_use]
pub fn safe_name(path: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(path).ok()?;
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    let is_safe = name.len() <= MAX_NAME
        && !name.chars().any(|letter| letter.is_control() || is_mark(letter) || letter == '\\')
        && name.split('/').all(plain);
    is_safe.then(|| name.to_owned())
}

/// Marks that change the order or the look of a name on a screen.
fn is_mark(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn shown(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    text.chars().map(|letter| if letter.is_control() || is_mark(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Returns the media type of a file by the end of its name. It is a hint for people; no server serves a file by it.
#[must_use]
pub fn media_type(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end).to_ascii_lowercase();
    match end.as_str() {
        "txt" | "log" | "md" => "text/plain",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        "zst" => "application/zstd",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "diff" | "patch" => "text/x-diff",
        _ => "application/octet-stream",
    }
}
