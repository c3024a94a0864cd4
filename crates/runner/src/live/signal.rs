//! Signal numbers (signal(7)) in the width that frames and exit codes carry.

use signal_hook::consts;

/// Continues a stopped process.
pub const SIGCONT: u8 = consts::SIGCONT as u8;
/// Reports that the terminal is gone.
pub const SIGHUP: u8 = consts::SIGHUP as u8;
/// Interrupts a process, as Ctrl-C does.
pub const SIGINT: u8 = consts::SIGINT as u8;
/// Ends a process at once.
pub const SIGKILL: u8 = consts::SIGKILL as u8;
/// Ends a process with a core dump, as Ctrl-\ does.
pub const SIGQUIT: u8 = consts::SIGQUIT as u8;
/// Asks a process to end.
pub const SIGTERM: u8 = consts::SIGTERM as u8;
/// Stops a process, as Ctrl-Z does.
pub const SIGTSTP: u8 = consts::SIGTSTP as u8;
/// Reports that the terminal has another size.
pub const SIGWINCH: u8 = consts::SIGWINCH as u8;
