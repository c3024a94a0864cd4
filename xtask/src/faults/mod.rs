//! `faults`: each system call of a run, a commit, an accept, a reject and a recovery fails or is the last one.
//!
//! The calls of each command ([`phases`]) are recorded by `strace`; then the command is played again with one of them
//! failing once, failing from then on, or killed there ([`calls`]), and the result is evaluated by the program's own commands
//! ([`verdict`]). Only the host's process is traced, never the sandbox.

mod calls;
mod phases;
mod standing;
mod verdict;

use crate::bounded;
use crate::failure::Failure;
use crate::random::{Random, any_seed};
use crate::workspace::Workspace;
use crate::world::{Base, World};
use calls::{Calls, Fault};
use phases::{Phase, Versions};
use standing::Standing;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use verdict::After;

const USAGE: &str = "cargo xtask faults [--seed N] [--runs N] [--seconds N] [--all] [--errors EIO,ENOSPC,…] [--root|--user|--both] \
    [--only commit|park|accept|reject|recover|standing] [--fault inject=CALL:…] [--program PATH]";
const ERRORS: &str = "EIO,ENOSPC,EBUSY,EACCES,EINTR";
/// The bounds of the step of `ci`. The number is what ends it (after a minute alone, later beside other steps); the time is for
/// a machine that is too slow for it.
const CI_RUNS: usize = 400;
const CI_SECONDS: u64 = 150;

/// The words of the command line.
#[derive(Debug, Clone)]
struct Options {
    seed: u64,
    runs: usize,
    limit: Duration,
    all: bool,
    errors: Vec<String>,
    identities: &'static [bool],
    only: Option<String>,
    fault: Option<String>,
    program: PathBuf,
}

/// Runs the plays that the options choose.
pub fn run(workspace: &Workspace, words: &[String]) -> Result<(), Failure> {
    let options = options(workspace, words).map_err(|why| Failure::new(why, USAGE))?;
    all(&options)
}

/// The step of `ci`.
pub fn bounded(workspace: &Workspace) -> Result<(), Failure> {
    run(workspace, &[])
}

/// The long version, against the program of `soak`: every call, every error.
pub fn long(workspace: &Workspace, program: &Path) -> Result<(), Failure> {
    run(workspace, &["--all", "--program", &program.display().to_string()].map(str::to_owned))
}

fn options(workspace: &Workspace, words: &[String]) -> Result<Options, String> {
    let root = rustix::process::geteuid().is_root();
    let mut options = Options {
        seed: any_seed(),
        runs: CI_RUNS,
        limit: Duration::from_secs(CI_SECONDS),
        all: false,
        errors: ERRORS.split(',').map(str::to_owned).collect(),
        // An ordinary user plays itself: `false` changes no identity.
        identities: if root { &[false, true] } else { &[false] },
        only: None,
        fault: None,
        program: workspace.target.join("debug/nexus"),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let bad = |error: std::num::ParseIntError| format!("{word}: {error}");
        match word.as_str() {
            "--seed" => options.seed = value()?.parse().map_err(bad)?,
            "--runs" => options.runs = value()?.parse().map_err(bad)?,
            "--seconds" => options.limit = Duration::from_secs(value()?.parse().map_err(bad)?),
            "--all" => (options.all, options.limit) = (true, Duration::from_secs(4 * 3600)),
            "--errors" => options.errors = value()?.split(',').map(str::to_owned).collect(),
            "--root" => options.identities = &[false],
            "--user" if root => options.identities = &[true],
            "--both" if root => options.identities = &[false, true],
            "--only" => options.only = Some(value()?.clone()),
            "--fault" => options.fault = Some(value()?.clone()),
            "--program" => options.program = PathBuf::from(value()?),
            other => return Err(format!("{other} is not known, or needs root")),
        }
    }
    Ok(options)
}

/// One play of a fault.
#[derive(Debug, Clone)]
enum Case {
    Injected { user: bool, phase: Phase, fault: Fault, after: After },
    Standing { user: bool, fault: Standing, accept: bool },
}

/// Values that all plays share.
struct Stage {
    base: Base,
    versions: BTreeMap<bool, Versions>,
    has_recover: bool,
}

