//! `nexus run --detach`: two processes of one program.
//!
//! ```text
//!  nexus run --detach                          nexus __supervise   (/proc/self/exe; same arguments)
//!    socketpair, nothing handed on ──start──▶    socket taken from stdin, /dev/null in its place
//!    waits                                       own session, so that no terminal's end is its own
//!                                                order (in the caller's folder) ─▶ chdir / ─▶ sandbox
//!    prints the id ◀──────────────Started────    command runs
//!    prints why not ◀─────────────Refused────    … or does not
//!                                                end: changes settled ─▶ ending.json ─▶ clients told ─▶ exit
//! ```

use crate::args::{Changes, RunArgs};
use crate::failure::Failure;
use crate::failures;
use crate::net::args::{Net, NetFlags};
use crate::run;
use crate::run::parsed_run::ParsedRun;
use crate::run::report::Report;
use crate::signals::Signals;
use crate::terminal::out;
use crate::used_up;
use nexus_runner::live::full_output::FullOutput;
use nexus_runner::live::ports::Ports;
use nexus_runner::session::closing::closing;
use nexus_runner::session::ending::bounded;
use nexus_runner::session::hub::Hub;
use nexus_runner::session::store::{ExitRecord, FORM, SessionInfo, Store, now_ms};
use nexus_runner::session::wire::{Launched, Reader, put};
use rustix::fd::OwnedFd;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Starts a detached sandbox and prints its id.
pub fn detach(args: &RunArgs) -> u8 {
    if args.changes == Some(Changes::Ask) {
        note("--changes ask is review here: no user can be asked when a detached sandbox ends");
    }
    if let Err(failure) = used_up::refuse_too_few_descriptors() {
        return failures::print_failure(&failure, args.json);
    }
    // The first word is `run`; the rest is what it was.
    match launch(std::env::args_os().skip(2)).map(|(launched, ..)| launched) {
        Ok(Launched::Started { id, published }) => {
            run::note_stale_files(args);
            for (host, inside) in published.iter().filter(|_| args.publish.iter().any(|publish| publish.picks())) {
                note(&format!("127.0.0.1:{host} leads to port {inside} inside"));
            }
            let name = args.name.as_ref().map(AsRef::as_ref);
            let text = if args.json {
                json!({ "schema": "nexus.session/1", "id": id, "name": name, "published": published }).to_string()
            } else {
                name.map_or_else(|| id.clone(), str::to_owned)
            };
            match out::write_unless_closed(&mut crate::terminal::out::stdout(), format!("{text}\n").as_bytes()) {
                Ok(()) => 0,
                Err(error) => failures::print_failure(&id_not_written(&id, &error), false),
            }
        }
        Ok(Launched::Refused { exit, text, json }) => {
            let written = out::write_unless_closed(&mut crate::terminal::out::stderr(), text.as_bytes());
            let printed =
                json.map(|json| out::write_unless_closed(&mut crate::terminal::out::stdout(), json.as_bytes()));
            // Where even this cannot be written, the exit code still tells.
            if written.is_err() || printed.is_some_and(|printed| printed.is_err()) { exit.max(1) } else { exit }
        }
        Err(error) => {
            let message = format!("the supervisor of the sandbox could not be started: {error}");
            let hint = "nothing was run; nexus doctor shows what works here";
            failures::print_failure(&Failure::refused("supervisor", message, hint), args.json)
        }
    }
}

/// Names the sandbox here: it runs, and its id was all that a caller had of it.
fn id_not_written(id: &str, error: &io::Error) -> Failure {
    let message = format!("The sandbox {id} runs, but its id could not be written: {error}");
    Failure::refused("output", message, format!("Look at where the output goes. nexus stop {id} ends the sandbox."))
}

fn note(text: &str) {
    // An error is ignored: standard error is the only place for the line.
    out::write_unless_closed(&mut crate::terminal::out::stderr(), format!("nexus: {text}\n").as_bytes()).ok();
}

