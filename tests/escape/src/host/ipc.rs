//! Objects of the host's IPC namespace: they have no file, and stay until a process removes them.

use super::leftovers::report;
use crate::keys::{SESSION_KEYRING, find_key};
use crate::sys::{self, address, call};
use std::io;

/// System V objects: what finds one by its key, and what removes it.
const KINDS: [(i64, i64); 3] =
    [(libc::SYS_shmget, libc::SYS_shmctl), (libc::SYS_msgget, libc::SYS_msgctl), (libc::SYS_semget, libc::SYS_semctl)];

/// The System V key of an attack's process and column.
pub fn key(pid: u32, column: &str) -> i32 {
    0x6e00_0000 | (pid as i32 & 0xffff) << 4 | column.len() as i32
}

/// The name of the POSIX queue of a token, as a program writes it.
pub fn queue(token: &str) -> String {
    format!("/{token}-queue")
}

/// Removes a System V object by the call for its kind.
pub fn remove(control: i64, id: i64) -> io::Result<()> {
    let position =
        if control == libc::SYS_semctl { [0, libc::IPC_RMID as usize] } else { [libc::IPC_RMID as usize, 0] };
    call(control, &[id as usize, position[0], position[1]]).map(drop).map_err(io::Error::from_raw_os_error)
}

/// Removes the POSIX queue of a token.
pub fn remove_queue(token: &str) -> io::Result<()> {
    let name = sys::c_path(queue(token).trim_start_matches('/'));
    let gone = call(libc::SYS_mq_unlink, &[address(name.as_bytes_with_nul())]);
    gone.map(drop).map_err(io::Error::from_raw_os_error)
}

/// Seconds after which the kernel removes a key that no process removed.
const KEY_TIMEOUT: usize = 1800;

/// Adds a key of this description to the session keyring.
pub fn add_key(description: &str) -> io::Result<()> {
    let (kind, name) = (c"user", sys::c_path(description));
    let (kind, name) = (address(kind.to_bytes_with_nul()), address(name.as_bytes_with_nul()));
    let failed = io::Error::from_raw_os_error;
    let id = call(libc::SYS_add_key, &[kind, name, name, description.len(), SESSION_KEYRING]).map_err(failed)?;
    let timeout = [libc::KEYCTL_SET_TIMEOUT as usize, id as usize, KEY_TIMEOUT];
    call(libc::SYS_keyctl, &timeout).map(drop).map_err(failed)
}

/// Removes a key.
pub fn remove_key(description: &str) -> io::Result<()> {
    let unlink = |id| call(libc::SYS_keyctl, &[libc::KEYCTL_UNLINK as usize, id as usize, SESSION_KEYRING]);
    find_key(description).and_then(unlink).map(drop).map_err(io::Error::from_raw_os_error)
}

/// Removes whatever is left of an attack that has ended. The kernel lets only its owner.
pub fn clear(token: &str, pid: u32, column: &str) {
    for (get, control) in KINDS {
        match call(get, &[key(pid, column) as usize, 0, 0]) {
            Ok(id) => report("a System V object", remove(control, id)),
            Err(libc::ENOENT) => {}
            Err(number) => report("a System V object", Err(io::Error::from_raw_os_error(number))),
        }
    }
    match remove_queue(token) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        gone => report("a message queue", gone),
    }
}
