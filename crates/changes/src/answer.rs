//! Writes the answers of the commands.

use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;

/// Writes a part of the answer at once. A command that is killed afterwards has then reported what it did, and the next one cannot.
pub fn write_answer(text: &str) -> Result<(), Failure> {
    out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| failures::not_written("the answer", &error))
}
