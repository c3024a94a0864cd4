//! Plays every case without a sandbox, on the leaky driver and on the real one, and evaluates the answers.

use crate::answer::{Answer, Seen};
use crate::attacker::Attacker;
use crate::cases::{self, Case, How, Kind, Limit, Stage};
use crate::host::bench::{Bench, Driver, Ran};
use crate::host::inspect;
use crate::host::neighbour::Neighbour;
use crate::host::world::{World, WorldError, making};
use crate::report::{self, Column, Evaluated, Observations, Verdict};
use crate::scenes::{self, Options};
use crate::{probes, skips, sys};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Extent of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only without a sandbox.
    Unsandboxed,
    /// Also on the leaky driver.
    Leaky,
    /// Also on the real driver.
    Real,
    /// On the real driver alone, as the suite's own user: this may be played on a user's machine.
    RealOnly,
}

/// The suite's command line.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Plays the parts inside.
    pub attacker: Attacker,
    /// The real driver.
    pub nexus: Option<PathBuf>,
    /// Play the real driver as the suite's own user.
    pub as_self: bool,
    /// Play the real driver as this user.
    pub as_user: Option<u32>,
    /// Extent of the suite.
    pub depth: Depth,
    /// One vector only.
    pub only: Option<String>,
    /// For the scenes.
    pub options: Options,
    /// Limits that this machine cannot hold, each with the reason: a driver that refuses them then is right.
    pub not_given: Vec<(Limit, String)>,
    /// Set to end the suite early; everything is cleared away then, too.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Plan {
    /// The same for these rows alone; for all when empty.
    pub(crate) fn clone_for(&self, rows: &[(&'static str, &'static str)]) -> Self {
        Self { options: Options { rows: rows.to_vec(), inject: Vec::new() }, ..self.clone() }
    }
}

/// Result of the suite.
#[derive(Debug)]
pub struct Outcome {
    /// Each row with its verdict.
    pub rows: Vec<Evaluated>,
    /// Notes for the maintainer of the suite.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Rows that passed, failed and were skipped.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&Verdict) -> bool| self.rows.iter().filter(|row| wanted(&row.verdict)).count();
        (
            count(|verdict| matches!(verdict, Verdict::Pass)),
            count(|verdict| matches!(verdict, Verdict::Fail(_))),
            count(|verdict| matches!(verdict, Verdict::Skip(_))),
        )
    }

    /// Returns whether nothing failed, and an attack was refused: harmless twins that work say nothing of the
    /// confinement.
    #[must_use]
    pub fn good(&self) -> bool {
        let (_, failed, _) = self.counts();
        let refused = |row: &Evaluated| row.case.kind == Kind::Malicious && matches!(row.verdict, Verdict::Pass);
        failed == 0 && self.rows.iter().any(refused)
    }
}

/// Reason for which the suite could not be played.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The host could not be prepared.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The list of skips does not parse.
    #[error(transparent)]
    Skips(#[from] skips::SkipError),
    /// The real driver is to be played and was not named.
    #[error("the program under attack was not named")]
    NoDriver,
    /// No probe of the first sandbox said anything.
    #[error("no probe could be played in a sandbox: {summary}")]
    NotPlayed {
        /// Summary that the driver printed.
        summary: String,
    },
    /// The suite was asked to end.
    #[error("stopped by a signal")]
    Stopped,
}

/// Plays everything and clears it away.
pub fn play(plan: &Plan) -> Result<Outcome, SuiteError> {
    crate::host::stale::clear();
    let skips = skips::list()?;
    let of_kernel = skips::of_this_kernel();
    let stop = plan.stop.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let mut seen = Observations::new();
    let mut played = Vec::new();
    for column in columns(plan) {
        let (name, owner) = match column {
            Column::Unsandboxed => ("n", None),
            Column::Leaky => ("le", None),
            Column::Root => ("roo", None),
            Column::User => ("user", plan.as_user),
        };
        let world = World::make(name, owner, &plan.attacker)?;
        let driver = match column {
            Column::Unsandboxed => Driver::Unsandboxed,
            Column::Leaky => Driver::Leaky(plan.attacker.program.clone()),
            Column::Root | Column::User => real_driver(plan, &world)?,
        };
        let found = play_column(plan, &Bench { driver, world, leave_out: String::new(), stop: Arc::clone(&stop) })?;
        for one in found {
            if let Some(case) = cases::all().find(|case| case.id == one.id && case.name == one.case) {
                seen.insert((case.id, case.name, column), one.answer);
            } else {
                notes.push(format!("{}/{} was seen but has no row", one.id, one.case));
            }
        }
        played.push(column);
    }
    let asked = report::Asked {
        played: &played,
        root: sys::uid() == 0,
        inject: !plan.options.inject.is_empty(),
        not_given: &plan.not_given,
    };
    let mut rows = Vec::new();
    for case in wanted(plan) {
        let skip = skips.iter().find(|skip| skip.id == case.id && skip.case == case.name);
        let by_kernel = of_kernel.iter().find(|skip| skip.id == case.id && skip.case == case.name);
        let verdict = report::evaluate(case, &seen, &asked, skip.or(by_kernel));
        if skip.is_some() && report::skip_is_needless(case, &seen) {
            notes.push(format!("{}/{}: the skip in skips.txt is not needed on this kernel", case.id, case.name));
        }
        let answers = played
            .iter()
            .filter_map(|column| seen.get(&(case.id, case.name, *column)).map(|answer| (*column, answer.clone())));
        rows.push(Evaluated { case, verdict, answers: answers.collect() });
    }
    Ok(Outcome { rows, notes })
}

