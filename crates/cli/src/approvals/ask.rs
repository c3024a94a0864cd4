//! The question to a person, on the terminal of the session.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

/// A command inside a sandbox has no state directory of the caller; that it says so is clearer than an empty list.
pub fn refuse_inside() -> Result<(), Failure> {
    if std::env::var_os("CYBROS_NEXUS").is_some_and(|value| value == "1") {
        let message = "an answer is given outside of the sandbox";
        return Err(Failure::refused("inside", message, "Answer in a terminal of your own."));
    }
    Ok(())
}

/// Shows the request on the terminal of this session and reads the answer there, never from a pipe, which a program
/// could feed.
pub fn confirmed(text: &str) -> Result<bool, Failure> {
    let failed = |error: io::Error| {
        let message = format!("there is not a terminal to ask on: {error}");
        Failure::usage("ask", message, "Approve it in a terminal of your own.")
    };
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").map_err(failed)?;
    let question = format!("{text}approve exactly this? [y/N] ");
    terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
