//! Identifies the container of a process by its machine and its pid namespace.
//!
//! A boot id identifies neither: a container may have one of its own, so that another one is not a sign of a reboot.

use nexus_layer::disk::state_file;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identifies the container in which a process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerId {
    /// Inode of the pid namespace in which process numbers count.
    pub namespace: u64,
    /// The id of the machine; `None` where it has none.
    #[serde(default)]
    pub machine: Option<String>,
}

impl ContainerId {
    /// Identifies the container of this process.
    pub fn here() -> io::Result<Self> {
        Ok(Self { namespace: std::fs::metadata("/proc/self/ns/pid")?.ino(), machine: machine_id() })
    }

    /// Reports whether this process runs in the container for certain: numbers of namespaces repeat on other machines.
    #[must_use]
    pub fn is_certainly_here(&self) -> bool {
        self.machine.is_some() && Self::here().is_ok_and(|here| here == *self)
    }
}

/// Returns the id of the machine; `None` where it has none.
pub fn machine_id() -> Option<String> {
    let text = state_file::read(Path::new("/etc/machine-id"), 64).ok()?;
    // An image has an empty file, or this word, until its first boot (machine-id(5)).
    let text = String::from_utf8(text).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty() && id != "uninitialized")
}