/// Returns the driver under attack where the user of this world may start it.
pub(crate) fn real_driver(plan: &Plan, world: &World) -> Result<Driver, SuiteError> {
    match &plan.nexus {
        None => Err(SuiteError::NoDriver),
        // Where it stands others may not read it, but a machine may also have rules for that very path.
        Some(nexus) if world.owner.is_some() => Ok(Driver::Real(world.install(nexus)?)),
        // It is started in other directories than this one.
        Some(nexus) => Ok(Driver::Real(making("the driver's path", std::path::absolute(nexus))?)),
    }
}

fn columns(plan: &Plan) -> Vec<Column> {
    let without: &[Column] = match plan.depth {
        Depth::Unsandboxed => &[Column::Unsandboxed],
        Depth::Leaky | Depth::Real => &[Column::Unsandboxed, Column::Leaky],
        Depth::RealOnly => &[],
    };
    let real = matches!(plan.depth, Depth::Real | Depth::RealOnly);
    let mut columns = without.to_vec();
    if real && plan.as_self {
        columns.push(Column::Root);
    }
    if real && plan.as_user.is_some() {
        columns.push(Column::User);
    }
    columns
}

fn wanted(plan: &Plan) -> impl Iterator<Item = &'static Case> {
    let rows = &plan.options.rows;
    let chosen = |case: &Case| rows.is_empty() || rows.contains(&(case.id, case.name));
    cases::all().filter(move |case| plan.only.as_deref().is_none_or(|only| case.id == only) && chosen(case))
}

pub(crate) fn play_column(plan: &Plan, bench: &Bench) -> Result<Vec<Seen>, SuiteError> {
    let mut seen = Vec::new();
    for stage in Stage::ALL {
        let rows: Vec<&Case> =
            wanted(plan).filter(|case| matches!(case.how, How::Probe(at, _) if at == *stage)).collect();
        if rows.is_empty() {
            continue;
        }
        let groups: Vec<&[&Case]> = if stage.alone() { rows.chunks(1).collect() } else { vec![&rows] };
        for group in groups {
            go_on(bench)?;
            let (found, ran) = play_stage(bench, *stage, group)?;
            if *stage == Stage::Layered && found.iter().all(|one| one.answer.answer == "no-answer") {
                return Err(SuiteError::NotPlayed { summary: ran.summary() });
            }
            seen.extend(found);
        }
        seen.extend(after_stage(bench, *stage, plan));
    }
    settle_created(bench, &mut seen);
    for (id, scene) in scenes::ALL {
        // Most of what a driver does around a command can only be seen with one.
        let shows = !matches!(bench.driver, Driver::Unsandboxed) || scenes::WITHOUT_DRIVER.contains(id);
        if shows && wanted(plan).any(|case| case.id == *id && matches!(case.how, How::Scene)) {
            go_on(bench)?;
            seen.extend(scene(bench, &plan.options)?);
        }
    }
    go_on(bench)?;
    Ok(seen)
}

fn go_on(bench: &Bench) -> Result<(), SuiteError> {
    if bench.stop.load(Ordering::Relaxed) { Err(SuiteError::Stopped) } else { Ok(()) }
}

