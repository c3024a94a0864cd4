//! `nexus run`: one command, isolated, with its changes kept apart until it has ended.
//!
//! ```text
//!  order (flags → plan) ─▶ recover what crashed ─▶ record ─▶ layer ─▶ start ─▶ pump ─▶ settle changes ─▶ report
//!                                                     └──── any error from here on: undo, then say why ────┘
//! ```

mod alone;
mod ask;
mod caller;
mod disk;
mod folder;
mod foreground;
mod full_output;
mod inside;
mod nowait;
mod order;
mod output;
mod ports;
mod pump;
mod record;
pub mod recover;
mod relay;
mod report;
mod settle;
mod signals;
mod sink;
mod tally;

pub use alone::lock;
pub use caller::{Caller, Heard, Watched};
pub use folder::FolderId;
pub use full_output::FullOutput;
pub use inside::Inside;
pub use order::{Order, changes as changes_of, check_patterns, refuse_what_is_not_here};
pub use output::Stream;
pub use ports::{PortToken, Ports, Publish};
pub use pump::{pipe, write_unless_closed};
pub use record::{Content, Record};
pub use report::{Report, failure_document, not_written, print_failure};
pub use settle::{INTERRUPTED, chain, read_note};
pub use signals::Signals;
pub use sink::{Kept, Show, Sink};

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::net::{self, Service};
use crate::receipt::Issuer;
use crate::terminal::Mode;
use crate::terminal::raw::{self, Raw, USUAL_SIZE};
use foreground::Foreground;
use nexus_driver::{Driver, Handle, Namespace, Sandbox, Session, Stdio};
use nexus_facility::{Layer, LayerMode};
use nexus_model::plan::Writes;
use pump::{Bounds, Ends, Outcome};
use rustix::fd::{AsFd, OwnedFd};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Runs it and returns the exit code.
pub fn command(args: &RunArgs) -> u8 {
    if args.detach {
        return crate::session::detach(args);
    }
    match in_foreground(args) {
        Ok(report) => report.print(args),
        Err(failure) => print_failure(&failure, args.json),
    }
}

/// `nexus shell`: a shell on a terminal of its own, unless a command is given.
pub fn shell(mut args: RunArgs) -> u8 {
    args.tty = true;
    if args.detach {
        let message = "a detached shell has nobody to talk to";
        let hint = "nexus run --detach --tty -- bash starts one, and nexus attach talks to it";
        return print_failure(&Failure::usage("shell", message, hint), args.json);
    }
    if args.command.is_empty() && args.shell.is_none() {
        let usable = |path: &std::path::Path| path.starts_with("/bin") || path.starts_with("/usr/bin");
        let wanted = std::env::var_os("SHELL").filter(|shell| usable(shell.as_ref()));
        let all = wanted.into_iter().chain(["/bin/bash".into()]);
        let found = all.into_iter().find(|shell| std::path::Path::new(shell).exists());
        args.command = vec![found.unwrap_or_else(|| "/bin/sh".into())];
    }
    command(&args)
}

fn in_foreground(args: &RunArgs) -> Result<Report, Failure> {
    let clock = Instant::now();
    // Before anything is made: a signal must find somebody who clears up.
    let mut signals = Signals::catch().map_err(|error| internal("signals", &error))?;
    if args.tty {
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            let message = "--tty needs a terminal, and standard input is none";
            return Err(Failure::usage("tty", message, "leave --tty out; --stdin passes standard input on"));
        }
        signals.and_terminal().map_err(|error| internal("signals", &error))?;
    }
    let args = &with_term(args);
    let open = |order: &Order, full: Option<FullOutput>| {
        let ports = Ports::listen(&args.publish)?;
        for (host, inside) in
            ports.published().into_iter().filter(|_| args.publish.iter().any(|publish| publish.picks()))
        {
            eprintln_line(&format!("127.0.0.1:{host} leads to port {inside} inside"));
        }
        let show = match (args.raw, args.tty) {
            (true, _) => Show::Raw,
            (false, true) => Show::Filtered(Mode::Interactive),
            (false, false) => Show::Filtered(Mode::Plain),
        };
        let sink = Sink::new(args.json, order.max_output, full, show);
        let raw = if args.tty { Some(Raw::enter().map_err(|error| internal("the terminal", &error))?) } else { None };
        Ok(Foreground::new(sink, args.stdin || args.tty, raw, ports))
    };
    execute(args, &signals, clock, open).0
}

