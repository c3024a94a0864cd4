//! Copies of files that directives keep, until the control plane has them: a directory for each claim.

use crate::claims::Note;
use nexus_facility::artifacts::Manifest;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of the copies.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
}

impl Spool {
    /// Opens the directory, and makes it where it is missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Returns the directory for the files of a claim. It is made with its first file.
    #[must_use]
    pub fn place(&self, claim: &str) -> PathBuf {
        self.path.join(claim)
    }

    /// Removes the files of a claim.
    pub fn forget(&self, claim: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.place(claim)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the files of all claims but these: a daemon that died before it noted a result left them.
    pub fn sweep(&self, kept: &BTreeSet<String>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !kept.contains(&name) {
                self.forget(&name)?;
            }
        }
        Ok(())
    }
}

/// Returns the files that the report of a claim names.
#[must_use]
pub fn manifest(note: &Note) -> Option<Manifest> {
    let value = note.result.as_ref()?.artifacts_manifest.clone()?;
    serde_json::from_value(value).ok()
}
