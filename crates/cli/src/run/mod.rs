//! `nexus run`: one command, isolated, with its changes kept apart until it has ended.
//!
//! ```text
//!  order (flags → plan) ─▶ recover what crashed ─▶ key ─▶ record ─▶ lock, layer ─▶ start ─▶ pump ─▶ sandbox gone
//!                                                           └─ error before the command started: undo
//!      ─▶ settle changes ─▶ receipt, report ─▶ record gone
//!         └─ error after the start: the changes are parked, then the error is reported
//! ```

mod ask;
mod cut_short;
mod direct;
mod foreground;
mod full_output;
mod hints;
mod lingers;
mod open_files;
mod order;
mod perhaps;
pub mod recover;
mod report;
mod settle;
mod signals;
mod sink;
mod slow_end;
mod streams;
pub mod unsaid;

pub use crate::terminal::out::write_unless_closed;
pub use full_output::FullOutput;
pub use nexus_runner::causes::chain;
pub use open_files::unwatched_line;
pub use order::{Order, changes as changes_of, refuse_what_is_not_here};
pub use report::{Report, failure_document, not_written, print_failure};
pub use settle::{INTERRUPTED, faults, tell_leftovers, tell_stashes};
pub use signals::{Signals, hold as hold_signals, survive_file_limit};
pub use sink::{Show, Sink};

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::net::Service;
use crate::terminal::raw::Raw;
use foreground::Foreground;
use nexus_driver::{Driver, Handle, Sandbox};
use nexus_driver_namespace::Namespace;
use nexus_facility::{Layer, LayerMode};
use nexus_model::plan::Writes;
use nexus_receipt::Issuer;
use nexus_runner::live::attendant::{Attendant, NetworkServer};
use nexus_runner::live::bounds::{Broken, Outcome};
use nexus_runner::live::covers::Covers;
use nexus_runner::live::disk;
use nexus_runner::live::ports::Ports;
use nexus_runner::net::record;
use nexus_runner::state::commit_lock::{self, Mounting, Replaced};
use nexus_runner::state::record::{Content, Record};
use nexus_terminal::Mode;
use std::io;
use std::path::PathBuf;
use std::time::Instant;
use streams::{has_spoken, pumped};

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
        let ports = Ports::listen(&args.publish, &order.plan.host_ports)?;
        for (host, inside) in
            ports.published().into_iter().filter(|_| args.publish.iter().any(|publish| publish.picks()))
        {
            tell(&format!("127.0.0.1:{host} leads to port {inside} inside"));
        }
        let show = match (args.raw, args.tty) {
            (true, _) => Show::Raw,
            (false, true) => Show::Filtered(Mode::Interactive),
            (false, false) => Show::Filtered(Mode::Plain),
        };
        let hold = order.network.as_ref().and_then(|network| network.hold.clone());
        let sink = Sink::new(args.json, order.max_output, full, show).held_by(hold);
        let raw = if args.tty { Some(Raw::enter().map_err(|error| internal("the terminal", &error))?) } else { None };
        Ok(Foreground::new(sink, args.stdin || args.tty, raw, ports))
    };
    let done = execute(args, &signals, clock, open).0;
    done.map(|report| match hints::for_input(args.stdin || args.tty) {
        Some(hint) => report.with_hint(hint),
        None => report,
    })
}

/// Adds the caller's TERM for a command that has a terminal, unless a flag says otherwise.
pub fn with_term(args: &RunArgs) -> RunArgs {
    let mut args = args.clone();
    if args.tty {
        args.env.insert(0, "TERM".into());
    }
    args
}

/// Says something to the caller, on a line of standard error.
pub fn tell(text: &str) {
    // Where this cannot be written, nobody wants to know it.
    let line = format!("nexus: {}\n", crate::failure::one_line(text));
    write_unless_closed(&mut crate::terminal::out::stderr(), line.as_bytes()).ok();
}

/// Returns the driver for this process's user with the standard ids.
pub fn driver() -> Namespace {
    driver_with(nexus_driver_namespace::DEFAULT_UID_BASE)
}

