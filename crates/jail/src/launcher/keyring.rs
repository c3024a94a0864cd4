//! The session keyring of everything that launches sandboxes: one for all sandboxes of a user, and empty.
//!
//! ```text
//!  join by name ─▶ own and empty? ─┬─ yes ─▶ let the owner find it       (the next launcher joins the same one)
//!                                  └─ no ──▶ join a nameless one         (another user's, or a process put a key into it)
//! ```
//! A sandbox has the session keyring of its launcher, and the keys of the caller must not be in it. One keyring for each
//! sandbox would use up the user's quota of 200 keys (keyrings(7)). The kernel joins the first keyring of a name that
//! grants search, whichever user owns it.

use crate::steps::{Faults, Step, StepError};
use std::ffi::CStr;
use std::io;

const JOIN_SESSION_KEYRING: libc::c_int = 1;
const SETPERM: libc::c_int = 5;
const DESCRIBE: libc::c_int = 6;
const READ: libc::c_int = 11;
const SESSION_KEYRING: libc::c_int = -3;

const NAME: &CStr = c"nexus-sandboxes";

/// All for its possessor; view, read, search and link for its owner; nothing for others (keyctl_setperm(3)). Without
/// search for the owner the next launcher would not find it.
const PERMISSIONS: libc::c_uint = 0x3f1b_0000;

/// Leaves the caller's session keyring.
pub fn join(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::JoinKeyring)?;
    match join_empty() {
        // A kernel without keyrings has none to leak.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map_err(|error| StepError::os(Step::JoinKeyring, error, "an empty session keyring")),
    }
}

fn join_empty() -> io::Result<()> {
    // SAFETY: the name is a C string; the call only changes which session keyring this process has.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, NAME.as_ptr()) })?;
    // One of another user may refuse even to be looked at.
    if is_own_and_empty().unwrap_or(false) {
        // SAFETY: plain numbers; changes the permissions of the keyring that was just joined.
        return check(unsafe { libc::syscall(libc::SYS_keyctl, SETPERM, SESSION_KEYRING, PERMISSIONS) }).map(drop);
    }
    // SAFETY: as the first call; a null name makes a new keyring.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) }).map(drop)
}

fn is_own_and_empty() -> io::Result<bool> {
    let mut text = [0u8; 256];
    // SAFETY: the kernel writes at most the length that is given into the buffer, which lives during the call.
    let length =
        check(unsafe { libc::syscall(libc::SYS_keyctl, DESCRIBE, SESSION_KEYRING, text.as_mut_ptr(), text.len()) })?;
    let described = text.get(..length).unwrap_or_default();
    // SAFETY: without a buffer the kernel only returns how long the list of keys is.
    let keys = check(unsafe {
        libc::syscall(libc::SYS_keyctl, READ, SESSION_KEYRING, std::ptr::null_mut::<libc::c_void>(), 0usize)
    })?;
    Ok(owner(described) == Some(rustix::process::geteuid().as_raw()) && keys == 0)
}

/// Returns the owner from `keyring;UID;GID;PERMISSIONS;NAME`.
fn owner(described: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(described).ok()?;
    let mut fields = text.trim_end_matches('\0').split(';');
    (fields.next()? == "keyring").then(|| fields.next()?.parse().ok()).flatten()
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_keyring_is_read_from_its_description() {
        assert_eq!(owner(b"keyring;1000;1000;3f1b0000;nexus-sandboxes\0"), Some(1000));
        for odd in [&b""[..], b"user;0;0;3f1b0000;x", b"keyring;-1;0;3f1b0000;x", b"keyring", b"\xff;0"] {
            assert_eq!(owner(odd), None, "{odd:?}");
        }
    }
}
