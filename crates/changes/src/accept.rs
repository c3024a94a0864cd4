//! `nexus changes accept`: everything, some paths, or some hunks.
//!
//! Protected entries are accepted only when they are named themselves, or with `--protected`: an accept of
//! everything, or of a directory, must not bring a git hook along unseen.

use super::accepted_text::{accepted_text, waiting as still_waiting};
use super::answer::write_answer;
use super::{choose, patch, paths, recover};
use crate::args::AcceptArgs;
use crate::change_text;
use crate::failure::{Failure, one_line};
use crate::notices::print;
use crate::signals;
use nexus_layer::{Change, Committed, Rules};
use nexus_model::ByteText;
use nexus_runner::held_text;
use nexus_runner::recover::finish::as_notices;
use nexus_runner::recover::interrupted::{Direction, Interrupted};
use nexus_runner::recover::sandboxes::refuse_left;
use nexus_runner::review::around::{Around, Conflicts, LeftOut, commit_around};
use nexus_runner::review::paths::must_stand_alone;
use nexus_runner::review::pending::Pending;
use nexus_runner::review::rejected;
use nexus_runner::review::waiting::{self, State};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::note::CutShort;
use std::path::Path;

/// Accepts changes, and prints what was committed and what is still parked.
pub fn command(args: &AcceptArgs) -> Result<String, Failure> {
    let run = super::run_name::resolve(args.run.as_ref())?;
    let places = crate::host::ready_state_dir()?;
    refuse_left(&places, run)?;
    let interrupted = crate::recovery::interrupted(&places)?;
    refuse_left(&places, run)?;
    let one = choose::only_one(waiting::all(&places, &interrupted, &print)?, run)?;
    if one.state == State::Interrupted {
        if !args.paths.is_empty() || args.patch {
            let message = format!("the commit of the run {} was interrupted and can only go on as a whole", one.run);
            return Err(Failure::usage("paths", message, "leave the paths and --patch out"));
        }
        return go_on(&places, &one.interrupted(&places));
    }
    let mut pending = Pending::of(&crate::host::here(), places, one)?;
    let only = paths::read(&args.paths, &pending.one.workspace)?;
    let mut taken_back = Vec::new();
    if pending.one.is_part && only.is_none() && !args.patch {
        return Err(only_a_part(&pending.one.run));
    }
    if let Some(only) = &only {
        let all = pending.everything()?;
        must_stand_alone(only, &all)?;
        (pending.rules.except, taken_back) = rejected::without(&pending.rules.except, only, &all);
    }
    let named = only.clone().unwrap_or_default();
    let rules = Rules { accept_protected: args.protected, named, only, ..pending.rules.clone() };
    // The record outlives the lock, so that the command that finds the record removes what a killed accept left of the lock.
    let record = pending.record()?;
    let how = How {
        patch: args.patch,
        keeps_ours: args.ours,
        conflicts: match () {
            () if args.theirs => Conflicts::TakeTheirs,
            () if args.merge => Conflicts::Merge,
            () if args.rest || args.ours => Conflicts::LeaveOut,
            () => Conflicts::Refuse,
        },
    };
    let done = decide(pending, &rules, &how, &taken_back);
    // Before the record goes, by which the next command finds what a killed one did not say.
    let done = done.and_then(|text| write_answer(&text).map(|()| String::new()));
    // A commit that stopped half-way is found by its record.
    if !matches!(&done, Err(failure) if failure.code == nexus_runner::settle::problem::INTERRUPTED)
        && let Err(error) = record.remove()
    {
        if let Err(failure) = &done {
            crate::notices::tell(&failure.text());
        }
        return Err(Failure::refused("state_dir", format!("the record of the accept: {error}"), ""));
    }
    done
}

/// Refuses to accept all of a layer of which only a part was saved: the saved files may be wrong without the lost ones.
fn only_a_part(run: &str) -> Failure {
    let message = format!("nothing was accepted of the run {run}: {}", CutShort::Partial.text());
    let hint = format!(
        "look at what is there and accept it by its name (nexus changes show --run {run}, nexus changes accept PATH), or \
         throw it away: nexus changes reject --run {run}"
    );
    Failure::refused("partial", message, hint)
}

