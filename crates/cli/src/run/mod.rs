//! `nexus run`: one command, isolated, with its changes kept apart until it has ended.
//!
//! ```text
//!  parsed_run (flags ─▶ request ─▶ ResolvedRun) ─▶ recover what crashed ─▶ key ─▶ the engine: Prepared
//!      ─▶ attendant: this terminal, or the clients of a detached sandbox
//!      ─▶ the engine: Running ─▶ Finished ─▶ RunReport ─▶ report, for people and programs
//! ```
//! `frontend` has the parts of settling that need a person or a signal.

pub mod ask;
mod direct;
pub mod facility;
mod feeder;
mod foreground;
mod frontend;
pub mod input;
mod open_files;
pub mod parsed_run;
pub mod report;
pub mod secrets;
mod slow_end;

use crate::approvals::obtain::{AskedFiles, obtain, requester};
use crate::args::RunArgs;
use crate::driver;
use crate::failure::Failure;
use crate::failures::{INTERNAL_ADVICE, print_failure};
use crate::live::run as live;
use crate::notices::{print, tell};
use crate::profile::policy;
use crate::recovery::OfLocal;
use crate::signals::Signals;
use crate::terminal::raw::Raw;
use crate::terminal::sink::{Show, Sink};
use crate::used_up;
use foreground::Foreground;
use frontend::Terminal;
use nexus_driver_namespace::warm::WarmDriver;
use nexus_model::RunId;
use nexus_policy::document::Effective;
use nexus_runner::live::attendant::Attendant;
use nexus_runner::live::full_output::{FilePlace, FullOutput};
use nexus_runner::live::ports::Ports;
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::recover::clear;
use nexus_runner::run::finished::Finished;
use nexus_runner::run::prepared::Prepared;
use nexus_runner::run::running::Running;
use nexus_runner::run::surroundings::Surroundings;
use nexus_terminal::Mode;
use parsed_run::ParsedRun;
use report::Report;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Instant;

/// Runs it in the foreground and returns the exit code.
pub fn command(args: &RunArgs) -> u8 {
    match in_foreground(args) {
        Ok(report) => report.print(args),
        Err(failure) => print_failure(&failure, args.json),
    }
}

/// Says at the start of a sandbox that lives on that it does not follow the files outside. A layer keeps a file as it was
/// when the command first read it: an editor, git and other runs replace files, and their edits are not seen.
pub fn note_stale_files(args: &RunArgs) {
    if !args.is_direct() && !args.quiet {
        tell(
            "A file that was read inside stays as it was when it is edited outside. For a dev server or a watcher, add \
             --live, or --direct; --quiet leaves this line out.",
        );
    }
}

/// `nexus shell`: a shell on a terminal of its own, unless a command is given.
pub fn shell(mut args: RunArgs) -> u8 {
    args.tty = true;
    if args.detach {
        let message = "a detached shell has no user to talk to";
        let hint = "nexus run --detach --tty -- bash starts one, and nexus attach talks to it";
        return print_failure(&Failure::usage("shell", message, hint), args.json);
    }
    if args.command.is_empty() && args.shell.is_none() && args.image.is_some() {
        // The one shell that nearly every image has; the host's says nothing about it.
        args.command = vec!["/bin/sh".into()];
    }
    if args.command.is_empty() && args.shell.is_none() {
        let usable = |path: &std::path::Path| path.starts_with("/bin") || path.starts_with("/usr/bin");
        let wanted = std::env::var_os("SHELL").filter(|shell| usable(shell.as_ref()));
        let all = wanted.into_iter().chain(["/bin/bash".into()]);
        let found = all.into_iter().find(|shell| std::path::Path::new(shell).exists());
        args.command = vec![found.unwrap_or_else(|| "/bin/sh".into())];
    }
    if !args.json {
        note_stale_files(&args);
    }
    command(&args)
}