/// Starts a supervisor with these flags and words of `nexus run`, and waits for its word. It outlives this process; with
/// `--ends-with-caller` it ends when the socket is closed.
pub fn launch(arguments: impl Iterator<Item = OsString>) -> io::Result<(Launched, Child, UnixStream)> {
    nexus_driver_namespace::hand_on_nothing()?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0("nexus")
        .arg("__supervise")
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (mut reader, mut buffer) = (Reader::default(), [0u8; 4096]);
    loop {
        if let Some(launched) = reader.next::<Launched>().map_err(io::Error::other)? {
            return Ok((launched, child, ours));
        }
        match ours.read(&mut buffer) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a word")),
            Ok(count) => reader.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Runs the supervisor, from its first step to its last, and returns the exit code.
pub fn supervise(mut args: RunArgs) -> u8 {
    let clock = Instant::now();
    args.detach = true;
    if args.no_network {
        args.net = NetFlags { mode: Some(Net::None), ..NetFlags::default() };
    }
    // Before this process has a session of its own: who asks for an approval is the caller.
    match crate::host::membership() {
        Ok(here) => args.asking_session = Some(here.session),
        Err(error) => {
            let message = format!("the session of the caller is not known: {error}");
            return failures::print_failure(&Failure::refused("supervisor", message, "Try it again."), args.json);
        }
    }
    if args.changes == Some(Changes::Ask) {
        args.changes = Some(Changes::Review);
    }
    let args = run::with_term(&args);
    let (launcher, signals) = match become_supervisor() {
        Ok(both) => both,
        Err(error) => {
            let message = format!("nexus run --detach starts this on its own: {error}");
            return failures::print_failure(&Failure::usage("usage", message, "use nexus run --detach"), false);
        }
    };
    let mut waiting = Some(launcher);
    let place = &mut waiting;
    let open = |parsed_run: &ParsedRun, full: Option<FullOutput>| open(&args, parsed_run, full, place);
    let (done, hub) = run::execute(&args, &signals, clock, open);
    let Some(mut hub) = hub else { return refused(&args, done, waiting) };
    match hub.launcher() {
        // The client got no report of a start, so the run counts as not started. Its directory is removed before the failure is reported.
        Some(launcher) => {
            let forgotten = hub.own.forget();
            let code = refused(&args, done, Some(launcher));
            if forgotten.is_err() { code.max(1) } else { code }
        }
        None => ended(&args, done, hub, &signals),
    }
}

/// A process that no terminal and no caller can reach by accident. What the caller gave as stdin is the way back to it.
fn become_supervisor() -> io::Result<(UnixStream, Signals)> {
    let launcher = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    // Not a socket: a user typed this command.
    rustix::net::sockopt::socket_type(&launcher)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    // Fails only for the first of a process group, which a process that was just started is not.
    rustix::process::setsid()?;
    Ok((launcher.into(), Signals::catch_all()?))
}

/// Makes the directory of the sandbox, when it is clear what will be run and before anything is started.
fn open(
    args: &RunArgs,
    parsed_run: &ParsedRun,
    full: Option<FullOutput>,
    launcher: &mut Option<UnixStream>,
) -> Result<Hub, Failure> {
    let ports = Ports::listen(&args.publish, &parsed_run.run.plan.host_ports)?;
    let asked = &parsed_run.run;
    let about = SessionInfo {
        version: FORM,
        id: asked.plan.run_id,
        name: args.name.clone(),
        command: asked.plan.argv.clone(),
        workspace: asked.plan.workspace.source.clone(),
        terminal: args.tty,
        published: ports.published(),
        pid: std::process::id(),
        created_ms: now_ms(),
        started_ms: None,
        layered: asked.direct.is_none(),
        workspace_at_start: Some(parsed_run.workspace_at_start),
    };
    let internal = |message: String| Failure::refused("supervisor", message, "nexus doctor shows what works here");
    // Every path is whole by now; from here no directory of the caller is kept open.
    std::env::set_current_dir("/").map_err(|error| internal(format!("the directory / cannot be entered: {error}")))?;
    let own = Store::open(&parsed_run.run.site.places, nexus_sessions::find::unreadable)?.create(about)?;
    let launcher = launcher.take().ok_or_else(|| internal("it was started twice".to_owned()))?;
    let hub = Hub::new(own, &parsed_run.run.plan, launcher, full, ports, crate::notices::print);
    Ok(hub.ending_with_launcher(args.ends_with_caller))
}

/// Reports to the launching command that the sandbox did not start, in the words of `nexus run`.
fn refused(args: &RunArgs, done: Result<Report, Failure>, launcher: Option<UnixStream>) -> u8 {
    let (exit, text, json) = match done {
        Ok(report) => (report.exit_code(), report.text(false, !args.quiet), report.json(args).to_string()),
        Err(failure) => (failure.exit, format!("{failure}\n"), failures::failure_document(&failure)),
    };
    let json = args.json.then(|| json + "\n");
    let mut bytes = Vec::new();
    let made = put(&mut bytes, &Launched::Refused { exit, text, json });
    // An error is ignored: the process that started the supervisor may have ended.
    match launcher.map(|mut launcher| launcher.write_all(&bytes)) {
        Some(Ok(())) if made.is_ok() => 0,
        _ => exit,
    }
}

/// Writes down how the run ended, and then reports it to the clients.
fn ended(args: &RunArgs, done: Result<Report, Failure>, mut hub: Hub, signals: &Signals) -> u8 {
    let ending = match done {
        Ok(report) => ExitRecord {
            exit: report.exit_code(),
            reason: Some(report.reason()),
            ended_ms: now_ms(),
            message: report.text(false, true),
            report: bounded(report.json(args)),
        },
        Err(failure) => ExitRecord {
            exit: failure.exit,
            reason: None,
            ended_ms: now_ms(),
            message: format!("{failure}\n"),
            report: serde_json::from_str(&failures::failure_document(&failure)).unwrap_or_default(),
        },
    };
    // On a full disk the exit code counts more than the output.
    let written = hub.own.ended(&ending, &hub.output()).or_else(|_| hub.own.ended(&ending, &[]));
    hub.end(ending);
    let answered = closing(&mut hub, signals);
    let closed = hub.own.close();
    u8::from(written.is_err() || answered.is_err() || closed.is_err())
}
