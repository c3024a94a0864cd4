//! The `nexus` command: the composition root. Only this crate talks to people.
//!
//! ```text
//!  args ─▶ run:     places, workspace, plan ─▶ recover what crashed ─▶ record ─▶ layer ─▶ driver ─▶ pump ─▶ changes
//!                                                                                                    ─▶ report
//!       ─▶ doctor:  probe, trial run ─▶ what works here and what to do about the rest; --attack: hostile probes inside
//!       ─▶ explain, profile, trust: what a run may do, and who says so
//!       ─▶ changes: layers that wait for a decision
//!       ─▶ net: what may be reached, what was, and the egress alone
//!       ─▶ up, mothership, daemon: serve a fleet; login, territory, facility, directive: use one
//!       ─▶ warm:    a launcher process for later runs
//!       ─▶ receipt, log: signed statements about past runs
//!       ─▶ man, completions: this command line for man(1) and for shells
//! ```

#![forbid(unsafe_code)]

mod advice;
mod args;
mod changes;
mod completions;
mod diagnostics;
mod doctor;
mod failure;
mod fleet;
mod host;
mod log;
mod manual;
mod net;
mod notices;
mod profile;
mod receipt;
mod request;
mod run;
mod session;
mod terminal;
mod used_up;
mod warm;

use clap::Parser;
use nexus_runner::change_text;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = run::survive_file_limit() {
        let message = format!("the signals of this process cannot be set: {error}");
        return ExitCode::from(run::print_failure(&failure::Failure::refused("signals", message, ""), false));
    }
    let parsed = match args::Cli::try_parse() {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if let Err(failure) = diagnostics::start() {
        return ExitCode::from(run::print_failure(&failure, false));
    }
    let code = match parsed.command {
        args::Command::Run(run) => run::command(&run),
        args::Command::Explain(run) => profile::explain(&run),
        args::Command::Profile(profile) => profile::command(&profile),
        args::Command::Trust(trust) => profile::trust(&trust),
        args::Command::Untrust(untrust) => profile::untrust(&untrust),
        args::Command::Shell(run) => run::shell(*run),
        args::Command::Session(command) => session::command(command),
        args::Command::Doctor(doctor) => doctor::command(&doctor),
        args::Command::Changes(changes) => changes::command(&changes),
        args::Command::Receipt(receipt) => receipt::command(&receipt),
        args::Command::AttackPart { words } => doctor::attack::part(&words),
        args::Command::Net(net) => net::command(&net),
        args::Command::Log(log) => log::command(&log),
        args::Command::Warm(command) => warm::command(&command),
        args::Command::Fleet(command) => fleet::command(&command),
        args::Command::Man { folder } => manual::command(folder.as_deref()),
        args::Command::Completions { shell } => completions::command(shell),
    };
    ExitCode::from(code)
}

/// Prints help and version as they are, which are not errors; reports everything else as wrong use, in one line like
/// every other failure.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let help = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if help.contains(&error.kind()) {
        return match error.print() {
            Err(failed) if failed.kind() != std::io::ErrorKind::BrokenPipe => {
                ExitCode::from(run::print_failure(&run::not_written("the help", &failed), false))
            }
            _ if error.use_stderr() => ExitCode::from(nexus_model::exit::USAGE),
            // A reader such as head(1) has seen enough.
            _ => ExitCode::SUCCESS,
        };
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut message = String::new();
    for line in text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
    {
        let between = if message.is_empty() || line.trim().is_empty() {
            ""
        } else if message.ends_with(':') {
            " "
        } else {
            "; "
        };
        message = message + between + line.trim();
    }
    let failure =
        failure::Failure::usage("usage", message, "nexus --help and nexus run --help show what can be written");
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    ExitCode::from(run::print_failure(&failure, args::wanted_json(&arguments)))
}