/// With the caller's TERM for a command that has a terminal, unless a flag says otherwise.
pub fn with_term(args: &RunArgs) -> RunArgs {
    let mut args = args.clone();
    if args.tty {
        args.env.insert(0, "TERM".into());
    }
    args
}

fn eprintln_line(text: &str) {
    // Where this cannot be written, nobody wants to know it.
    write_unless_closed(&mut io::stderr(), format!("nexus: {text}\n").as_bytes()).ok();
}

/// The driver for this process's user with the standard ids.
pub fn driver() -> Namespace {
    driver_with(nexus_driver::DEFAULT_UID_BASE)
}

/// The driver for this process's user; root acts for whoever called sudo, with host ids from `uid_base` on.
fn driver_with(uid_base: u32) -> Namespace {
    let tenant = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).unwrap_or(0);
    #[allow(unused_mut, reason = "changed only with the feature inject")]
    let mut driver = Namespace::new(uid_base, tenant);
    #[cfg(feature = "inject")]
    if let Some(name) = std::env::var_os("NEXUS_INJECT")
        && let Some(step) = name.to_str().and_then(nexus_driver::Step::by_name)
    {
        driver.faults = nexus_driver::Faults::failing(step);
    }
    driver
}

/// Runs for whoever `open` makes, who is returned when the run came that far.
pub fn execute<C: Caller>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
) -> (Result<Report, Failure>, Option<C>) {
    let mut caller = None;
    let done = recorded(args, signals, clock, open, &mut caller);
    (done, caller)
}

fn recorded<C: Caller>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
    caller: &mut Option<C>,
) -> Result<Report, Failure> {
    let order = Order::read(args)?;
    let driver = driver_with(order.uid_base);
    recover::all(&order.places, &driver, Some(order.plan.workspace.source.as_path()))?;
    let issuer = Issuer::open(&order.places)?;
    let handle = driver.prepare(&order.plan).map_err(|error| order::prepare_failure(&error))?;
    let content = Content {
        handle: handle.clone(),
        workspace: order.plan.workspace.source.clone(),
        folder: order.folder,
        layered: !matches!(order.plan.workspace.writes, Writes::Direct { .. }),
    };
    let record = Record::create(&order.places.runs, &content).map_err(|error| {
        let message = format!("the run cannot be recorded in {}: {error}", order.places.runs.display());
        Failure::refused("state_dir", message, "make room there, or set NEXUS_STATE_DIR to another folder")
    })?;
    let mut run = Run { order: &order, driver: &driver, handle, layer: None, issuer: Some(issuer) };
    let done = run.go(args, signals, clock, open, caller);
    let left = match done {
        Ok(_) => Ok(()),
        Err(_) => run.undo(),
    };
    // Without its record nobody would look for what could not be cleared, or finish a commit that stopped half-way.
    let half_way = done.as_ref().is_err_and(|failure| failure.code == settle::INTERRUPTED);
    let left = match left {
        Ok(()) if !half_way => record.remove().map_err(|error| internal("the run's record", &error)),
        other => other,
    };
    match (done, left) {
        (Ok(report), Ok(())) => Ok(report),
        (Ok(report), Err(failure)) => Ok(report.with_note(failure.text())),
        (Err(failure), Ok(())) => Err(failure),
        (Err(mut failure), Err(second)) => {
            failure.message = format!("{}; and then: {}", failure.message, second.message);
            Err(failure)
        }
    }
}

