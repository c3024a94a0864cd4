//! The files of secrets, in a file system in memory that is never swapped out and that nothing inside can write.
//!
//! ```text
//!  channel ──length, bytes, for each name of the plan──▶ ramfs (a mount that is attached nowhere) ──clone, read-only──▶ /run/secrets
//! ```
//! The values come before the first frame for the guest. They are not a part of the plan: a launcher that starts the sandbox never has them.

use crate::inside::rootfs::Root;
use crate::launch_message::fill;
use crate::mount_targets::below_root;
use crate::mounts::{self, Depth, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::request::Request;
use crate::steps::{AtStep, Step, StepError};
use nexus_channel::codec::{self, HEADER};
use nexus_model::plan::SECRETS;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// Receives the values and shows them. Without secrets it makes no call.
pub(super) fn place(request: &Request<'_>, root: &Root, channel: &OwnedFd) -> Result<(), StepError> {
    if request.plan.secrets.is_empty() {
        return Ok(());
    }
    request.setup.faults.check(Step::PlaceSecrets)?;
    let flags = NOSUID | NODEV | NOEXEC;
    // A tmpfs may be swapped out, and the option against that is not for user namespaces.
    let files = mounts::new_filesystem("ramfs", &[("mode", "0500")], flags as u32).at(Step::PlaceSecrets, "ramfs")?;
    for name in &request.plan.secrets {
        let value = receive(channel).at(Step::PlaceSecrets, name)?;
        write(&files, name, &value).at(Step::PlaceSecrets, name)?;
    }
    let shown = mounts::open_tree_fd(&files, RDONLY | flags, Depth::One).at(Step::PlaceSecrets, SECRETS)?;
    let place = root.place_for(below_root(Path::new(SECRETS)), true).at(Step::PlaceSecrets, SECRETS)?;
    mounts::attach(shown, place).at(Step::PlaceSecrets, SECRETS)
}

fn receive(channel: &OwnedFd) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut header = [0; HEADER];
    fill(channel, &mut header)?;
    let mut value = Zeroizing::new(vec![0; codec::payload_len(header).map_err(io::Error::other)?]);
    fill(channel, &mut value)?;
    Ok(value)
}

fn write(files: &OwnedFd, name: &str, value: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(files, name, flags, Mode::from_raw_mode(0o400))?;
    let mut rest = value;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
        rest = &rest[written..];
    }
    Ok(())
}