/// Resumes an interrupted commit. If the commit was being taken back, finishes that and returns a failure, because
/// nothing was accepted.
fn go_on(places: &StateDir, one: &Interrupted) -> Result<String, Failure> {
    if one.ending != Direction::Back {
        return recover::finish(places, one).map(|()| String::new());
    }
    // The answer is a failure.
    recover::finish_with(places, one, &mut as_notices(&print))?;
    let hint = format!("look at the changes and accept them again: nexus changes show --run {}", one.run);
    let message = format!("nothing was accepted: the commit of the run {} was being taken back", one.run);
    Err(Failure::refused("taken_back", message, hint))
}

/// The parts of a layer that an accept takes.
struct How {
    /// Each hunk is asked about.
    patch: bool,
    /// Changes in conflict are rejected.
    keeps_ours: bool,
    conflicts: Conflicts,
}

fn decide(mut pending: Pending, rules: &Rules, how: &How, taken_back: &[ByteText]) -> Result<String, Failure> {
    let (mut text, left_out) =
        if how.patch { (patch::command(&pending, rules)?, Vec::new()) } else { commit(&pending, rules, how)? };
    for LeftOut { conflict, change } in &left_out {
        let what = if how.keeps_ours && change.is_some() { "kept yours of" } else { "left waiting" };
        let path = conflict.path.as_path().display();
        text.push_str(&one_line(&format!("{what} {path} ({})", change_text::happened(conflict))));
        text.push('\n');
    }
    if how.keeps_ours && !left_out.is_empty() && pending.layer.root().exists() {
        let mut all = pending.rules.except.clone();
        all.extend(left_out.into_iter().filter_map(|one| one.change));
        rejected::write(pending.layer.root(), &all)?;
        pending.rules.except = all;
    }
    if !taken_back.is_empty() && pending.layer.root().exists() {
        rejected::write(pending.layer.root(), &pending.rules.except)?;
    }
    for path in taken_back {
        text.push_str(&one_line(&format!("{} is not rejected any more", path.as_path().display())));
        text.push('\n');
    }
    let left = pending.finish(&print)?;
    Ok(text + &still_waiting(left))
}

fn commit(pending: &Pending, rules: &Rules, how: &How) -> Result<(String, Vec<LeftOut>), Failure> {
    let Around { done: committed, left_out, theirs } = {
        let _alone = pending.alone(&print)?;
        let _held = signals::hold()?;
        commit_around(pending, rules, how.conflicts, &print)?
    };
    let kept = theirs.iter().map(|one| {
        let path = one.path.as_path().display();
        let yours = match &one.copy {
            Some(copy) => format!("yours is {}", one.after(copy).as_path().display()),
            None => "you had removed it".to_owned(),
        };
        let line = match one.merged() {
            Some(merge) => {
                format!("merged {path}; {yours}, the run's is {}", one.after(&merge.copy).as_path().display())
            }
            None => format!("took the run's version of {path}; {yours}"),
        };
        one_line(&line) + "\n"
    });
    let text = accepted_text(&committed)? + &kept.collect::<String>();
    if committed.changes.changes.is_empty() && !left_out.is_empty() {
        return Ok((text, left_out));
    }
    let in_part = pending.one.is_part.then(|| pending.layer.upper());
    if committed.changes.changes.is_empty() {
        let is_unnamed = |change: &Change| {
            change.protected.is_some() && !change.by_content && !rules.accepts_protected(&change.path.0)
        };
        let by_name = committed.parked.iter().any(|change| rules.is_chosen(&change.path.0) && is_unnamed(change));
        let (message, hint) = if by_name {
            let hint = "name the paths, or add --protected when you have looked at them (nexus changes diff)";
            (
                format!(
                    "nothing was accepted: what waits is protected and has to be named{}",
                    names(&committed, rules)
                ),
                hint,
            )
        } else if let Some((path, why)) = held_by_content(&committed, rules) {
            let message = format!("nothing was accepted: {path} is held back ({why})");
            return Err(Failure::refused("protected", message, with_content(&path)));
        } else if let Some((path, why)) = held_for_ever(&committed, rules) {
            let hint = if why.starts_with("the changes of the run") {
                "accept or reject the changes of that run first, or add --protected to accept these all the same"
            } else {
                "what waits can be accepted once nothing holds it back: nexus changes show names what does"
            };
            let by_hand = in_part.map(|upper| format!("what was saved is in {}: copy it by hand", upper.display()));
            let message = format!("nothing was accepted: {path} is held back ({})", held_text::reason(why));
            return Err(Failure::refused("protected", message, by_hand.unwrap_or_else(|| hint.to_owned())));
        } else {
            let hint = "accept or reject everything: nexus changes accept --protected";
            ("nothing was accepted: the changes hang together and cannot be taken apart".to_owned(), hint)
        };
        return Err(Failure::refused("protected", message, hint));
    }
    Ok((text + &held_back(&committed, rules, in_part.as_deref()), left_out))
}

