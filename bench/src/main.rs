//! The figures of `docs/performance.md`, each beside every peer that is installed, measured in one run. Called as
//! `cargo xtask bench`.
//!
//! ```text
//!  options ─▶ quiet machine? ─▶ release build ─▶ one measure after the other ─▶ Report ─▶ text | Markdown | JSON
//!                                  cold P1 P12 P13 · allowlist P2 · launches P3 P4 P13 · throughput P5 ·
//!                                  idle P6 · drain P7 · egress P8 · change_sets P10 · fleet P9 P14
//! ```
//! Everything inside one measure is taken in turn (A B C A B C …), so that a machine whose speed drifts slows all of
//! them alike; medians and ratios count. Nothing is dropped and nothing is installed: a peer that is missing or does
//! not work here is named with the reason. Tests and continuous integration never call this: a time is not a test.
//!
//! Exit codes: 0 measured, 1 a measurement failed, with wrong usage too.

#![forbid(unsafe_code)]

mod allowlist;
mod breakdown;
mod bundle;
mod change_sets;
mod cold;
mod drain;
mod egress;
#[path = "../../tests/support/failure.rs"]
mod failure;
mod far_server;
mod fleet;
#[path = "../../tests/support/free_user.rs"]
mod free_user;
mod idle;
mod launch_bench;
mod launches;
mod machine;
mod options;
mod place;
mod proxies;
mod report;
mod runner;
mod stats;
mod throughput;
mod timer;
mod tools;

use failure::Failure;
use options::{Options, P};
use place::{Place, Programs};
use report::Report;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The word by which this program starts itself as a [`timer`].
const TIMER: &str = "bench-timer";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == TIMER) {
        return timer::serve();
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// All measures that were asked for.
fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments).map_err(|wrong| Failure::new(wrong, options::USAGE))?;
    let programs = match &options.built {
        Some(directory) => Programs { nexus: directory.join("nexus"), examples: directory.clone() },
        None => build_all(&options)?,
    };
    // After the build, which is a load of its own.
    let facts = machine::Facts::inspect(options.anyway)?;
    let mut place = Place::make(&programs, &options)?;
    let mut report = Report::new(facts, options.reported.clone());
    let measured = measure(&options, &mut place, &mut report);
    let removed = place.remove();
    // What was measured before a failure is shown too.
    report.finish();
    print!("{}", if options.markdown { report.markdown() } else { report.text() });
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()).map_err(|error| failed(&format!("{}: {error}", file.display())))?;
    }
    measured.and(removed)
}

fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    if options.wants_any(&[P::Cold, P::Version, P::Python]) {
        cold::measure(options, place, report)?;
    }
    if options.wants(P::Allowlist) {
        allowlist::measure(options, place, report)?;
    }
    if options.wants_any(&[P::Launcher, P::LiveExec, P::Python]) {
        launches::measure(options, place, report)?;
    }
    if options.wants(P::Throughput) {
        throughput::measure(options, place, report)?;
    }
    if options.wants(P::Idle) {
        idle::measure(options, place, report)?;
    }
    if options.wants(P::Drain) {
        drain::measure(options, place, report)?;
    }
    if options.wants(P::Egress) {
        egress::measure(place, report)?;
    }
    if options.wants(P::ChangeSets) {
        change_sets::measure(options, place, report)?;
    }
    if options.wants(P::Fleet) {
        fleet::lives(options, place, report)?;
    }
    if options.wants(P::Directive) {
        fleet::beside_runs(options, place, report)?;
    }
    if options.breakdown {
        breakdown::measure(place, report)?;
    }
    Ok(())
}

/// Builds what the rows need, and nothing else: a release build of an example takes minutes.
fn build_all(options: &Options) -> Result<Programs, Failure> {
    build(&["static"])?;
    for (package, example) in options.examples() {
        build(&["build", "--release", "--package", package, "--example", example])?;
    }
    let release = built()?.join("release");
    Ok(Programs { nexus: release.join("nexus"), examples: release.join("examples") })
}

/// Directory into which cargo builds: this program lies in `debug` or `release` below it.
fn built() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| failed(&format!("the path of this program: {error}")))?;
    let target = own.parent().and_then(Path::parent);
    target.map(Path::to_path_buf).ok_or_else(|| failed(&format!("{} lies in no build directory", own.display())))
}

fn build(arguments: &[&str]) -> Result<(), Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let status = Command::new(cargo).args(arguments).current_dir(checkout).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(&format!("the release build ended with {status}"))),
        Err(error) => Err(failed(&format!("cargo did not start: {error}"))),
    }
}

fn failed(what: &str) -> Failure {
    Failure::new(what, "fix that and run `cargo xtask bench` again")
}

/// Progress, beside the report and never in it.
fn announce(what: &str) {
    eprintln!("bench: {what}");
}
