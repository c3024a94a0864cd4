//! Conditions that hold after the power came back, whatever the disks kept.

use super::play::{Played, Stage};
use crate::tree::{Tree, difference};
use crate::world::World;

/// Evaluates the mounted disks of `world` after a crash at `position`; the error is one sentence about what is wrong.
///
/// Every later command works, here and elsewhere; the workspace is one of the allowed versions and no mix; what waits
/// can be shown, and an accept brings exactly the changes that the run made. From the moment at which a command said
/// that the changes are committed or wait, they are.
pub fn evaluate(world: &World, played: &Played, position: usize) -> Result<(), String> {
    let now = played.stages.iter().rposition(|stage| stage.position <= position).unwrap_or(0);
    let (stage, next) = (played.stages.get(now), played.stages.get(now + 1));
    let mut allowed: Vec<&Tree> = stage.map(|stage| stage.trees.iter().collect()).unwrap_or_default();
    allowed.extend(next.into_iter().flat_map(|next| next.on_way.iter().chain(&next.trees)));
    let holds = stage.is_some_and(|stage| stage.holds);
    let world = &World { rebooted: true, ..world.clone() };
    let recovered = commands_work(world)?;
    let found = world.tree()?;
    one_of(&found, &allowed, &format!("after the recovery ({}) the workspace", brief(&recovered)))?;
    let reported = accept_all(world)?;
    let found = world.tree()?;
    allowed.push(&played.last);
    if holds && found != played.last {
        let reported: Vec<String> = reported.iter().map(|reported| brief(reported)).collect();
        let what = if reported.is_empty() { "nothing waited".to_owned() } else { reported.join("; ") };
        return Err(format!(
            "changes that were reported as kept are lost ({what}): {}",
            difference(&found, &played.last)
        ));
    }
    // Of a command that had not ended the disk may have any part, and the program may keep what there is of it.
    let warned = recovered.contains(WARNING) || reported.iter().any(|reported| reported.contains(WARNING));
    if !warned {
        let reported: Vec<String> = reported.iter().map(|reported| brief(reported)).collect();
        one_of(&found, &allowed, &format!("after accept ({}) the workspace", reported.join("; ")))?;
    }
    still_usable(world)
}

/// Names the moment of a crash.
pub fn moment(stages: &[Stage], position: usize) -> String {
    let now = stages.iter().rposition(|stage| stage.position <= position).unwrap_or(0);
    match (stages.get(now), stages.get(now + 1)) {
        (Some(stage), Some(next)) if position < next.position => {
            format!("between {} and the end of {}", stage.name, next.name)
        }
        (Some(stage), _) => format!("after {}", stage.name),
        (None, _) => "at the beginning".to_owned(),
    }
}

/// The word by which the program says that what waits may have holes.
const WARNING: &str = "incomplete";

/// Runs what a person would run first; returns what the commands said.
fn commands_work(world: &World) -> Result<String, String> {
    let (workspace, other) = (world.workspace(), world.other());
    let mut reported = world.must(&other, &["changes", "list"])?.describe();
    let recovered = world.nexus(&workspace, &["changes", "recover"])?;
    // 2: a program without this command.
    if recovered.code != Some(0) && recovered.code != Some(2) {
        return Err(format!("`nexus changes recover`: {}", recovered.describe()));
    }
    if recovered.code == Some(0) {
        reported = format!("{reported} | {}", recovered.describe());
    }
    for place in [&other, &workspace] {
        reported = format!("{reported} | {}", world.must(place, &["run", "--", "true"])?.describe());
    }
    Ok(reported)
}

fn one_of(found: &Tree, allowed: &[&Tree], what: &str) -> Result<(), String> {
    if allowed.contains(&found) {
        return Ok(());
    }
    // The nearest version is the one that makes the sentence short.
    let nearest = allowed.iter().map(|tree| difference(found, tree)).min_by_key(String::len).unwrap_or_default();
    Err(format!("{what} is not a version of it: {nearest}"))
}

/// Shows and accepts everything that waits; what an accept refuses is rejected. Returns what the commands said.
fn accept_all(world: &World) -> Result<Vec<String>, String> {
    let workspace = world.workspace();
    let mut reported = Vec::new();
    for run in world.waiting()? {
        reported.push(world.must(&workspace, &["changes", "show", "--run", &run])?.describe());
        world.must(&workspace, &["changes", "diff", "--run", &run])?;
        let ended = world.nexus(&workspace, &["changes", "accept", "--protected", "--run", &run])?;
        reported.push(ended.describe());
        if world.waiting()?.contains(&run) {
            world.must(&workspace, &["changes", "reject", "--run", &run])?;
        }
    }
    match world.waiting()?.first() {
        Some(run) => Err(format!("{run} still waits after it was accepted and rejected: {}", reported.join("; "))),
        None => Ok(reported),
    }
}

/// Shortens what a command said to its exit and its first words.
fn brief(reported: &str) -> String {
    let line = reported.replace('\n', ", ");
    match line.char_indices().nth(120) {
        Some((end, _)) => format!("{} …", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn still_usable(world: &World) -> Result<(), String> {
    let workspace = world.workspace();
    world.must(&workspace, &["run", "--changes", "commit", "--", "sh", "-c", "echo later > later"])?;
    match std::fs::read(workspace.join("later")) {
        Ok(text) if text == b"later\n" => Ok(()),
        other => Err(format!("a later commit did nothing: {other:?}")),
    }
}
