//! Keeps what is known of a layer's run in the layer's directory.
//!
//! ```text
//!  run.json   written with the layer, before the command starts
//!    ├─ the run was killed: rewritten with the reason, and the layer waits for a review
//!    └─ the layer is thrown away: renamed to run.gone first, so that a half-removed layer never looks like a review
//! ```

use crate::state::container::ContainerId;
use crate::state::identity::DirectoryId;
use nexus_layer::{FsTime, LayerMode, LayerOrigin, disk::state_file};
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Describes the run of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNote {
    /// Names the workspace of the layer.
    pub workspace: ByteText,
    /// The identity of that directory.
    #[serde(rename = "folder")]
    pub directory: DirectoryId,
    /// Holds the command and its arguments.
    pub argv: Vec<ByteText>,
    /// Names that were protected besides those that always are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Describes the making of the layer; version 0.1 did not write it.
    #[serde(default)]
    pub origin: Option<LayerOrigin>,
    /// The boot of the machine in which the run started.
    #[serde(default)]
    pub boot: Option<String>,
    /// The container in which the run started; older versions did not write it.
    #[serde(default)]
    pub container: Option<ContainerId>,
    /// True if the layer was in memory, so that a killed run leaves nothing of it.
    #[serde(default)]
    pub in_memory: bool,
    /// True if the changes were to be thrown away at the end of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discards: bool,
    /// Says, if so, that the changes may be less than the command wanted to make.
    #[serde(default)]
    pub cut_short: Option<CutShort>,
}

/// Explains that a layer may hold less than its command wanted to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutShort {
    /// `nexus` was killed while the command ran.
    Killed,
    /// The machine went down, and files that were written shortly before may be empty.
    Rebooted,
    /// `nexus` ended before the run was settled, in another container, on another machine or in another boot.
    Unknown,
    /// The layer was in memory and only a part of it could be copied to the disk.
    Partial,
    /// The run ended before the kernel had taken its killed sandbox apart.
    Left,
}

impl CutShort {
    /// Says it in half a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Killed => "nexus was killed while the command ran, so the changes may be incomplete",
            Self::Rebooted => {
                "the machine went down while the command ran, so files may be incomplete or empty: look at each"
            }
            Self::Unknown => {
                "the command was cut short, and it is not known whether its machine went down, so files may be incomplete \
                 or empty: check each"
            }
            Self::Partial => {
                "the changes were in memory and only a part of them could be copied to the disk: deletions and renames are \
                 left out, and files may be missing"
            }
            Self::Left => "the command was killed, and the run ended before its sandbox was gone",
        }
    }
}

/// Names the file of the note.
const FILE: &str = "run.json";
/// Its name while the layer is being removed.
const GONE: &str = "run.gone";

impl RunNote {
    /// Writes the note of a layer that has none yet and that holds nothing.
    pub fn write_first(&self, layer: &Path) -> io::Result<()> {
        state_file::create_new(&layer.join(FILE))?.write_all(&self.text()?)
    }

    /// Writes the note so that it is the old or the new one after a crash of this process.
    pub fn write(&self, layer: &Path) -> io::Result<()> {
        state_file::replace(&layer.join(FILE), &self.text()?, false)
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::other)
    }

    /// Returns how the layer was made. A layer of version 0.1 was made just before its note was written.
    pub fn origin(&self, layer: &Path) -> io::Result<LayerOrigin> {
        if let Some(origin) = &self.origin {
            return Ok(origin.clone());
        }
        let written = std::fs::symlink_metadata(layer.join(FILE))?;
        let started = FsTime { sec: written.mtime(), nsec: u32::try_from(written.mtime_nsec()).unwrap_or_default() };
        let mode = if rustix::process::geteuid().is_root() { LayerMode::Root } else { LayerMode::User };
        Ok(LayerOrigin::guessed(mode, started))
    }

    /// Says why a layer that its run left behind may be incomplete. Another boot id is a reboot only where the run
    /// started in this very container: another one may have a boot id of its own.
    pub fn cut_by_kill(&self) -> CutShort {
        let (Some(then), Some(now)) = (&self.boot, &boot_id()) else { return CutShort::Unknown };
        match () {
            () if then == now && self.was_left() => CutShort::Left,
            () if then == now => CutShort::Killed,
            () if self.container.as_ref().is_some_and(ContainerId::is_certainly_here) => CutShort::Rebooted,
            () => CutShort::Unknown,
        }
    }

    /// Reports whether the run ended before its sandbox was gone.
    pub fn was_left(&self) -> bool {
        self.cut_short == Some(CutShort::Left)
    }
}