fn all(options: &Options) -> Result<(), Failure> {
    let began = Instant::now();
    let failed = |why: String| Failure::new(why, "look at what is named; nothing of the program was tested");
    let path = PathBuf::from(format!("/var/tmp/nexus-faults-{}", options.seed));
    let base = Base::make(path, &options.program).map_err(|error| failed(error.to_string()))?;
    let mut stage = Stage { base, versions: BTreeMap::new(), has_recover: false };
    let mut recorded = Vec::new();
    for user in options.identities {
        let place = stage.base.path.join("versions");
        let versions = phases::versions(&place, &stage.base.program, *user).map_err(failed)?;
        stage.versions.insert(*user, versions);
        stage.has_recover = has_recover(&stage.base).map_err(failed)?;
        for phase in Phase::ALL {
            recorded.push((*user, phase, record(&stage, *user, phase).map_err(failed)?));
        }
    }
    let cases = cases(options, &recorded);
    if cases.is_empty() {
        return Err(failed("there is nothing to play".to_owned()));
    }
    let calls: u32 = recorded.iter().flat_map(|(_, _, calls)| calls.values()).sum();
    println!("faults: seed {}, {} plays at {calls} system calls", options.seed, cases.len());
    let (failures, played, missed) = play_all(options, &stage, &cases, began + options.limit);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "faults: {} failed of {played} plays, {missed} did not come to their call, {seconds:.0} s",
        failures.len()
    );
    if failures.is_empty() {
        return Ok(());
    }
    let what = format!("{} plays failed, with seed {}:\n  {}", failures.len(), options.seed, failures.join("\n  "));
    Err(Failure::new(what, "play one again: cargo xtask faults --only PHASE --root|--user --fault inject=…"))
}

fn has_recover(base: &Base) -> Result<bool, String> {
    let mut command = std::process::Command::new(&base.program);
    let ended = bounded::run(command.args(["changes", "--help"]), "", Duration::from_secs(20));
    Ok(ended.map_err(|error| error.to_string())?.stdout.lines().any(|line| line.trim_start().starts_with("recover ")))
}

/// Plays a phase without a fault and counts its calls.
fn record(stage: &Stage, user: bool, phase: Phase) -> Result<Calls, String> {
    let failed = |error: std::io::Error| format!("the calls of {} cannot be recorded: {error}", phase.name());
    let place = stage.base.path.join("record");
    let world = World::make(&place, &stage.base.program, user, 0).map_err(failed)?;
    phase.prepare(&world, stage.versions.get(&user).ok_or("no versions were recorded")?.half)?;
    let log = world.own_file("trace").map_err(failed)?;
    let strace = ["strace", "-qq", "-o", &log.display().to_string()];
    let ended = world.start(&strace, phase.words(stage.has_recover), "")?.wait().map_err(failed)?;
    if ended.code != Some(0) {
        return Err(format!("{} without a fault: {}", phase.name(), ended.describe()));
    }
    let calls = calls::count(&String::from_utf8_lossy(&std::fs::read(log).map_err(failed)?));
    std::fs::remove_dir_all(&place).map_err(failed)?;
    Ok(calls)
}

fn cases(options: &Options, recorded: &[(bool, Phase, Calls)]) -> Vec<Case> {
    let mut random = Random::new(options.seed);
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut cases = Vec::new();
    let root = rustix::process::geteuid().is_root();
    for user in options.identities.iter().filter(|_| wanted("standing")) {
        for fault in Standing::ALL.into_iter().filter(|fault| root || *fault == Standing::FullOutput) {
            cases.extend([false, true].map(|accept| Case::Standing { user: *user, fault, accept }));
        }
    }
    let recorded: Vec<_> = recorded.iter().filter(|(_, phase, _)| wanted(phase.name())).collect();
    let after = |random: &mut Random| After { edit: random.below(3) == 0, accept: random.below(2) == 0 };
    if let Some(fault) = options.fault.as_deref().and_then(parse) {
        for (user, phase, _) in &recorded {
            for number in 0..4 {
                let after = After { edit: number & 1 == 1, accept: number & 2 == 2 };
                cases.push(Case::Injected { user: *user, phase: *phase, fault: fault.clone(), after });
            }
        }
        return cases;
    }
    if options.all {
        for (user, phase, calls) in recorded {
            for fault in calls::every(calls, &options.errors) {
                cases.push(Case::Injected { user: *user, phase: *phase, fault, after: after(&mut random) });
            }
        }
        return cases;
    }
    while cases.len() < options.runs {
        let Some((user, phase, calls)) = recorded.get(random.index(recorded.len())) else { break };
        let Some(fault) = calls::choose(calls, &options.errors, &mut random) else { break };
        cases.push(Case::Injected { user: *user, phase: *phase, fault, after: after(&mut random) });
    }
    cases
}

