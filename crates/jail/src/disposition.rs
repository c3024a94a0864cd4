//! What this process does with a signal (sigaction(2)).

use std::io;

/// Reports whether a signal is ignored, as `nohup` and shells that start a job in the background arrange it for the
/// programs that they start.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: sigaction is plain data, for which all zeroes are a value.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only fills `found`, which lives during the call.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut found) } {
        0 => Ok(found.sa_sigaction == libc::SIG_IGN),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_told_from_others() {
        // Runtimes of Rust programs ignore SIGPIPE; nobody in this program changes SIGUSR2.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert_eq!(is_ignored(999).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
