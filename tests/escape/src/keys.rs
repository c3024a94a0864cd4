//! Keys of the session keyring, which the suite leaves and the probes look for.

use crate::sys::{self, address, call};

/// The session keyring of this process, as keyctl(2) names it.
pub const SESSION_KEYRING: usize = -3_isize as usize;

/// Finds the key of this description in the session keyring.
pub fn find_key(description: &str) -> Result<i64, i32> {
    let (kind, name) = (c"user", sys::c_path(description));
    let (kind, name) = (address(kind.to_bytes_with_nul()), address(name.as_bytes_with_nul()));
    call(libc::SYS_keyctl, &[libc::KEYCTL_SEARCH as usize, SESSION_KEYRING, kind, name, 0])
}