struct Run<'a> {
    order: &'a Order,
    driver: &'a Namespace,
    handle: Handle,
    layer: Option<Layer>,
    /// Until it has issued the receipt.
    issuer: Option<Issuer>,
}

impl Run<'_> {
    fn go<C: Caller>(
        &mut self,
        args: &RunArgs,
        signals: &Signals,
        clock: Instant,
        open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
        caller: &mut Option<C>,
    ) -> Result<Report, Failure> {
        let order = self.order;
        if !matches!(order.plan.workspace.writes, Writes::Direct { .. }) {
            self.layer = Some(make_layer(order)?);
        }
        let file = |flag: &str, path: &Option<PathBuf>| {
            let workspace = order.plan.workspace.source.as_path();
            path.as_ref().map(|path| FullOutput::create(flag, path, workspace, order.plan.run_id)).transpose()
        };
        let full = file("--full-output", &args.full_output)?;
        let receipt_copy = file("--receipt", &args.receipt)?;
        let network = order.network.as_ref();
        let mut service =
            network.map(|network| Service::prepare(network, &order.places, order.plan.run_id)).transpose()?;
        let prepared = clock.elapsed();
        let caller = caller.insert(open(order, full)?);
        let sandbox = self.driver.start(&order.plan, &self.handle).map_err(|error| order::start_failure(&error))?;
        let mut tidied = Ok(());
        let layer = self.layer.as_ref();
        let meanwhile = || tidied = layer.map_or(Ok(()), |layer| layer.tidy_spares(&mut || has_spoken(&sandbox)));
        let outcome = match pumped(args, order, &sandbox, caller, signals, service.as_mut(), meanwhile) {
            Ok(outcome) => outcome,
            Err(error) => {
                // What was started must not outlive us, whatever else goes wrong here.
                let ended = sandbox.keeper.kill().and_then(|()| sandbox.keeper.wait());
                ended.map_err(|error| internal("ending the sandbox", &error))?;
                let no_network = service.as_mut().and_then(Service::failure);
                return Err(no_network.unwrap_or_else(|| pump_failure(&error)));
            }
        };
        sandbox.keeper.wait().map_err(|error| internal("waiting for the sandbox", &error))?;
        sandbox.keeper.release().map_err(|error| internal("removing the control group", &error))?;
        let kept = caller.finish().map_err(|error| pump_failure(&error))?;
        let egress = service.map(|service| service.finish(&order.places, order.plan.run_id));
        let facts = report::Facts { kept, egress, prepared, clock, receipt_copy };
        let report = self.conclude(args, signals, sandbox, outcome, facts)?;
        Ok(match tidied {
            Ok(()) => report,
            Err(error) => {
                let place = order.places.spare.display();
                report.with_note(format!("what earlier runs left in {place} could not be removed: {}", chain(&error)))
            }
        })
    }

    fn conclude(
        &mut self,
        args: &RunArgs,
        signals: &Signals,
        sandbox: Sandbox,
        mut outcome: Outcome,
        facts: report::Facts,
    ) -> Result<Report, Failure> {
        if let Some(reason) = &outcome.not_started {
            if reason.exit_code().is_none() {
                return Err(order::not_started_failure(reason));
            }
            outcome.reason = nexus_model::ExitReason::Exit;
        }
        let in_memory = outcome.layer.take().or(sandbox.upper);
        if let (Some(disk), Some(upper)) = (self.order.plan.limits.disk_bytes, &in_memory)
            && settle::is_full(upper, disk)
            && outcome.ended.is_some_and(|ended| ended.status != nexus_model::ExitStatus::Code(0))
        {
            outcome.reason = nexus_model::ExitReason::DiskQuota;
        }
        let settled = settle::settle(self.layer.take(), in_memory, self.order, args, signals, outcome.reason);
        // The command ran, whatever became of its changes: it gets its receipt.
        let failure = settled.as_ref().err().cloned();
        let settled = settled.unwrap_or_else(settle::Settled::failed);
        let report = Report::new(self.order, &self.handle, outcome, settled, facts, self.issuer.take());
        match failure {
            None => Ok(report),
            Some(failure) => Err(report.into_failure(failure)),
        }
    }

    /// After an error: nothing may stay behind.
    fn undo(&mut self) -> Result<(), Failure> {
        self.driver.destroy(&self.handle).map_err(|error| internal("clearing up", &io::Error::other(error)))?;
        if self.order.network.is_some() {
            net::forget_empty_record(&self.order.places, self.order.plan.run_id)
                .map_err(|error| internal("clearing up", &error))?;
        }
        match self.layer.take() {
            None => Ok(()),
            Some(layer) => {
                // What is kept for later runs may be the room that this one had not.
                let cleared = layer.clear_spares().map_err(|error| internal("clearing up", &io::Error::other(error)));
                layer.discard().map_err(|error| internal("clearing up", &io::Error::other(error))).and(cleared)
            }
        }
    }
}

