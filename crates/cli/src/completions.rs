//! `nexus completions`: what a shell offers after the words that stand there.
//!
//! clap_complete offers hidden commands and flags too (bash above all), so it is given a description without them. It
//! also gets the names of the profiles that are built in as values of `--profile`; other names can be typed as ever.

use crate::args::Cli;
use crate::failures::not_written;
use crate::failures::print_failure;
use crate::terminal::out::write_unless_closed;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use nexus_profiles::built_in_names;
use std::io;

/// `nexus completions`; the exit code.
pub fn command(shell: Shell) -> u8 {
    // Into memory first: the generator panics where its output cannot be written.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&Cli::command()), "nexus", &mut script);
    match write_unless_closed(&mut io::stdout(), &script) {
        Ok(()) => 0,
        Err(error) => print_failure(&not_written("the completion script", &error), false),
    }
}

/// Builds a copy of the command line without its hidden parts: clap cannot remove parts from a command.
fn offered(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).map(with_values))
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(offered));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}

fn with_values(argument: &Arg) -> Arg {
    let argument = argument.clone();
    if ["profile", "names"].contains(&argument.get_id().as_str()) {
        return argument.value_parser(PossibleValuesParser::new(built_in_names()));
    }
    argument
}
