//! Prints the answers of the commands.

use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;

/// Prints the answer, or why there is none.
pub fn print(result: Result<String, Failure>) -> u8 {
    match result {
        Ok(text) => match out::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
            Ok(()) => 0,
            Err(error) => failures::print_failure(&failures::not_written("the answer", &error), false),
        },
        Err(failure) => failures::print_failure(&failure, false),
    }
}