fn make_layer(order: &Order) -> Result<Layer, Failure> {
    let mode = if rustix::process::geteuid().is_root() { LayerMode::Root } else { LayerMode::User };
    settle::create(order, mode).map_err(|error| {
        let message = format!("no layer for the workspace could be made: {error}");
        let hint = "make room in the state directory, set NEXUS_STATE_DIR to a folder on another disk, or use --direct";
        Failure::refused("layer", message, hint)
    })
}

fn pumped<C: Caller>(
    args: &RunArgs,
    order: &Order,
    sandbox: &Sandbox,
    caller: &mut C,
    signals: &Signals,
    network: Option<&mut Service>,
    meanwhile: impl FnOnce(),
) -> io::Result<Outcome> {
    let bounds = Bounds {
        timeout: order.timeout,
        grace: order.grace,
        watch_memory: order.plan.limits.memory_bytes.is_some(),
        over_disk: order.measured_layer().map(|(folder, limit)| -> Box<dyn FnMut() -> io::Result<bool>> {
            Box::new(move || Ok(disk::usage(&folder, limit)? > limit))
        }),
    };
    let (session, ends) = if args.tty {
        let size = if args.detach { USUAL_SIZE } else { raw::size() };
        let session = Session::start(sandbox, &order.plan, Stdio::Terminal(size)).map_err(io::Error::other)?;
        (session, Ends { out: None, err: None, input: None, terminal: true })
    } else {
        let (out, out_there) = pump::pipe()?;
        let (err, err_there) = pump::pipe()?;
        let (input, stdin_there) = stdin_pair(args.stdin)?;
        let stdio = Stdio::Pipes([stdin_there.as_fd(), out_there.as_fd(), err_there.as_fd()]);
        // The command's ends are its own: held here, the pipes would never end.
        let session = Session::start(sandbox, &order.plan, stdio).map_err(io::Error::other)?;
        (session, Ends { out: Some(out), err: Some(err), input, terminal: false })
    };
    // The sandbox needs some time to come up.
    meanwhile();
    pump::run(sandbox, session, ends, caller, signals, bounds, network)
}

/// Whether the guest has something to say: then whoever does something else stops.
fn has_spoken(sandbox: &Sandbox) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut channel = [PollFd::new(&sandbox.channel, PollFlags::IN)];
    poll(&mut channel, Some(&Timespec::default())) != Ok(0)
}

/// Our end and the command's end of its stdin: a pipe that we fill, or `/dev/null`.
pub fn stdin_pair(pass: bool) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    if !pass {
        return Ok((None, File::open("/dev/null")?.into()));
    }
    let (there, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((Some(ours), there))
}

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::refused("internal", format!("{what}: {error}"), "this should not happen; run nexus doctor")
}

fn pump_failure(error: &io::Error) -> Failure {
    let message = format!("the command was ended because its output could not be passed on: {error}");
    Failure::refused("output", message, "look at where its output goes: is the disk full?")
}
