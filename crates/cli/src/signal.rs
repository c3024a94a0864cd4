//! Signal numbers (signal(7)) in the width that frames and exit codes carry.

use signal_hook::consts;

/// Continues a stopped process.
pub const SIGCONT: u8 = consts::SIGCONT as u8;
/// The terminal is gone.
pub const SIGHUP: u8 = consts::SIGHUP as u8;
/// Ctrl-C.
pub const SIGINT: u8 = consts::SIGINT as u8;
/// Ends a process at once.
pub const SIGKILL: u8 = consts::SIGKILL as u8;
/// Ctrl-\.
pub const SIGQUIT: u8 = consts::SIGQUIT as u8;
/// Asks a process to end.
pub const SIGTERM: u8 = consts::SIGTERM as u8;
/// Ctrl-Z.
pub const SIGTSTP: u8 = consts::SIGTSTP as u8;
/// The terminal has another size.
pub const SIGWINCH: u8 = consts::SIGWINCH as u8;
