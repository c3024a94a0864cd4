//! Prints a report.

use super::Report;
use super::document::ToCaller;
use crate::args::RunArgs;
use crate::failures::{not_written, print_failure};
use crate::terminal::sink::write_to_caller;
use nexus_runner::live::output::Stream;
use std::io::{self, BufWriter, IsTerminal, Write};

impl Report {
    /// Prints it where it belongs and returns the exit code.
    pub fn print(&self, args: &RunArgs) -> u8 {
        let printed = if args.json {
            let mut out = BufWriter::with_capacity(1 << 16, ToCaller);
            let document = serde_json::to_writer(&mut out, &self.document(args)).map_err(io::Error::from);
            document.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
        } else {
            let text = self.text(args.verbose || (io::stderr().is_terminal() && !args.quiet), !args.quiet);
            write_to_caller(Stream::Err, text.as_bytes())
        };
        // The run itself is over and settled; only its description could not be delivered.
        match printed {
            Ok(()) => self.exit,
            Err(error) => print_failure(&not_written("the report of the run", &error), false).max(self.exit),
        }
    }
}