/// Returns the driver for this process's user. Root's sandboxes get host ids from `uid_base` on.
fn driver_with(uid_base: u32) -> Namespace {
    #[allow(unused_mut, reason = "changed only with the feature inject")]
    let mut driver = Namespace::new(uid_base);
    #[cfg(feature = "inject")]
    if let Some(drawn) = std::env::var("NEXUS_INJECT_DRAWN").ok().and_then(|drawn| drawn.parse().ok()) {
        // Tests that look for traces on the host know their sandboxes by the id.
        driver = Namespace::with_drawn(uid_base, Ok(drawn));
    }
    #[cfg(feature = "inject")]
    if let Some(name) = std::env::var_os("NEXUS_INJECT")
        && let Some(step) = name.to_str().and_then(nexus_driver_namespace::Step::by_name)
    {
        driver.faults = nexus_driver_namespace::Faults::failing(step);
    }
    #[cfg(feature = "inject")]
    if let Some(file) = std::env::var_os("NEXUS_INJECT_CORE_PATTERN") {
        driver.core_pattern = file.into();
    }
    #[cfg(feature = "inject")]
    if let Ok(names) = std::env::var(nexus_driver_namespace::LEAVE_OUT)
        && let Err(problem) = nexus_driver_namespace::leave_out(&names)
    {
        tell(&problem);
        // Nothing is launched for a test that names a wall wrongly.
        driver.faults = nexus_driver_namespace::Faults::failing(nexus_driver_namespace::Step::Identity);
    }
    driver
}

/// Runs the command for the attendant that `open` makes. Returns the attendant too, if the run came that far.
pub fn execute<C: Attendant>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
) -> (Result<Report, Failure>, Option<C>) {
    let mut caller = None;
    let done = recorded(args, signals, clock, open, &mut caller);
    (done, caller)
}