/// Reads what a report printed of a fault.
fn parse(text: &str) -> Option<Fault> {
    let mut parts = text.strip_prefix("inject=")?.split(':');
    let (call, how, when) = (parts.next()?, parts.next()?, parts.next()?.strip_prefix("when=")?);
    let number = when.trim_end_matches('+').parse().ok()?;
    let harm = match how.strip_prefix("error=") {
        Some(error) if when.ends_with('+') => calls::Harm::Lasting(error.to_owned()),
        Some(error) => calls::Harm::Error(error.to_owned()),
        None => calls::Harm::Kill,
    };
    Some(Fault { call: call.to_owned(), number, harm })
}

/// Plays the cases until `end`, two at a time; returns the failures and the numbers of plays and of faults that were missed.
fn play_all(options: &Options, stage: &Stage, cases: &[Case], end: Instant) -> (Vec<String>, usize, usize) {
    struct Found {
        next: usize,
        failures: Vec<String>,
        missed: usize,
    }
    let found = Mutex::new(Found { next: 0, failures: Vec::new(), missed: 0 });
    let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = {
                        let mut found = lock();
                        found.next += 1;
                        found.next - 1
                    };
                    let Some(case) = cases.get(number).filter(|_| Instant::now() < end) else {
                        // Not played.
                        lock().next -= 1;
                        return;
                    };
                    match play(stage, case, number) {
                        Ok(true) => {}
                        Ok(false) => lock().missed += 1,
                        Err(why) => {
                            let line = format!("{}: {why}", describe(case));
                            println!("faults: {} of {}: {line}", number + 1, cases.len());
                            lock().failures.push(line);
                        }
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if found.next < cases.len() {
        println!("faults: the time of {} s was over after {} plays", options.limit.as_secs(), found.next);
    }
    (found.failures, found.next, found.missed)
}

fn describe(case: &Case) -> String {
    let who = |user: bool| if user { "user" } else { "root" };
    match case {
        Case::Standing { user, fault, accept } => {
            let then = if *accept { "accepted when it is gone" } else { "rejected while it stands" };
            format!("{}, {}, {then}", fault.describe(), who(*user))
        }
        Case::Injected { user, phase, fault, after } => {
            let edit = if after.edit { ", then an edit" } else { "" };
            format!("{} {} {}{edit}", phase.name(), who(*user), fault.inject())
        }
    }
}

/// Plays one case in directories of its own; whether its fault was met.
fn play(stage: &Stage, case: &Case, number: usize) -> Result<bool, String> {
    let (Case::Injected { user, .. } | Case::Standing { user, .. }) = case;
    let place = stage.base.path.join(number.to_string());
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    let world = World::make(&place, &stage.base.program, *user, 0).map_err(failed)?;
    let versions = stage.versions.get(user).ok_or("no versions were recorded")?;
    let evaluated = match case {
        Case::Standing { fault, accept, .. } => standing::play(&world, versions, *fault, *accept).map(|()| true),
        Case::Injected { phase, fault, after, .. } => injected(stage, &world, versions, (*phase, fault, *after)),
    };
    std::fs::remove_dir_all(&place).map_err(failed)?;
    evaluated
}

fn injected(
    stage: &Stage,
    world: &World,
    versions: &Versions,
    (phase, fault, after): (Phase, &Fault, After),
) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("strace: {error}");
    phase.prepare(world, versions.half)?;
    let log = world.own_file("trace").map_err(failed)?;
    let (trace, inject) = (format!("trace={}", fault.call), fault.inject());
    let strace = ["strace", "-qq", "-o", &log.display().to_string(), "-e", &trace, "-e", &inject];
    let ended = world.start(&strace, phase.words(stage.has_recover), "")?.wait().map_err(failed)?;
    let record = String::from_utf8_lossy(&std::fs::read(log).map_err(failed)?).into_owned();
    let met = record.contains("(INJECTED)") || ended.code.is_none();
    verdict::evaluate(world, versions, phase, &fault.harm, &ended, after).map(|()| met)
}
