//! Plays every case without a sandbox, on the leaky driver and on the real one, and judges what was seen.

use crate::answer::{Answer, Seen};
use crate::cases::{self, Case, How, Stage};
use crate::host::bench::{Bench, Driver, Job, Ran};
use crate::host::look;
use crate::host::world::{World, WorldError, making};
use crate::report::{self, Column, Observations, Verdict};
use crate::scenes::{self, Options};
use crate::{skips, sys};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far the suite goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only without a sandbox.
    Unsandboxed,
    /// Also on the leaky driver.
    Leaky,
    /// Also on the real driver.
    Real,
}

/// The suite's command line.
#[derive(Debug)]
pub struct Plan {
    /// The real driver.
    pub nexus: Option<PathBuf>,
    /// Play the real driver as the suite's own user.
    pub as_self: bool,
    /// Play the real driver as this user.
    pub as_user: Option<u32>,
    /// How far.
    pub depth: Depth,
    /// One vector only.
    pub only: Option<String>,
    /// JSON lines instead of a table.
    pub json: bool,
    /// For the scenes.
    pub options: Options,
}

/// Why the suite could not be played.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The host could not be prepared.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The list of skips does not parse.
    #[error(transparent)]
    Skips(#[from] skips::SkipError),
    /// The output is closed.
    #[error("cannot write the result")]
    Output(#[from] std::io::Error),
}

/// Plays everything; true when nothing failed.
pub fn play(plan: &Plan) -> Result<bool, SuiteError> {
    let skips = skips::list()?;
    let own = making("the suite's own path", std::env::current_exe())?;
    let mut seen = Observations::new();
    let mut played = Vec::new();
    for column in columns(plan) {
        let (name, owner) = match column {
            Column::Unsandboxed => ("n", None),
            Column::Leaky => ("le", None),
            Column::Root => ("roo", None),
            Column::User => ("user", plan.as_user),
        };
        let world = World::make(name, owner)?;
        let driver = match (column, &plan.nexus) {
            (Column::Unsandboxed, _) => Driver::Unsandboxed,
            (Column::Leaky, _) | (_, None) => Driver::Leaky(own.clone()),
            (_, Some(nexus)) => Driver::Real(world.install(nexus)?),
        };
        let found = play_column(plan, &Bench { driver, world })?;
        for one in found {
            if let Some(case) = cases::all().find(|case| case.id == one.id && case.name == one.case) {
                seen.insert((case.id, case.name, column), one.answer);
            } else {
                eprintln!("nexus-escape: {}/{} was seen but has no row", one.id, one.case);
            }
        }
        played.push(column);
    }
    let inject = !plan.options.inject.is_empty();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut out = std::io::stdout().lock();
    for case in wanted(plan) {
        let skip = skips.iter().find(|skip| skip.id == case.id && skip.case == case.name);
        let verdict = report::judge(case, &seen, &played, skip, sys::uid() == 0, inject);
        match verdict {
            Verdict::Pass => passed += 1,
            Verdict::Skip(_) => skipped += 1,
            Verdict::Fail(_) => failed += 1,
        }
        let line =
            if plan.json { report::json_line(case, &seen, &verdict) } else { report::line(case, &seen, &verdict) };
        writeln!(out, "{line}")?;
        if skip.is_some() && report::skip_is_needless(case, &seen) {
            writeln!(
                std::io::stderr(),
                "{}/{}: the skip in skips.txt is not needed on this kernel",
                case.id,
                case.name
            )?;
        }
    }
    if plan.json {
        writeln!(out, "{}", serde_json::json!({ "passed": passed, "failed": failed, "skipped": skipped }))?;
    } else {
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
    }
    Ok(failed == 0 && passed > 0)
}

fn columns(plan: &Plan) -> Vec<Column> {
    let mut columns = vec![Column::Unsandboxed];
    if plan.depth != Depth::Unsandboxed {
        columns.push(Column::Leaky);
    }
    if plan.depth == Depth::Real {
        if plan.as_self {
            columns.push(Column::Root);
        }
        if plan.as_user.is_some() {
            columns.push(Column::User);
        }
    }
    columns
}

fn wanted(plan: &Plan) -> impl Iterator<Item = &'static Case> {
    cases::all().filter(|case| plan.only.as_deref().is_none_or(|only| case.id == only))
}

fn play_column(plan: &Plan, bench: &Bench) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    for stage in Stage::ALL {
        let rows: Vec<&Case> =
            wanted(plan).filter(|case| matches!(case.how, How::Probe(at, _) if at == *stage)).collect();
        if rows.is_empty() {
            continue;
        }
        let groups: Vec<&[&Case]> = if stage.alone() { rows.chunks(1).collect() } else { vec![&rows] };
        for group in groups {
            seen.extend(play_stage(bench, *stage, group)?);
        }
        seen.extend(after_stage(bench, *stage, plan));
    }
    settle_created(bench, &mut seen);
    // What a driver does around a command can only be seen with one.
    if !matches!(bench.driver, Driver::Unsandboxed) {
        for (id, scene) in scenes::ALL {
            if plan.only.as_deref().is_none_or(|only| only == *id) {
                seen.extend(scene(bench, &plan.options)?);
            }
        }
    }
    Ok(seen)
}

fn play_stage(bench: &Bench, stage: Stage, rows: &[&Case]) -> Result<Vec<Seen>, WorldError> {
    let context = bench.world.context.workspace.join("context.json");
    let read_only = bench.world.context.read_only.to_string_lossy().into_owned();
    let (probe, context) = (bench.probe(), context.to_string_lossy().into_owned());
    let mut command = vec![probe.as_str(), "probe", "--context", &context];
    let names: Vec<String> = rows.iter().map(|case| format!("{}/{}", case.id, case.name)).collect();
    command.extend(names.iter().map(String::as_str));
    let mut flags = stage.flags().to_vec();
    if stage == Stage::Layered {
        flags.extend(["--ro", &read_only]);
    }
    let mut job = Job::new(&flags, &command);
    job.leak_descriptors = !stage.alone();
    let ran = bench.run(&job, Duration::from_secs(60))?;
    Ok(rows.iter().map(|case| Seen::new(case.id, case.name, answer_of(case, &ran, stage))).collect())
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

/// What the host looks like after a stage.
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
        let mut found = look::dangerous(&world.context.workspace, false);
        found.extend(look::dangerous(&world.base.join("state"), true));
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
        let folder = match one.case.as_str() {
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
        let path = folder.join(format!("nexus-escape-made-{}", context.token));
        one.answer = Answer::choose(path.exists(), "on-host", "private").with(path.display().to_string());
        if path.exists() && fs::remove_file(&path).is_err() {
            eprintln!("nexus-escape: left behind {}", path.display());
        }
    }
}