fn recorded<C: Attendant>(
    args: &RunArgs,
    signals: &Signals,
    clock: Instant,
    open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
    caller: &mut Option<C>,
) -> Result<Report, Failure> {
    let order = Order::read(args)?;
    let driver = driver_with(order.uid_base);
    recover::before_run(&order.places, &driver, order.plan.workspace.source.as_path(), order.id)?;
    let issuer = crate::receipt::open_issuer(&order.places)?;
    let handle = driver.prepare(&order.plan).map_err(|error| order::prepare_failure(&error))?;
    let content = Content {
        handle: handle.clone(),
        workspace: order.plan.workspace.source.clone(),
        directory: order.folder,
        layered: !matches!(order.plan.workspace.writes, Writes::Direct { .. }),
        reviewing: false,
        rejecting: false,
    };
    let record = Record::create(&order.places.runs, &content).map_err(|error| {
        let message = format!("the run cannot be recorded in {}: {error}", order.places.runs.display());
        Failure::refused("state_dir", message, "make room there, or set NEXUS_STATE_DIR to another directory")
    })?;
    let mut run = Run {
        order: &order,
        driver: &driver,
        handle,
        record: &record,
        layer: None,
        has_started: false,
        lingers: false,
        issuer: Some(issuer),
    };
    let done = run.go(args, signals, clock, open, caller);
    let left = match done {
        Ok(_) => Ok(()),
        Err(_) if run.lingers => Ok(()),
        Err(_) => run.undo(),
    };
    // Without its record nobody would look for what could not be cleared, or finish a commit that stopped half-way.
    let half_way = done.as_ref().is_err_and(|failure| failure.code == settle::INTERRUPTED);
    let left = match left {
        Ok(()) if !half_way && !run.lingers => record.remove().map_err(|error| internal("the run's record", &error)),
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
    record: &'a Record,
    layer: Option<Layer>,
    /// Reports that the command ran, so that the layer may hold its work.
    has_started: bool,
    /// Reports that the sandbox was killed and is not gone: a later command goes on by the record.
    lingers: bool,
    /// The issuer of the receipt; `None` after it was issued.
    issuer: Option<Issuer>,
}

impl Run<'_> {
    fn go<C: Attendant>(
        &mut self,
        args: &RunArgs,
        signals: &Signals,
        clock: Instant,
        open: impl FnOnce(&Order, Option<FullOutput>) -> Result<C, Failure>,
        caller: &mut Option<C>,
    ) -> Result<Report, Failure> {
        let order = self.order;
        // Neither the layer's beginning nor the mount may fall into a commit of another run.
        let path = order.plan.workspace.source.as_path().to_owned();
        let lock = commit_lock::after_commits(&order.places, order.folder).map_err(|error| {
            let message = format!("{} cannot be locked: {error}", path.display());
            Failure::refused("lock", message, "wait for the other run, or end it")
        })?;
        let mounting = Mounting { lock, path, directory: order.folder };
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
        service = service.map(|service| service.within(order.plan.limits.memory_bytes));
        let prepared = clock.elapsed();
        let caller = caller.insert(open(order, full)?);
        let covers = Covers::watch(&order.plan).map_err(|error| {
            let message = format!("what the run has to cover changed while it was prepared: {}", chain(&error));
            Failure::refused("protect", message, "run it again")
        })?;
        let sandbox = self.driver.start(&order.plan, &self.handle).map_err(|error| order::start_failure(&error))?;
        let mut tidied = Ok(());
        let layer = self.layer.as_ref();
        let meanwhile = || tidied = layer.map_or(Ok(()), |layer| layer.tidy_spares(&mut || has_spoken(&sandbox)));
        let network = service.as_mut().map(|service| service as &mut dyn NetworkServer);
        let pumped = pumped(args, order, &sandbox, caller, signals, network, mounting, covers, meanwhile);
        let has_failed = pumped.is_err();
        let (outcome, broken) = match pumped {
            Ok(outcome) => (Some(outcome), None),
            Err(Broken { error, outcome }) => {
                let no_network = service.as_mut().and_then(Service::failure);
                (outcome.map(|outcome| *outcome), Some(no_network.unwrap_or_else(|| pump_failure(&error))))
            }
        };
        self.has_started = outcome.as_ref().is_some_and(|outcome| outcome.spawned.is_some());
        // What was started must not outlive us, whatever else goes wrong here.
        self.lingers = match &outcome {
            Some(outcome)
                if has_failed && self.has_started && outcome.layer.is_none() && !sandbox.changes.has_descriptor() =>
            {
                lingers::outlives_a_kill(&*sandbox.process).map_err(|error| internal("ending the sandbox", &error))?
            }
            outcome => outcome.as_ref().is_some_and(|outcome| outcome.lingers),
        };
        if self.lingers
            && let Err(error) = lingers::remember(&*sandbox.process, &self.order.places.runs, self.order.plan.run_id)
        {
            self.lingers = false;
            tell(&format!(
                "the kernel still takes the sandbox apart, and nexus waits, since it cannot note that: {error}"
            ));
        }
        let not_ended = if self.lingers { None } else { self.end(&sandbox, has_failed)? };
        let (outcome, broken) = match (outcome, broken) {
            (Some(outcome), broken) if broken.is_none() || self.has_started => (outcome, broken.or(not_ended)),
            (_, Some(failure)) => return Err(failure),
            (_, None) => return Err(pump_failure(&io::ErrorKind::UnexpectedEof.into())),
        };
        // A log that was cut off gets no name.
        let finished = if has_failed { Ok((None, 0)) } else { caller.finish() };
        let (kept, broken) = match finished {
            Ok(kept) => (kept, broken),
            Err(error) => ((None, 0), broken.or(Some(pump_failure(&error)))),
        };
        let egress = service.map(|service| service.finish(&order.places, order.plan.run_id));
        let guarantees = sandbox.guarantees.clone();
        let facts = report::Facts { kept, egress, prepared, clock, receipt_copy, guarantees };
        let report = self.conclude(args, signals, sandbox, outcome, facts, broken)?;
        Ok(match tidied {
            Ok(()) => report,
            Err(error) => {
                let place = order.places.pool.display();
                report.with_note(format!("what earlier runs left in {place} could not be removed: {}", chain(&error)))
            }
        })
    }

    /// Ends the sandbox and removes what it has on the host. Where its driver cannot do that, everything is killed by
    /// its mark, and what went wrong is returned; an error means that something may still write to the layer.
    fn end(&self, sandbox: &Sandbox, kill: bool) -> Result<Option<Failure>, Failure> {
        let process = &sandbox.process;
        let killed = if kill { process.kill() } else { Ok(()) };
        let over = killed
            .map_err(|error| internal("ending the sandbox", &error))
            .and_then(|()| process.wait().map_err(|error| internal("waiting for the sandbox", &error)))
            .and_then(|()| process.release().map_err(|error| internal("removing the control group", &error)));
        let Err(failure) = over else { return Ok(None) };
        match self.driver.destroy(&self.handle) {
            Ok(()) => Ok(Some(failure)),
            Err(second) => {
                let message = format!("{}; and then: {}", failure.message, chain(&second));
                Err(Failure { message, ..failure })
            }
        }
    }

    fn conclude(
        &mut self,
        args: &RunArgs,
        signals: &Signals,
        sandbox: Sandbox,
        mut outcome: Outcome,
        facts: report::Facts,
        broken: Option<Failure>,
    ) -> Result<Report, Failure> {
        if let Some(reason) = &outcome.not_started {
            if reason.exit_code().is_none() {
                return Err(order::not_started_failure(reason));
            }
            outcome.reason = nexus_model::ExitReason::Exit;
        }
        let Sandbox { changes, process, .. } = sandbox;
        let in_memory = outcome.layer.take().or(changes.into_descriptor());
        if let (Some(disk), Some(upper)) = (self.order.plan.limits.disk_bytes, &in_memory)
            && disk::is_full(upper, disk)
            && outcome.ended.is_some_and(|ended| ended.status != nexus_model::ExitStatus::Code(0))
        {
            outcome.reason = nexus_model::ExitReason::DiskQuota;
        }
        let over = settle::Over {
            order: self.order,
            args,
            signals,
            record: self.record,
            reason: outcome.reason,
            cut_short: outcome.hurried || broken.is_some(),
            lingers: self.lingers,
        };
        let settled = settle::settle(self.layer.take(), in_memory, process.as_ref(), &over);
        // The command ran, whatever became of its changes: it gets its receipt.
        let failure = match (&settled, broken) {
            (Ok(_), None) => None,
            (Err(failure), None) => Some(failure.clone()),
            (Ok(settled), Some(broken)) => Some(settled.beside(broken, self.order.plan.run_id)),
            (Err(second), Some(broken)) => {
                let message = format!("{}; and then: {}", broken.message, second.message);
                // The code decides whether the record stays.
                Some(Failure { message, hint: second.hint.clone(), ..second.clone() })
            }
        };
        let settled = settled.unwrap_or_else(settle::Settled::failed);
        let report = Report::new(self.order, &self.handle, outcome, settled, facts, self.issuer.take());
        match failure {
            None => Ok(report),
            Some(failure) => Err(report.into_failure(failure)),
        }
    }

    /// After an error: nothing of the sandbox may stay behind, but what a command may have written does.
    fn undo(&mut self) -> Result<(), Failure> {
        self.driver.destroy(&self.handle).map_err(|error| internal("clearing up", &io::Error::other(error)))?;
        if self.order.network.is_some() {
            record::forget_if_empty(&self.order.places, self.order.plan.run_id)
                .map_err(|error| internal("clearing up", &error))?;
        }
        match self.layer.take() {
            None => Ok(()),
            Some(layer) if self.has_started => {
                drop(layer);
                recover::park(&self.order.places, &self.order.plan.run_id.to_string())
                    .map_err(|why| internal("the changes of the run", &io::Error::other(why)))
            }
            Some(layer) => {
                // What is kept for later runs may be the room that this one had not.
                let cleared = layer.clear_spares().map_err(|error| internal("clearing up", &io::Error::other(error)));
                recover::remove(layer).map_err(|why| internal("clearing up", &io::Error::other(why))).and(cleared)
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

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::refused("internal", format!("{what}: {error}"), "this should not happen; run nexus doctor")
}

fn pump_failure(error: &io::Error) -> Failure {
    if matches!(error.get_ref(), Some(why) if why.is::<Replaced>()) {
        return Failure::refused("moved", format!("the command was ended: {error}"), "run it again");
    }
    let message = format!("the command was ended because its output could not be passed on: {error}");
    Failure::refused("output", message, "look at where its output goes: is the disk full?")
}
