//! The `nexus` command: the composition root. It has the command line and runs; the other commands are crates of their own,
//! and all of them build on `nexus-caller`.
//!
//! ```text
//!  args ─▶ run:     places, workspace, plan ─▶ recover what crashed ─▶ record ─▶ layer ─▶ driver ─▶ pump ─▶ changes
//!                                                                                                    ─▶ report
//!       ─▶ doctor:  probe, trial run ─▶ what works here and what to do about the rest; --attack: hostile probes inside
//!       ─▶ explain, profile, policy, trust: what a run may do, and who says so
//!       ─▶ approvals: what a policy asks a person about
//!       ─▶ changes: layers that wait for a decision
//!       ─▶ net: what may be reached, what was, and the egress alone
//!       ─▶ up, mothership, daemon: serve a fleet; login, territory, facility, directive: use one
//!       ─▶ warm:    a launcher process for later runs
//!       ─▶ image:   images that take the place of the host's system
//!       ─▶ receipt, log: signed statements about past runs
//!       ─▶ man, completions: this command line for man(1) and for shells
//! ```

#![forbid(unsafe_code)]

mod approvals;
mod args;
mod bind_text;
mod completions;
mod diagnostics;
mod familiar;
mod frequent;
mod image;
mod live;
mod manual;
mod mcp;
mod net;
mod profile;
mod request;
mod run;
mod supervisor;

use nexus_caller::{
    advice, driver, environment, failure, failures, host, notices, policies, recovery, signals, terminal, used_up,
};
use nexus_runner::change_text;
use std::ffi::OsString;
use std::process::ExitCode;

/// Bytes of stack that the command line and the plan of a run take, with room: with less, the process would end by SIGABRT.
const MIN_STACK: u64 = 256 << 10;

/// Its frame is small, so that it runs where the stack is too small for anything else.
fn main() -> ExitCode {
    match rustix::process::getrlimit(rustix::process::Resource::Stack).current {
        Some(bytes) if bytes < MIN_STACK => ExitCode::from(refuse_stack(bytes)),
        _ => command(),
    }
}

#[inline(never)]
fn refuse_stack(bytes: u64) -> u8 {
    let message =
        format!("the stack is limited to {} KiB (ulimit -s), and nexus needs {} KiB", bytes >> 10, MIN_STACK >> 10);
    let hint = "nothing was run; raise the limit: ulimit -s 8192";
    failures::print_failure(&failure::Failure::refused("stack", message, hint), false)
}

#[inline(never)]
fn command() -> ExitCode {
    keep_own_rights();
    if let Err(error) = signals::survive_file_limit() {
        let message = format!("the signals of this process cannot be set: {error}");
        return ExitCode::from(failures::print_failure(&failure::Failure::refused("signals", message, ""), false));
    }
    let arguments = help_as_flag(std::env::args_os().collect());
    let parsed = match frequent::parse(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error, &arguments),
    };
    if let Err(failure) = diagnostics::start() {
        return ExitCode::from(failures::print_failure(&failure, false));
    }
    let code = match parsed.command {
        args::Command::Run(run) if run.detach => supervisor::detach(&run),
        args::Command::Run(run) => run::command(&run),
        args::Command::Explain(run) => profile::explain::command(&run),
        args::Command::Profile(profile) => profile::command::command(&profile),
        args::Command::Policy(policy) => profile::policy_command::command(&policy),
        args::Command::Approvals(approvals) => approvals::command(&approvals),
        args::Command::Trust(trust) => profile::trust_command::trust(&trust),
        args::Command::Untrust(untrust) => profile::trust_command::untrust(&untrust),
        args::Command::Shell(run) => run::shell(*run),
        args::Command::Session(command) => nexus_sessions::command(command),
        args::Command::Supervise(args) => supervisor::supervise(*args),
        args::Command::Doctor(doctor) => nexus_doctor::command(&doctor),
        args::Command::Changes(changes) => nexus_changes::command(&changes, &live::changes::OfCheckpoints),
        args::Command::Image(image) => image::command(&image),
        args::Command::Receipt(receipt) => nexus_history::receipts::command(&receipt),
        args::Command::AttackPart { words } => nexus_doctor::attack::part(&words),
        args::Command::Net(net) => net::command::command(&net),
        args::Command::Mcp(args) => mcp::command(&args),
        args::Command::Log(log) => nexus_history::log::command(&log),
        args::Command::Warm(command) => nexus_warm::command(&command),
        args::Command::Fleet(command) => nexus_fleet::command(&command),
        args::Command::Man { directory } => manual::command(directory.as_deref()),
        args::Command::Completions { shell } => completions::command(shell),
    };
    ExitCode::from(code)
}

