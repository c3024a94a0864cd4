//! `nexus doctor --attack`: plays the hostile probes of the escape suite in sandboxes of this machine.
//!
//! ```text
//!  trial sandbox stands? ──no──▶ 125
//!        │ yes
//!        ▼
//!  suite: nexus run … -- COPY __attack probe …   (inside only; nothing is played on the host itself)
//!        │                                             a signal or the end: everything is cleared away
//!        ▼
//!  verdict ──▶ 0 all held, 1 something got out or does not work, 125 could not be played
//! ```

use crate::args::DoctorArgs;
use crate::driver;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::verdict;
use nexus_caller::terminal::out;
use nexus_driver::{Driver, ProbeReport};
use nexus_escape::{Attacker, Depth, Ground, Limit, Options, Outcome, Plan, is_vector};
use nexus_model::Guarantee;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Plays one part inside a sandbox, for the process that [`command`] started there.
pub fn part(words: &[String]) -> u8 {
    u8::try_from(nexus_escape::part(words, Ground::SandboxOnly)).unwrap_or(1)
}

/// Attacks, prints the verdict and returns the exit code.
pub fn command(args: &DoctorArgs) -> u8 {
    let outcome = match attack(args, &driver::local().probe()) {
        Ok(outcome) => outcome,
        Err(failure) => return not_played(&failure, args.json),
    };
    let vectors = verdict::vectors(&outcome.rows);
    let text =
        if args.json { verdict::render_json(&vectors, &outcome) } else { verdict::render_text(&vectors, &outcome) };
    match out::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
        Ok(()) => u8::from(!outcome.good()),
        Err(error) => failures::print_failure(&failures::not_written("the verdict", &error), false),
    }
}

/// Reports a verdict that could not be reached as a verdict: `held` is there, and false.
fn not_played(failure: &Failure, json: bool) -> u8 {
    if json {
        let text = format!("{}\n", verdict::unknown(failure));
        if let Err(error) = out::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
            return failures::print_failure(&failures::not_written("the verdict", &error), false);
        }
    }
    failures::print_failure(failure, false)
}

fn attack(args: &DoctorArgs, report: &ProbeReport) -> Result<Outcome, Failure> {
    let only = match &args.only {
        Some(id) if !is_vector(id) => {
            let known: Vec<_> = nexus_escape::VECTORS.iter().map(|vector| vector.id).collect();
            let message = format!("there is no attack {}", one_line(id));
            return Err(Failure::usage("attack", message, format!("known are {}", known.join(", "))));
        }
        only => only.clone(),
    };
    crate::trial::ready(report)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let hint = "no verdict was reached; when the reason is gone, run nexus doctor --attack again";
        Failure::refused("attack", format!("{what}: {error}"), hint)
    };
    let stop = stop_on_signals().map_err(|error| failed("signals cannot be caught", &error))?;
    let program = std::env::current_exe().map_err(|error| failed("the path of nexus is unknown", &error))?;
    if std::io::stderr().is_terminal() {
        eprintln!("nexus: attacking sandboxes on this machine; this takes up to a minute");
    }
    let plan = Plan {
        attacker: Attacker { program: program.clone(), words: vec!["__attack".to_owned()] },
        nexus: Some(program),
        as_self: true,
        as_user: None,
        depth: Depth::RealOnly,
        only,
        options: Options::default(),
        not_given: not_given(report),
        stop: Some(stop),
    };
    nexus_escape::play(&plan).map_err(|error| failed("the attacks could not be played", &Chain(&error)))
}

/// Limits that the driver says it cannot hold here: it must refuse them, and no load can show that they hold.
fn not_given(report: &ProbeReport) -> Vec<(Limit, String)> {
    let limits = [(Limit::Memory, Guarantee::LimitsMemory), (Limit::Cpu, Guarantee::LimitsCpu)];
    limits.into_iter().filter_map(|(limit, guarantee)| Some((limit, report.gives(guarantee).err()?))).collect()
}

/// Returns a flag that a signal sets: the suite checks it between its steps and clears everything away.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    let signals = [SIGINT, SIGTERM, SIGHUP];
    // One that came in the middle of its registration would be lost.
    nexus_driver_namespace::while_held(&signals, || {
        signals.iter().try_for_each(|signal| signal_hook::flag::register(*signal, Arc::clone(&stop)).map(drop))
    })?;
    Ok(stop)
}

/// An error with everything that led to it.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}
