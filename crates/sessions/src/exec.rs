//! `nexus attach` and `nexus exec`.

use super::args::{AttachArgs, ExecArgs};
use super::documents;
use super::find::find;
use super::view::{Outcome, Part, View};
use crate::environment::{check_passed, no_name, secret_name};
use crate::failure::Failure;
use crate::notices::print;
use crate::policies;
use crate::signals::Signals;
use crate::terminal::keys::Watch;
use crate::terminal::out::write_unless_closed;
use crate::terminal::raw::{self, Raw};
use crate::terminal::sink::Show;
use crate::terminal::sink::Sink;
use nexus_model::ByteText;
use nexus_model::exit::SIGNAL_BASE;
use nexus_policy::document::PolicySet;
use nexus_runner::session::link::{Found, Link, broken, is_gone, lost};
use nexus_runner::session::store::{Condition, Entry};
use nexus_runner::session::wire::ClientMessage;
use nexus_terminal::Mode;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Runs `nexus attach` and returns the exit code.
pub fn attach(args: AttachArgs) -> Result<u8, Failure> {
    let (_, entry) = find(&args.session)?;
    let mut signals = Signals::catch().map_err(|error| terminal_failure(&error))?;
    let is_terminal = rustix::termios::isatty(rustix::stdio::stdin());
    let keys = entry.about.terminal && is_terminal;
    let size = keys.then(raw::size);
    let mut link =
        match Link::open(&entry, &ClientMessage::Attach { input: !args.no_stdin, size }, Some(&signals), &print)? {
            Found::Live(link) => link,
            Found::Interrupted(signal) => return Ok(SIGNAL_BASE.saturating_add(signal)),
            Found::Over(entry) => {
                let message = format!("the sandbox {} has ended", entry.about.id);
                return Err(Failure::refused(
                    "ended",
                    message,
                    format!("nexus logs {} shows what it printed", entry.about.id),
                ));
            }
        };
    let raw = if keys && !args.no_stdin { Some(enter(&mut signals)?) } else { None };
    let watch = raw.as_ref().map(|_| Watch::new(args.detach_keys));
    let part = if entry.about.terminal || args.no_stdin { Part::Shows } else { Part::Joins };
    let sink = Sink::new(false, None, None, show(args.raw, entry.about.terminal));
    let view = View::new(sink, !args.no_stdin, raw, watch, part);
    let outcome = view.talk(&mut link, &signals);
    conclude(&entry, outcome, true)
}

/// Runs `nexus exec` and returns the exit code.
pub fn exec(args: &ExecArgs) -> Result<u8, Failure> {
    let (_, entry) = find(&args.session)?;
    let mut signals = Signals::catch().map_err(|error| terminal_failure(&error))?;
    if args.tty && !rustix::termios::isatty(rustix::stdio::stdin()) {
        let message = "--tty needs a terminal, and standard input is none";
        return Err(Failure::usage("tty", message, "leave --tty out; --stdin passes standard input on"));
    }
    let policies = documents::that_hold_for(&entry.about)?;
    let words: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    policies::no_further_command(policies.effective(), &words)?;
    let input = args.stdin || args.tty;
    let ask = ClientMessage::Exec {
        argv: args.command.iter().cloned().map(ByteText::from).collect(),
        env: environment(args, &policies)?,
        cwd: args.cwd.clone().map(ByteText::from),
        terminal: args.tty.then(raw::size),
        input,
    };
    let mut link = match Link::open(&entry, &ask, Some(&signals), &print)? {
        Found::Live(link) => link,
        Found::Interrupted(signal) => return Ok(SIGNAL_BASE.saturating_add(signal)),
        Found::Over(entry) => {
            let message = format!("the sandbox {} has ended", entry.about.id);
            return Err(Failure::refused("ended", message, "start another with nexus run --detach"));
        }
    };
    let raw = if args.tty { Some(enter(&mut signals)?) } else { None };
    let sink = Sink::new(false, None, None, show(args.raw, args.tty));
    let outcome = View::new(sink, input, raw, None, Part::Owns).talk(&mut link, &signals);
    conclude(&entry, outcome, false)
}

fn enter(signals: &mut Signals) -> Result<Raw, Failure> {
    signals.and_terminal().and_then(|()| Raw::enter()).map_err(|error| terminal_failure(&error))
}

/// Chooses the part of the output that a terminal shows.
pub fn show(raw: bool, interactive: bool) -> Show {
    match (raw, interactive) {
        (true, _) => Show::Raw,
        (false, true) => Show::Filtered(Mode::Interactive),
        (false, false) => Show::Filtered(Mode::Plain),
    }
}

/// Returns the variables that the flags set or pass on, and the caller's TERM with a terminal.
fn environment(args: &ExecArgs, policies: &PolicySet) -> Result<Vec<(ByteText, ByteText)>, Failure> {
    let mut all = Vec::new();
    let term = args.tty.then(|| OsString::from("TERM"));
    for flag in term.iter().chain(&args.env) {
        let bytes = flag.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            None => (bytes, std::env::var_os(flag).map(|value| value.as_bytes().to_vec())),
        };
        if name.is_empty() {
            return Err(no_name(flag));
        }
        // A variable that the caller does not have is not set inside either.
        let Some(value) = value else { continue };
        let (name, value) = (ByteText(name.to_vec()), ByteText(value));
        if !bytes.contains(&b'=') && !args.env_secret.contains(flag) {
            check_passed(&name, &value)?;
        }
        all.push((name, value));
    }
    if !args.env_secret.is_empty() {
        args.env_secret.iter().try_for_each(|name| policies::secret(policies.effective(), name))?;
    }
    for flag in &args.env_secret {
        let name = secret_name(flag)?;
        all.extend(std::env::var_os(flag).map(|value| (name, ByteText::from(value))));
    }
    Ok(all)
}

/// Prints the messages about an outcome, and returns the exit code.
pub fn conclude(entry: &Entry, outcome: io::Result<Outcome>, can_come_back: bool) -> Result<u8, Failure> {
    match outcome {
        Ok(Outcome::Ended { exit, message }) => {
            tell(&message);
            Ok(exit)
        }
        Ok(Outcome::Refused { exit, message }) => {
            tell(&format!("nexus: {}\n", crate::failure::one_line(&message)));
            Ok(exit)
        }
        Ok(Outcome::Done) => Ok(0),
        Ok(Outcome::CutOff(signal)) => Ok(SIGNAL_BASE.saturating_add(signal)),
        Ok(Outcome::Left) => {
            if can_come_back {
                tell(&format!("nexus: left; nexus attach {} comes back\n", entry.about.id));
            }
            Ok(0)
        }
        Err(error) if is_gone(&error) => match entry.again()?.map(|entry| entry.condition) {
            Some(Condition::Ended(ending)) if can_come_back => {
                tell(&ending.message);
                Ok(ending.exit)
            }
            _ => Err(lost(entry).into()),
        },
        Err(error) => Err(broken(entry, error).into()),
    }
}

/// Writes a message for the user to standard error; an error of that write is ignored.
pub fn tell(message: &str) {
    write_unless_closed(&mut crate::terminal::out::stderr(), message.as_bytes()).ok();
}

fn terminal_failure(error: &io::Error) -> Failure {
    Failure::refused("terminal", format!("the terminal cannot be used: {error}"), "is it still there?")
}
