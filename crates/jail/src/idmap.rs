//! User namespaces that only carry an id map, for idmapped mounts (mount_setattr(2)).
//!
//! Started by root, a sandbox has an own host uid that owns nothing. So that the owner of a workspace can still be
//! the user inside, the workspace is mounted through a map from its owner to that uid; on disk the owner stays.

use crate::clone::{Cloned, clone_process};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};

/// A user namespace that maps file owner `uid`:`gid` to the host ids `to`.
pub fn namespace(uid: u32, gid: u32, to: (u32, u32)) -> io::Result<OwnedFd> {
    let (keeper, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = match clone_process(libc::CLONE_NEWUSER as u64, None)? {
        Cloned::Child => {
            // Only holds the namespace until the parent has opened it: reads until the parent closes its end.
            drop(held);
            let mut byte = [0u8; 1];
            let ended = rustix::io::read(&keeper, &mut byte);
            crate::clone::exit_now(i32::from(ended.is_err()));
        }
        Cloned::Parent(child) => child,
    };
    let opened = open_mapped(child.pid.as_raw_nonzero().get(), uid, gid, to);
    drop(held);
    child.wait()?;
    opened
}

fn open_mapped(pid: i32, uid: u32, gid: u32, to: (u32, u32)) -> io::Result<OwnedFd> {
    write_map(pid, "uid_map", &format!("{uid} {} 1", to.0))?;
    write_map(pid, "gid_map", &format!("{gid} {} 1", to.1))?;
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes one of the map files of a process; the kernel takes it in one write.
pub fn write_map(pid: i32, file: &str, map: &str) -> io::Result<()> {
    File::options().write(true).open(format!("/proc/{pid}/{file}"))?.write_all(map.as_bytes())
}