fn in_foreground(args: &RunArgs) -> Result<Report, Failure> {
    let clock = Instant::now();
    used_up::refuse_too_few_descriptors()?;
    // Before anything is made: a signal must find a handler that clears up.
    let mut signals = Signals::catch().map_err(|error| internal("signals", &error))?;
    if args.tty {
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            let message = "--tty needs a terminal, and standard input is none";
            return Err(Failure::usage(
                "tty",
                message,
                "Leave --tty out; a pipe or a file is passed on without a flag.",
            ));
        }
        signals.and_terminal().map_err(|error| internal("signals", &error))?;
    }
    let args = &with_term(args);
    let open = |known: &ParsedRun, full: Option<FullOutput>| {
        let ports = Ports::listen(&args.publish, &known.run.plan.host_ports)?;
        for (host, inside) in
            ports.published().into_iter().filter(|_| args.publish.iter().any(|publish| publish.picks()))
        {
            tell(&format!("127.0.0.1:{host} leads to port {inside} inside"));
        }
        if !args.publish.is_empty() && !args.tty {
            note_stale_files(args);
        }
        let show = match (args.raw, args.tty) {
            (true, _) => Show::Raw,
            (false, true) => Show::Filtered(Mode::Interactive),
            (false, false) => Show::Filtered(Mode::Plain),
        };
        let sink = Sink::new(args.json, known.max_output, full, show).held_by(known.hold.clone());
        let raw = if args.tty { Some(Raw::enter().map_err(|error| internal("the terminal", &error))?) } else { None };
        Ok(Foreground::new(sink, known.input, raw, ports))
    };
    execute(args, &signals, clock, open).0
}

/// Adds the caller's TERM for a command that has a terminal, unless a flag says otherwise.
pub fn with_term(args: &RunArgs) -> RunArgs {
    let mut args = args.clone();
    if args.tty {
        args.env.insert(0, "TERM".into());
        if !args.no_prompt {
            args.env.splice(1..1, prompt(&args.command));
        }
    }
    args
}

/// Returns the variable with which a shell on a terminal says that it is inside; `None` for another command. Its own settings, if a profile
/// shows any, win over it, and so does --env PS1.
fn prompt(command: &[OsString]) -> Option<OsString> {
    let [shell, words @ ..] = command else { return None };
    // One that runs a script or a text has no prompt.
    let is_plain =
        words.iter().all(|word| ["-i", "-l", "--norc", "--noprofile", "--login"].iter().any(|known| word == known));
    let name = std::path::Path::new(shell).file_name()?.to_str()?;
    let prompt = match name {
        "bash" => r"(nexus) \w\$ ",
        "zsh" => "(nexus) %~%# ",
        "sh" | "dash" | "ksh" => "(nexus) $ ",
        _ => return None,
    };
    is_plain.then(|| format!("PS1={prompt}").into())
}

/// Runs the command for the attendant that `open` makes. Returns the attendant too, if the run came that far.
pub fn execute<C: Attendant>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&ParsedRun, Option<FullOutput>) -> Result<C, Failure>,
) -> (Result<Report, Failure>, Option<C>) {
    let mut caller = None;
    let done = reported(args, signals, clock, open, &mut caller);
    (done, caller)
}

