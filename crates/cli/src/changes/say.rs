//! Writes the answers of the commands.

use crate::failure::Failure;
use crate::run;

/// Writes a part of the answer at once: a command that is killed afterwards leaves nothing that could be named again.
pub fn say(text: &str) -> Result<(), Failure> {
    run::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| run::not_written("the answer", &error))
}