fn play_stage(bench: &Bench, stage: Stage, rows: &[&Case]) -> Result<(Vec<Seen>, Ran), WorldError> {
    let context = bench.world.context.workspace.join("context.json");
    let read_only = bench.world.context.read_only.to_string_lossy().into_owned();
    let elsewhere = format!("{read_only}:{}", probes::confinement::ELSEWHERE);
    let context = context.to_string_lossy().into_owned();
    let mut part = vec!["probe", "--context", &context];
    let names: Vec<String> = rows.iter().map(|case| format!("{}/{}", case.id, case.name)).collect();
    part.extend(names.iter().map(String::as_str));
    let mut flags = stage.flags().to_vec();
    if stage == Stage::Layered {
        flags.extend(["--ro", &read_only, "--ro", &elsewhere, "--hide", "hidden-*"]);
    }
    let read_write = bench.world.context.read_write.to_string_lossy().into_owned();
    if stage == Stage::Direct {
        flags.extend(["--rw", &read_write]);
    }
    let mut job = bench.part(&flags, &part);
    job.leak_descriptors = !stage.alone();
    let burns = stage == Stage::Cpu && rows.iter().any(|case| case.kind == Kind::Malicious);
    let neighbour = if burns { Some(making("busy loops", Neighbour::start())?) } else { None };
    let ran = bench.run(&job, Duration::from_secs(60))?;
    let mut seen: Vec<Seen> =
        rows.iter().map(|case| Seen::new(case.id, case.name, answer_of(case, &ran, stage))).collect();
    if let Some(record) = neighbour.map(Neighbour::stop) {
        for one in &mut seen {
            one.answer = record.evaluate(one.answer.clone());
        }
    }
    Ok((seen, ran))
}

fn answer_of(case: &Case, ran: &Ran, stage: Stage) -> Answer {
    let text = ran.text();
    let mut answers = text.lines().filter_map(|line| serde_json::from_str::<Seen>(line).ok());
    match answers.find(|one| one.id == case.id && one.case == case.name) {
        // What the limit did to the whole run counts more than what the probe could still say of a child of its.
        Some(one) if one.answer.answer != "ok" && stage.alone() && ran.reason() == "oom" => {
            Answer::of("oom").with(ran.summary())
        }
        Some(one) => one.answer,
        // A limit may end the whole run: then its reason is what was seen.
        None if stage.alone() => Answer::of(ran.reason()).with(ran.summary()),
        None => Answer::of("no-answer").with(ran.summary()),
    }
}

/// Returns what the host looks like after a stage.
fn after_stage(bench: &Bench, stage: Stage, plan: &Plan) -> Vec<Seen> {
    let world = &bench.world;
    let asked = |id: &str| plan.only.as_deref().is_none_or(|only| only == id);
    let mut seen = Vec::new();
    if stage == Stage::Layered && asked("B05") {
        let kept = ["file", "shrinks", "removable", "renamable"]
            .iter()
            .all(|name| fs::read(world.context.read_only.join(name)).is_ok_and(|text| text == b"as it was\n"));
        let extra = fs::read_dir(&world.context.read_only).map_or(0, Iterator::count);
        seen.push(Seen::new("B05", "host_unchanged", Answer::choose(kept && extra == 4, "unchanged", "changed")));
    }
    let walk = match stage {
        Stage::Layered => "host_walk",
        Stage::Direct => "direct_host_walk",
        _ => return seen,
    };
    if asked("B09") {
        let mut found = inspect::dangerous(&world.context.workspace, false);
        found.extend(inspect::dangerous(&world.base.join("state"), true));
        let names: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
        seen.push(Seen::new("B09", walk, Answer::choose(found.is_empty(), "clean", "found").with(names.join(" "))));
        // Nothing of this stage may be taken for the next one's.
        for path in found {
            if let Err(error) = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)) {
                eprintln!("nexus-escape: left behind {}: {error}", path.display());
            }
        }
    }
    seen
}

/// B02: a file that was created inside is private unless the host has it too.
fn settle_created(bench: &Bench, seen: &mut [Seen]) {
    let context = &bench.world.context;
    let side = context.canary_side.parent().unwrap_or(Path::new("/"));
    for one in seen.iter_mut().filter(|one| one.id == "B02" && one.answer.answer == "created") {
        let directory = match one.case.as_str() {
            "root" => Path::new("/"),
            "beside_workspace" => side,
            "workspace" => &context.workspace,
            "usr_bin" => Path::new("/usr/bin"),
            "var_tmp" => Path::new("/var/tmp"),
            "etc" => Path::new("/etc"),
            "usr" => Path::new("/usr"),
            "home" => Path::new("/home"),
            "var" => Path::new("/var"),
            "tmp" => Path::new("/tmp"),
            "run" => Path::new("/run"),
            _ => continue,
        };
        let path = directory.join(format!("nexus-escape-made-{}", context.token));
        one.answer = Answer::choose(path.exists(), "on-host", "private").with(path.display().to_string());
        if path.exists() && fs::remove_file(&path).is_err() {
            eprintln!("nexus-escape: left behind {}", path.display());
        }
    }
}