fn reported<C: Attendant>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&ParsedRun, Option<FullOutput>) -> Result<C, Failure>,
    caller: &mut Option<C>,
) -> Result<Report, Failure> {
    let parsed_run = ParsedRun::read(args)?;
    let ParsedRun { run, uid_base, policies, input, .. } = &parsed_run;
    let uid_base = *uid_base;
    let local = driver::with_uid_base(uid_base);
    // A detached sandbox outlives many launchers, and its supervisor is its parent.
    let driver = if args.detach {
        WarmDriver::cold(local)
    } else {
        nexus_warm::launcher::driver_of(local, uid_base, &run.site.places)
    };
    let here = run.plan.workspace.source.as_path();
    let remains = OfLocal(driver.local());
    clear::before_run(&run.site.places, &remains, here, run.site.id, &print)?;
    let issuer = crate::advice::receipts::open_issuer(&run.site.places)?;
    let asker = args.net.ask.map(|_| requester(args)).transpose()?;
    // A command that has the terminal draws on it.
    let says = !args.tty && !args.detach && !args.quiet;
    let side = crate::net::ask::side(run, parsed_run.hold.as_ref(), asker, says.then_some(tell))?;
    let frontend = Terminal { signals, driver: driver.local() };
    let around = Surroundings {
        frontend: &frontend,
        recovery: &frontend,
        interrupts: signals,
        was_ended: crate::terminal::out::ended_flag(),
    };
    let files = asked_files(args, run, policies)?;
    live::refuse_unfinished(run)?;
    // Right before the start: a use is not spent on a run that something else refuses.
    obtain(policies, run, *input, args, &files)?;
    // Nothing refuses the run any more, and nothing of it is made: a program that has a secret may ask a person.
    let secrets = secrets::fetch(run, &|| !nexus_runner::settle::frontend::Frontend::is_ended(&frontend))?;
    let mut prepared = Prepared::new(run, &driver, issuer, side, around, clock)?;
    prepared.give_secrets(secrets);
    // Again: an undo may have been killed while this run waited for it.
    let live = match live::refuse_unfinished(run).and_then(|()| live::begin(args, run, signals)) {
        Ok(live) => live,
        Err(failure) => {
            return Err(match prepared.give_up() {
                Ok(()) => failure,
                Err(second) => failure.and_then(&second.into()),
            });
        }
    };
    if let Some(live) = &live {
        prepared.note_checkpoint(live.checkpoint().to_owned());
    }
    let made = made_files(files, run.plan.run_id, args.full_output_most);
    let opened = made.and_then(|(full, copy)| Ok((open(&parsed_run, full)?, copy)));
    let (attendant, receipt_copy) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            return Err(match prepared.give_up() {
                Ok(()) => failure,
                Err(second) => failure.and_then(&second.into()),
            });
        }
    };
    let attendant = caller.insert(attendant);
    let running = match Running::start(prepared) {
        Ok(running) => running,
        Err(error) => {
            // Nothing ran that could be undone.
            if let Some(live) = live {
                live.forget();
            }
            return Err(error.into());
        }
    };
    let finished = Finished::attend(running, attendant)?;
    let end = nexus_facility::checkpoints::clock();
    let settled = finished.settle();
    let ended = live.map(|live| live.end(args, run, end, signals));
    match settled {
        Ok(report) => {
            let mut report = Report::new(&parsed_run, report, receipt_copy, !args.quiet);
            if let Some(Err(failure)) = ended {
                report.note(format!("the state that the run left was not kept: {}", failure.text()));
            }
            if !args.quiet {
                unset(&args.env, |name| std::env::var_os(name).is_some()).for_each(|line| report.note(line));
            }
            if let (true, Some(why)) = (args.verbose, driver.passed_over()) {
                report.note(format!("the sandbox was started without the warm launcher: {why}"));
            }
            Ok(report)
        }
        Err(failed) => {
            let mut failure = Failure::from(failed.error);
            if let Some(Err(second)) = ended {
                failure = failure.and_then(&second);
            }
            let copied = failed.receipt.map(|issued| report::copied(issued, receipt_copy));
            Err(match copied {
                Some(Err(second)) => failure.and_then(&second),
                Some(Ok(_)) | None => failure,
            })
        }
    }
}

/// Finds the places of the files that `--full-output` and `--receipt` ask for, as far as the policies let them be written.
fn asked_files(args: &RunArgs, run: &ResolvedRun, policies: &Effective) -> Result<AskedFiles, Failure> {
    let find = |flag: &str, path: &Option<PathBuf>| -> Result<Option<FilePlace>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let place = FilePlace::find(flag, path, run.plan.workspace.source.as_path())?;
        policy::file(policies, &place)?;
        Ok(Some(place))
    };
    let full_output = find("--full-output", &args.full_output)?;
    Ok(AskedFiles { full_output, receipt: find("--receipt", &args.receipt)? })
}

/// Makes these files.
fn made_files(
    files: AskedFiles,
    run: RunId,
    most: Option<u64>,
) -> Result<(Option<FullOutput>, Option<FullOutput>), Failure> {
    let make = |place: Option<FilePlace>| place.map(|place| FullOutput::create(place, run)).transpose();
    let full = make(files.full_output)?.map(|full| full.at_most(most));
    Ok((full, make(files.receipt)?))
}

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::refused("internal", format!("{what}: {error}"), INTERNAL_ADVICE)
}

/// Returns a line for each variable that is to be passed on and that the caller does not have.
fn unset(flags: &[OsString], is_set: impl Fn(&OsStr) -> bool) -> impl Iterator<Item = String> {
    let missing = flags.iter().filter(move |flag| !flag.as_bytes().contains(&b'=') && !is_set(flag));
    missing.map(|flag| format!("{} is not set here, so that --env passed nothing on", flag.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_no_shell_has_no_prompt() {
        let of = |words: &[&str]| prompt(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for shell in [&["bash"][..], &["/bin/bash", "-i"], &["/usr/bin/zsh"], &["sh"]] {
            assert!(of(shell).is_some_and(|set| set.to_string_lossy().starts_with("PS1=(nexus) ")), "{shell:?}");
        }
        for other in [&["make"][..], &["bash", "-c", "ls"], &["sh", "script.sh"], &["bashful"], &[]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_variable_that_is_not_there_is_named() {
        let flags = ["SET", "MISSING", "MADE=1"].map(OsString::from);
        let lines: Vec<String> = unset(&flags, |name| name == "SET").collect();
        assert_eq!(lines, ["MISSING is not set here, so that --env passed nothing on"]);
    }
}
