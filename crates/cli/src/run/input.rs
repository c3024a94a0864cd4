//! Selects how the caller's standard input reaches the command.

use nexus_runner::live::input::can_be_left;
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, OFlags};

/// The way of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The caller asked for an empty one.
    Empty,
    /// It is a terminal or a device, and no flag passes it on: the command finds an empty one.
    NotPassed,
    /// The command gets it, and the caller keeps what the command does not read.
    AsRead,
    /// This process reads it and passes it on: it is a terminal or a device, of which no byte can be left.
    Ahead,
}

/// The flags that decide about standard input.
#[derive(Debug, Clone, Copy, Default)]
pub struct InputFlags {
    /// The command has a terminal of its own (`--tty`).
    pub tty: bool,
    /// Input is read ahead where it cannot be left (`--stdin`).
    pub stdin: bool,
    /// The command gets an empty input (`--no-stdin`).
    pub no_stdin: bool,
}

impl Input {
    /// Selects the way for a run in the foreground.
    pub fn of(flags: InputFlags, stdin: BorrowedFd<'_>) -> Self {
        match flags {
            InputFlags { tty: true, .. } => Self::Ahead,
            InputFlags { no_stdin: true, .. } => Self::Empty,
            _ if can_be_left(stdin) => Self::AsRead,
            InputFlags { stdin: true, .. } => Self::Ahead,
            InputFlags { .. } => Self::NotPassed,
        }
    }
}

/// Returns why nothing can be read from standard input, where `--stdin` asks for it.
pub fn unreadable(stdin: BorrowedFd<'_>) -> Option<&'static str> {
    let Ok(flags) = rustix::fs::fcntl_getfl(stdin) else { return Some("it is closed") };
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
        return Some("it is open for writing only");
    }
    match rustix::fs::fstat(stdin).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => Some("it is a directory"),
        Ok(_) => None,
        Err(_) => Some("it cannot be looked at"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_pipe_is_passed_on_and_a_device_is_not() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let device = std::fs::File::open("/dev/zero").unwrap();
        let none = InputFlags::default();
        let (forced, without) = (InputFlags { stdin: true, ..none }, InputFlags { no_stdin: true, ..none });
        let of = |flags| (Input::of(flags, read.as_fd()), Input::of(flags, device.as_fd()));
        assert_eq!(of(none), (Input::AsRead, Input::NotPassed));
        assert_eq!(of(forced), (Input::AsRead, Input::Ahead));
        assert_eq!(of(without), (Input::Empty, Input::Empty));
        assert_eq!(Input::of(none, write.as_fd()), Input::NotPassed, "the end for writing");
    }
}
