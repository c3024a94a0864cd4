//! Parses the most frequent command lines without building the clap description of all commands.
//!
//! clap builds the description of every command and flag before it looks at the first word. That takes a third of a
//! millisecond and sixty pages of memory, which the processes of a sandbox copy again. `nexus run` and
//! `nexus --version` are parsed with their own part of it. What does not parse here, mistakes and requests for help
//! among it, is parsed again with the whole description, so that each message has one source.

use crate::args::{Cli, Command, RunArgs};
use clap::{Args, FromArgMatches, Parser};
use std::ffi::OsString;

const PROGRAM: &str = "nexus";
const RUN: &str = "run";

/// Parses a command line, whose first word is the name of the program.
pub fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    match arguments {
        [_, first, ..] if first == RUN => {
            if let Some(run) = run(&arguments[1..]) {
                return Ok(Cli { command: Command::Run(Box::new(run)) });
            }
        }
        [_, only] if only == "--version" || only == "-V" => version(arguments)?,
        _ => {}
    }
    Cli::try_parse_from(arguments)
}

/// Parses `run` and what follows it. Returns `None` for a line that needs the whole description.
fn run(arguments: &[OsString]) -> Option<RunArgs> {
    let matches = RunArgs::augment_args(clap::Command::new(RUN)).try_get_matches_from(arguments).ok()?;
    RunArgs::from_arg_matches(&matches).ok()
}

/// Prints nothing itself: clap returns the text of the version as an error.
fn version(arguments: &[OsString]) -> Result<(), clap::Error> {
    let program = clap::Command::new(PROGRAM).version(env!("CARGO_PKG_VERSION"));
    program.try_get_matches_from(arguments).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("nexus").chain(line.split_whitespace()).map(OsString::from).collect()
    }

    /// The outcome of a parse, as text.
    fn said(parsed: Result<Cli, clap::Error>) -> String {
        match parsed {
            Ok(cli) => format!("{cli:?}"),
            Err(error) => format!("{:?} {}", error.kind(), error.render()),
        }
    }

    #[test]
    fn a_frequent_command_line_means_what_the_whole_description_makes_of_it() {
        let lines = [
            "run -- /bin/true",
            "run /bin/true --not-a-flag",
            "run --direct --direct-git --json -- make -j2",
            "run --profile rust --profile node --memory 512M --cpus 1.5 --timeout 10m -- cargo test",
            "run --ro /a --rw /b:/c --env A=1 --env B --hide *.key --net off --publish 8080:80 -- x",
            "run -qt --shell ls",
            "run --changes review --protect a* --require network --name n --detach -- x",
            "--version",
            "-V",
            // Mistakes and help.
            "run",
            "run --",
            "run --help",
            "run -h",
            "run --version",
            "run -V",
            "run --driect -- x",
            "run --memory much -- x",
            "run --direct --changes commit -- x",
            "run --direct-git -- x",
            "run --json --json -- x",
            "run --changes never -- x",
            "runn -- x",
            "--version run",
            "--verison",
            "",
        ];
        for line in lines {
            let arguments = words(line);
            assert_eq!(said(parse(&arguments)), said(Cli::try_parse_from(&arguments)), "nexus {line}");
        }
    }

    #[test]
    fn a_frequent_command_line_needs_no_description_of_the_others() {
        assert!(run(&words("run -- /bin/true")[1..]).is_some());
        assert!(run(&words("run --driect -- x")[1..]).is_none(), "the whole description says what is wrong");
        let error = version(&words("--version")).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayVersion);
    }
}
