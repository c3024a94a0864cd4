//! Signals of this process: what it does with one (sigaction(2)), and a time in which none arrives (sigprocmask(2)).

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

/// Does `work` while this thread takes none of these signals. One that arrives meanwhile is delivered afterwards, by the
/// disposition that `work` left. Other threads of the process still take signals.
///
/// A handler that is made of several steps needs this: a signal between two of them would reach a part of it.
pub fn while_held<T>(signals: &[i32], work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let held = Held::begin(signals)?;
    let done = work();
    drop(held);
    done
}

/// Restores the signal mask that it found when it goes.
struct Held {
    before: libc::sigset_t,
}

impl Held {
    fn begin(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: a sigset_t is plain data, for which all zeroes are a value; `sigemptyset` fills it before it is used.
        let (mut wanted, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a set that lives during the call.
        unsafe { libc::sigemptyset(&raw mut wanted) };
        for signal in signals {
            // SAFETY: as above; a number that is not a signal is refused by the C library.
            if unsafe { libc::sigaddset(&raw mut wanted, *signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: both sets live during the call, which changes the mask of this thread alone.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before) } {
            0 => Ok(Self { before }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the kernel. The call cannot fail: its first argument is one of the three known ones.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_ignored_signal_is_distinguished_from_others() {
        // Runtimes of Rust programs ignore SIGPIPE; no code of this program changes SIGUSR2.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert_eq!(is_ignored(999).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    static CAUGHT: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: i32) {
        CAUGHT.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn a_held_signal_arrives_after_the_work() {
        let seen = while_held(&[libc::SIGUSR1], || {
            // SAFETY: raise(3) is for this thread alone; by default the signal would end the whole program.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
            // SAFETY: the handler only adds to an atomic number.
            unsafe { libc::signal(libc::SIGUSR1, count as *const () as libc::sighandler_t) };
            Ok(CAUGHT.load(Ordering::SeqCst))
        });
        assert_eq!((seen.unwrap(), CAUGHT.load(Ordering::SeqCst)), (0, 1));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        assert_eq!(CAUGHT.load(Ordering::SeqCst), 2, "the mask was not restored");
        let refused = while_held(&[999], || Ok(())).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