/// Leaves this user the rights to what this process makes, whatever the umask says: without them a later command cannot read the
/// record of a run.
fn keep_own_rights() {
    use rustix::fs::Mode;
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask & !Mode::RWXU);
}

/// Returns the arguments with `help COMMAND` written as `COMMAND --help`.
fn help_as_flag(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// Returns what a person needs to know about the value of a flag beyond the values that it may have.
fn about_value(error: &clap::Error) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    argument.starts_with("--net <").then_some(
        "none has the sandbox's own loopback alone, allowlist what --allow and --allow-group name, unrestricted every public host",
    )
}

/// Returns the call that runs a command in a sandbox, for a word that is nearly no subcommand.
fn a_command(error: &clap::Error, words: &[OsString]) -> Option<String> {
    use clap::error::ContextKind;
    let all = words.strip_prefix(&[OsString::from("--")]).unwrap_or(words);
    let is_nearly_one = error.get(ContextKind::SuggestedSubcommand).is_some();
    let is_unknown = error.kind() == clap::error::ErrorKind::InvalidSubcommand && !is_nearly_one;
    let name = all.first()?.to_str().filter(|name| is_unknown && error.to_string().contains(&format!("'{name}'")))?;
    Some(format!("nexus run -- {name} runs a command in a sandbox; nexus --help shows what can be written"))
}

/// Returns what does the same here as a flag or a command of another tool.
fn of_other_tools(error: &clap::Error, words: &[OsString]) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, _) => familiar::command(words),
        (ErrorKind::UnknownArgument, Some(ContextValue::String(name))) => {
            let is_run = words.first().is_some_and(|word| word == "run" || word == "shell");
            familiar::flag(name).filter(|_| is_run)
        }
        _ => None,
    }
}

/// Names the help of the command that the words call.
fn help_of(words: &[OsString]) -> String {
    use clap::CommandFactory as _;
    let mut called = "nexus".to_owned();
    let mut command = &args::Cli::command();
    for word in words {
        let Some(next) = command.find_subcommand(word) else { break };
        called = called + " " + next.get_name();
        command = next;
    }
    match called.as_str() {
        "nexus" | "nexus run" => "nexus --help and nexus run --help show what can be written".to_owned(),
        _ => format!("{called} --help shows what can be written"),
    }
}

/// Prints help and version as they are, which are not errors; reports everything else as wrong use, in one line like
/// every other failure.
fn usage(error: &clap::Error, arguments: &[std::ffi::OsString]) -> ExitCode {
    use clap::error::ErrorKind;
    let help = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if help.contains(&error.kind()) {
        return match error.print() {
            Err(failed) if failed.kind() != std::io::ErrorKind::BrokenPipe => {
                ExitCode::from(failures::print_failure(&failures::not_written("the help", &failed), false))
            }
            _ if error.use_stderr() => ExitCode::from(nexus_model::exit::USAGE),
            // A reader such as head(1) has seen enough.
            _ => ExitCode::SUCCESS,
        };
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let words = arguments.get(1..).unwrap_or_default();
    let familiar = of_other_tools(error, words);
    let mut message = String::new();
    let ends = |line: &str| line.starts_with("Usage:") || line.starts_with("For more information");
    // What is like the word, or how to pass it on, leads away from what was meant.
    let is_misleading = |line: &str| familiar.is_some() && line.trim_start().starts_with("tip:");
    for line in text.lines().take_while(|line| !ends(line)).filter(|line| !is_misleading(line)) {
        let between = if message.is_empty() || line.trim().is_empty() {
            ""
        } else if message.ends_with(':') {
            " "
        } else {
            "; "
        };
        message = message + between + line.trim();
    }
    let hint = about_value(error).or(familiar).map(str::to_owned).or_else(|| a_command(error, words));
    let hint = hint.unwrap_or_else(|| help_of(words));
    let failure = failure::Failure::usage("usage", message, hint);
    ExitCode::from(failures::print_failure(&failure, args::wanted_json(words)))
}