/// Returns the first chosen directory that waits because of an entry in it, unless the user asked to accept protected entries too.
fn held_by_content(committed: &Committed, rules: &Rules) -> Option<(String, String)> {
    let mut chosen = committed.parked.iter().filter(|change| rules.is_chosen(&change.path.0));
    let held = chosen.find(|change| change.by_content && !rules.accept_protected)?;
    let why = held_text::reason(held.protected.as_deref()?).into_owned();
    Some((one_line(&held.path.as_path().display().to_string()), why))
}

/// Makes the failure for a path that cannot be accepted by its name.
fn with_content(path: &str) -> String {
    format!("to name it is not enough: look at it (nexus changes diff), then nexus changes accept --protected {path}")
}

/// A chosen path that was accepted and still waits, with the entry that holds it back.
fn held_for_ever<'a>(committed: &'a Committed, rules: &Rules) -> Option<(String, &'a str)> {
    let mut chosen = committed.parked.iter().filter(|change| rules.is_chosen(&change.path.0));
    let held = chosen.find_map(|change| Some((change.path.as_path(), change.protected.as_deref()?)));
    held.map(|(path, why)| (one_line(&path.display().to_string()), why))
}

/// Lists the protected names below a path that the user chose. Empty when the user chose everything.
fn names(committed: &Committed, rules: &Rules) -> String {
    let chosen = committed.parked.iter().filter(|change| rules.only.is_some() && rules.is_chosen(&change.path.0));
    let held = chosen.filter(|change| change.protected.is_some());
    let names: Vec<_> = held.map(|change| change.path.as_path().display().to_string()).take(LISTED).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

/// Names that a message lists.
const LISTED: usize = 20;

/// Lists the chosen changes that still wait because they are protected. `in_part` is the directory with what was saved of a
/// layer of which there is only a part.
fn held_back(committed: &Committed, rules: &Rules, in_part: Option<&Path>) -> String {
    let chosen = committed.parked.iter().filter(|change| rules.is_chosen(&change.path.0));
    let mut lines: Vec<String> = chosen
        .filter_map(|change| Some((change.path.as_path(), change.protected.as_ref()?)))
        .map(|(path, why)| one_line(&format!("held back {} ({})", path.display(), held_text::reason(why))) + "\n")
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if more > 0 {
        lines.push(format!("held back {more} more\n"));
    }
    lines.push("Look at them (nexus changes diff), then name each path itself or add --protected.\n".to_owned());
    if let Some((path, _)) = held_by_content(committed, rules) {
        lines.push(one_line(&format!("For {path}: {}.", with_content(&path))) + "\n");
    }
    if let Some(upper) = in_part {
        let line = format!("What no accept brings can be copied by hand from {}.", upper.display());
        lines.push(one_line(&line) + "\n");
    }
    lines.concat()
}