/// Reads the note of a layer; `None` when there is none. An error names the file.
pub fn read(layer: &Path) -> io::Result<Option<RunNote>> {
    read_as(&layer.join(FILE))
}

/// Reads the note of a layer that is being removed.
pub fn read_gone(layer: &Path) -> io::Result<Option<RunNote>> {
    read_as(&layer.join(GONE))
}

fn read_as(path: &Path) -> io::Result<Option<RunNote>> {
    let text = match state_file::read(path, state_file::MAX_NOTE) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other,
    };
    let note = text.and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
    note.map(Some).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Reports whether a layer is being removed.
pub fn is_going(layer: &Path) -> io::Result<bool> {
    is_there(&layer.join(GONE))
}

fn is_there(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Marks a layer as one that is being removed. A layer without a note has no mark to make.
pub fn mark_gone(layer: &Path) -> io::Result<()> {
    match std::fs::rename(layer.join(FILE), layer.join(GONE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Something else has the name of the mark, and is one as well.
        Err(_) if is_going(layer)? => Ok(()),
        other => other,
    }
}

/// Brings the note to the disk.
pub fn sync(layer: &Path) -> io::Result<()> {
    state_file::open(&layer.join(FILE))?.sync_all()?;
    File::open(layer)?.sync_all()
}

/// Identifies this boot of the machine.
pub fn boot_id() -> Option<String> {
    let mut text = [0u8; 64];
    let length = File::open("/proc/sys/kernel/random/boot_id").ok()?.read(&mut text).ok()?;
    Some(std::str::from_utf8(&text[..length]).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> RunNote {
        serde_json::from_str(r#"{"workspace":{"text":"/w"},"folder":{"inode":1,"born":[2,3],"device":null},"argv":[]}"#)
            .unwrap()
    }

    #[test]
    fn a_note_of_version_0_1_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let note = note();
        assert_eq!((&note.origin, note.in_memory, note.cut_short), (&None, false, None));
        note.write(dir.path()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(note.clone()));
        assert!(note.origin(dir.path()).unwrap().started.sec > 0);
    }

    #[test]
    fn a_layer_that_is_being_removed_has_no_note() {
        let dir = tempfile::tempdir().unwrap();
        note().write(dir.path()).unwrap();
        mark_gone(dir.path()).unwrap();
        assert_eq!((read(dir.path()).unwrap(), is_going(dir.path()).unwrap()), (None, true));
        assert!(read_gone(dir.path()).unwrap().is_some());
        mark_gone(dir.path()).unwrap();
    }

    #[test]
    fn another_boot_is_distinguished_from_a_kill() {
        let mut note = note();
        note.boot = boot_id();
        assert_eq!(note.cut_by_kill(), CutShort::Killed);
        note.cut_short = Some(CutShort::Left);
        assert_eq!(note.cut_by_kill(), CutShort::Left);
        note.boot = Some("another".to_owned());
        let here = ContainerId { machine: Some("a machine".to_owned()), ..ContainerId::here().unwrap() };
        note.container = ContainerId::here().ok().filter(|here| here.machine.is_some());
        let expected = if note.container.is_some() { CutShort::Rebooted } else { CutShort::Unknown };
        assert_eq!(note.cut_by_kill(), expected);
        note.container = Some(here);
        assert_eq!(note.cut_by_kill(), CutShort::Unknown, "another machine");
    }

    #[test]
    fn another_boot_id_in_another_container_is_not_a_reboot() {
        let mut note = note();
        assert_eq!(note.cut_by_kill(), CutShort::Unknown, "version 0.1");
        note.boot = Some("another".to_owned());
        assert_eq!(note.cut_by_kill(), CutShort::Unknown, "a version that wrote no container");
        let here = ContainerId::here().unwrap();
        note.container = Some(ContainerId { namespace: here.namespace + 1, ..here.clone() });
        assert_eq!(note.cut_by_kill(), CutShort::Unknown);
        note.container = Some(ContainerId { machine: None, ..here });
        assert_eq!(note.cut_by_kill(), CutShort::Unknown, "the machine has no id");
    }
}
