//! Prints the answers of commands.

use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;

/// Prints the answer of a command.
pub fn print(text: &[u8]) -> Result<u8, Failure> {
    match out::write_unless_closed(&mut crate::terminal::out::stdout(), text) {
        Ok(()) => Ok(0),
        Err(error) => Err(failures::not_written("the answer", &error)),
    }
}

/// Prints a document on one line.
pub fn print_json(document: &impl serde::Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string(document).map_err(|error| {
        Failure::refused("internal", format!("the answer cannot be written: {error}"), failures::INTERNAL_ADVICE)
    })?;
    print(format!("{text}\n").as_bytes())
}
