//! Remembers the modes of entries that a copy has to open up.
//!
//! An ordinary user cannot read what a run closed to its owner, so that a copy opens it first. A copy that is killed meanwhile
//! is made again, and must not take the opened mode for the one that the run gave. Each mode is therefore on the disk before
//! the entry is opened.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::meta::{EntryType, Meta};
use crate::state_file::StateFileError;
use nexus_model::ByteText;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};

/// The modes, one line of JSON for each.
pub(crate) const FILE: &str = "apart.modes";

/// More than the modes of a million paths take.
const MAX_BYTES: u64 = 1 << 30;

/// The entries that were opened up so far, with the modes that they had.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    modes: HashMap<Vec<u8>, u32>,
    file: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: ByteText,
    mode: u32,
}

impl Opened {
    /// For a tree that no later process copies again.
    pub(crate) fn forgotten() -> Self {
        Self::default()
    }

    /// Reads what an earlier copy of the layer at `root` opened up, and goes on with the same file.
    pub(crate) fn of_layer(root: &Workspace) -> Result<Self, IoFailure> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(root.fd(), FILE, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.doing("open", FILE.as_bytes())?);
        let modes = read(&file).doing("read", FILE.as_bytes())?;
        Ok(Self { modes, file: Some(file) })
    }

    /// Returns the mode that the run gave to an entry, and notes it if the copy will have to open the entry up.
    pub(crate) fn mode(&mut self, path: &[u8], meta: &Meta) -> io::Result<u32> {
        let needed = match meta.kind {
            EntryType::Directory => 0o700,
            EntryType::File => 0o400,
            _ => return Ok(meta.mode),
        };
        if let Some(mode) = self.modes.get(path)
            && (meta.mode == *mode || meta.mode == *mode | needed)
        {
            return Ok(*mode);
        }
        if meta.mode & needed != needed && !rustix::process::geteuid().is_root() {
            if let Some(file) = &mut self.file {
                let mut line = serde_json::to_vec(&Line { path: ByteText(path.to_vec()), mode: meta.mode })?;
                line.push(b'\n');
                file.write_all(&line)?;
                file.sync_data()?;
            }
            self.modes.insert(path.to_vec(), meta.mode);
        }
        Ok(meta.mode)
    }
}

fn read(mut file: &File) -> io::Result<HashMap<Vec<u8>, u32>> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(StateFileError::NotRegular.into());
    }
    if meta.len() > MAX_BYTES {
        return Err(StateFileError::TooLarge { max: MAX_BYTES }.into());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // The entry of a line that was cut off was not opened yet.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(whole as u64)?;
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice::<Line>(line).map(|one| (one.path.0, one.mode)).map_err(io::Error::from))
        .collect()
}
