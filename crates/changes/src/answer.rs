//! Writes the answers of the commands.

use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;

/// Writes a part of the answer at once: a command that is killed afterwards leaves nothing that could be named again.
pub fn write_answer(text: &str) -> Result<(), Failure> {
    out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| failures::not_written("the answer", &error))
}
