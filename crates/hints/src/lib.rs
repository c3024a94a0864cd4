//! Advice at the end of a run, about limits of the sandbox that the command met and could not name, and about connections that
//! the egress blocked.
//!
//! ```text
//!  plan, last words, names asked for ─▶ for_run ─▶ Hint: a stable code and a sentence
//!  summary of the egress ─▶ blocked::lines ─▶ each destination with the flag that allows it
//! ```
//!
//! A hint changes nothing: neither the exit code nor what is committed. What comes from inside is cleaned before it
//! is shown.

#![forbid(unsafe_code)]

mod another;
pub mod blocked;
mod denied;
mod known_paths;
mod not_found;
mod not_shown;
mod nowhere;
mod perhaps;
#[cfg(test)]
mod scene;
mod script;
mod terminal;
mod unread_input;
mod until;
mod worktree;

use nexus_caller::profiles::tool_host;
use nexus_model::exit::NOT_FOUND;
use nexus_model::{ByteText, Plan};
use nexus_policy::profile::Toolchain;
use nexus_runner::live::last_words::LastWords;
use nexus_runner::live::names::AskedNames;
use nexus_runner::plan::direct::Direct;
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::run::report::RunReport;
use serde::Serialize;
use until::Until;

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// A stable word for programs.
    pub code: &'static str,
    /// The sentence for people.
    pub message: String,
    /// Names that the command asked for without a network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl Hint {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), names: Vec::new() }
    }
}

/// A run that has ended, and the choices of its user that advice depends on.
#[derive(Clone, Copy)]
pub struct Ended<'a> {
    /// The run, as the engine took it.
    pub run: &'a ResolvedRun,
    /// The report of the engine about its end.
    pub report: &'a RunReport,
    /// The command found an empty standard input, since the caller's is a terminal or a device and no flag passed it on.
    pub input_was_left: bool,
    /// Toolchains that profiles asked for.
    pub toolchains: &'a [Toolchain],
    /// The toolchains that the caller's PATH leads to were shown.
    pub shows_auto: bool,
}

/// Returns the advice for a run that has ended.
pub fn for_run(ended: Ended<'_>) -> Vec<Hint> {
    let Ended { run, report, .. } = ended;
    let (words, exit) = (&report.last_words, report.command_exit);
    let (mut hints, until) = (Vec::new(), Until::start());
    if let Some(message) = script::advice(&run.plan, report.not_started.as_ref()) {
        hints.push(Hint::new("script", message));
    } else if exit == NOT_FOUND {
        // What the host has says nothing about an image.
        let message = run.plan.image.is_none().then(|| not_found::advice(ended)).flatten();
        hints.extend(message.map(|message| Hint::new("not_found", message)));
    } else if report.not_started.is_none() {
        hints.extend(other_program(ended));
    }
    hints.extend(no_network(&report.names, &run.plan.argv));
    hints.extend(standard_input(ended));
    let opens_git = run.direct.as_ref().map(Direct::opens_git);
    if exit != 0 {
        match worktree::advice(&run.plan, words) {
            Some(message) => hints.push(Hint::new("worktree", message)),
            None => hints.extend(of_words(&run.plan, words, opens_git, until).or_else(|| {
                let message = not_shown::advice(&run.plan, &run.site.places.state, words, until)?;
                Some(Hint::new("not_shown", message))
            })),
        }
    }
    hints
}

/// Returns the advice that the last words of a command that failed give.
fn of_words(plan: &Plan, words: &LastWords, opens_git: Option<bool>, until: Until) -> Option<Hint> {
    if let Some((code, advice)) = perhaps::advice(words, plan.allow_ptrace, opens_git) {
        return Some(Hint::new(code, advice));
    }
    if perhaps::wanted_processes(words) {
        let pids = plan.limits.pids;
        let message = format!(
            "perhaps: the command reached its limit of {pids} processes and threads. Raise it with --pids {}.",
            pids.saturating_mul(4).min(1_000_000)
        );
        return Some(Hint::new("pids", message));
    }
    denied::advice(plan, words, until).map(|(code, message)| Hint::new(code, message))
}

/// Returns the advice for a command that ran another program than the caller's PATH has.
fn other_program(Ended { run, toolchains, shows_auto, .. }: Ended<'_>) -> Option<Hint> {
    let plan = &run.plan;
    let host = tool_host(plan.workspace.source.as_path(), run.network.is_some());
    let another = another::program(plan, &host, shows_auto)?;
    let (state, name) = (&run.site.places.state, plan.argv.first()?.as_path());
    let message = match &another.tool {
        Some(tool) => not_found::flag_after(&another.what, &host, toolchains, state, name, tool)?,
        None => format!("{}. Call it by its path.", another.what),
    };
    Some(Hint::new("another_program", message))
}

/// Names that are listed.
const MAX_SHOWN: usize = 5;

/// Returns the advice for a command that asked for names and had no network.
fn no_network(asked: &AskedNames, argv: &[ByteText]) -> Option<Hint> {
    let names = asked.names();
    let first = names.first()?;
    let shown = names.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match (names.len().saturating_sub(MAX_SHOWN), asked.has_more()) {
        (0, false) => String::new(),
        (more, false) => format!(" and {more} more"),
        (more, true) => format!(" and more than {more} more"),
    };
    // A package client needs more hosts than the one that it asked for first.
    let group = blocked::client_group(argv)
        .map_or_else(String::new, |group| format!("--allow-group {group} allows the hosts of your own settings; "));
    let message = format!(
        "the command asked for {shown}{more}, and the run has no network. {group}--allow {first} allows that host."
    );
    Some(Hint { names: names.to_vec(), ..Hint::new("no_network", message) })
}

/// Returns the advice for standard input that the command was not given: it holds data, or a terminal is wanted.
fn standard_input(Ended { run, report, input_was_left, .. }: Ended<'_>) -> Option<Hint> {
    let stdin = rustix::stdio::stdin();
    if !input_was_left {
        return None;
    }
    if unread_input::is_waiting(stdin) {
        let message = "standard input holds data that was not passed to the command. --stdin passes it on; < /dev/null \
                       leaves it out without this line.";
        return Some(Hint::new("input_not_passed", message));
    }
    let advice = rustix::termios::isatty(stdin).then(|| terminal::advice(&run.plan.argv, &report.last_words)).flatten();
    advice.map(|message| Hint::new("terminal", message))
}
