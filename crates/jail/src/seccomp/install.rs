//! Handing a filter to the kernel.

use std::io;

use libc::sock_filter;

/// Puts the calling thread, and everything it starts from now on, under the
/// filter, for good. A [`super::Program`] dereferences to the slice.
///
/// The caller must have set no_new_privs (or hold CAP_SYS_ADMIN), otherwise
/// the kernel answers EACCES: a filter could mislead a set-user-id program
/// (seccomp(2)). Filters add up, so an earlier one stays in force. Threads that
/// already run are not covered; install before any is started.
///
/// Allocates nothing, so it may be called between fork and exec.
///
/// # Errors
/// What seccomp(2) says; EINVAL for an empty program or one of more than 4096
/// instructions. After an error nothing is filtered and the caller must stop.
pub fn install(filter: &[sock_filter]) -> io::Result<()> {
    // Never a shortened filter: the length field has 16 bits.
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` points to `len` valid instructions that live until the
    // call returns; the kernel copies them and does not write through the
    // pointer (copy_from_user in seccomp_prepare_user_filter).
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&program)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
