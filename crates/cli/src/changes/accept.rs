//! `nexus changes accept`: everything, some paths, or some hunks.
//!
//! Protected entries are accepted only when they are named themselves, or with `--protected`: an accept of
//! everything, or of a directory, must not bring a git hook along unseen.

use super::{Pending, State, patch, paths, recover, rejected, waiting};
use crate::args::AcceptArgs;
use crate::change_text;
use crate::failure::{Failure, one_line};
use crate::run;
use crate::run::recover::{Direction, Interrupted};
use nexus_layer::meta::EntryType;
use nexus_layer::{Change, ChangeKind, CommitError, Committed, Conflict, Outside, Rules, Yours};
use nexus_model::ByteText;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::note::CutShort;
use std::path::Path;

/// Accepts, and says what is in the workspace now and what still waits.
pub fn command(args: &AcceptArgs) -> Result<String, Failure> {
    let places = crate::host::ready_state_dir()?;
    run::recover::refuse_left(&places, args.run)?;
    let interrupted = run::recover::interrupted(&places, &run::driver())?;
    run::recover::refuse_left(&places, args.run)?;
    let one = waiting::only_one(waiting::all(&places, &interrupted)?, args.run)?;
    if one.state == State::Interrupted {
        if !args.paths.is_empty() || args.patch {
            let message = format!("the commit of the run {} was interrupted and can only go on as a whole", one.run);
            return Err(Failure::usage("paths", message, "leave the paths and --patch out"));
        }
        return go_on(&places, &one.interrupted(&places));
    }
    let mut pending = Pending::of(places, one)?;
    let only = paths::read(&args.paths, &pending.one.workspace)?;
    let mut taken_back = Vec::new();
    if pending.one.is_part && only.is_none() && !args.patch {
        return Err(only_a_part(&pending.one.run));
    }
    if let Some(only) = &only {
        let all = pending.everything()?;
        paths::must_stand_alone(only, &all)?;
        (pending.rules.except, taken_back) = rejected::without(&pending.rules.except, only, &all);
    }
    let named = only.clone().unwrap_or_default();
    let rules = Rules { accept_protected: args.protected, named, only, ..pending.rules.clone() };
    // The record outlives the lock, so that whoever finds the record removes what a killed accept left of the lock.
    let record = pending.record()?;
    let how = How {
        patch: args.patch,
        around: args.rest || args.ours || args.theirs || args.merge,
        keeps_ours: args.ours,
        takes_theirs: args.theirs,
        merges: args.merge,
    };
    let done = decide(pending, &rules, &how, &taken_back);
    // Before the record goes, by which the next command finds what a killed one did not say.
    let done = done.and_then(|text| super::say(&text).map(|()| String::new()));
    // A commit that stopped half-way is found by its record.
    if !matches!(&done, Err(failure) if failure.code == run::INTERRUPTED)
        && let Err(error) = record.remove()
    {
        if let Err(failure) = &done {
            crate::notices::tell(&failure.text());
        }
        return Err(Failure::refused("state_dir", format!("the record of the accept: {error}"), ""));
    }
    done
}

/// Refuses to accept everything of a layer of which only a part was saved: the rest of it could be what makes the
/// part right.
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
    recover::finish_with(places, one, &mut run::recover::say_aside)?;
    let hint = format!("look at the changes and accept them again: nexus changes show --run {}", one.run);
    let message = format!("nothing was accepted: the commit of the run {} was being taken back", one.run);
    Err(Failure::refused("taken_back", message, hint))
}

/// The parts of a layer that an accept takes.
struct How {
    /// Each hunk is asked about.
    patch: bool,
    /// Changes in conflict are left waiting.
    around: bool,
    /// Changes in conflict are rejected.
    keeps_ours: bool,
    /// Files in conflict come, and the workspace's versions are kept beside.
    takes_theirs: bool,
    /// Files in conflict are merged, and both versions are kept beside.
    merges: bool,
}

fn decide(mut pending: Pending, rules: &Rules, how: &How, taken_back: &[ByteText]) -> Result<String, Failure> {
    let (mut text, left_out) =
        if how.patch { (patch::command(&pending, rules)?, Vec::new()) } else { commit(&pending, rules, how)? };
    for conflict in &left_out {
        let what = if how.keeps_ours { "kept yours of" } else { "left waiting" };
        let path = conflict.path.as_path().display();
        text.push_str(&one_line(&format!("{what} {path} ({})", change_text::happened(conflict))));
        text.push('\n');
    }
    if how.keeps_ours && !left_out.is_empty() && pending.layer.root().exists() {
        let mut all = pending.rules.except.clone();
        all.extend(left_out.into_iter().map(|conflict| conflict.path));
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
    let left = pending.finish()?;
    Ok(text + &waiting(left))
}

/// Describes a failed commit to the user and to the process that keeps the record.
pub fn failed(error: &CommitError, pending: &Pending) -> Failure {
    let run = &pending.one.run;
    match error {
        CommitError::Interrupted { .. } => Failure::refused(
            run::INTERRUPTED,
            nexus_runner::causes::chain(error),
            run::unsaid::go_on(&pending.places, run),
        ),
        CommitError::Altered { .. } => {
            let hint = format!("nothing was changed. Look at the changes again: nexus changes show --run {run}");
            Failure::refused("commit", nexus_runner::causes::chain(error), hint)
        }
        CommitError::Read(_) | CommitError::Damaged { .. } | CommitError::Prepare { .. } => {
            Failure::refused("commit", nexus_runner::causes::chain(error), "nothing was changed")
        }
    }
}

/// Tries of an accept that leaves conflicts out: each names all that it found, and later ones what came meanwhile.
const MAX_TRIES: usize = 5;

/// The outcome of an accept that goes around conflicts, or decides them.
struct Around {
    done: Committed,
    left_out: Vec<Conflict>,
    /// Conflicts that were decided for the run.
    theirs: Vec<Yours>,
}

/// Commits what the rules choose. Conflicts are left out or decided, as the user wants it.
fn commit_around(pending: &Pending, rules: &Rules, how: &How) -> Result<Around, Failure> {
    let mut rules = rules.clone();
    let mut left_out = Vec::new();
    let mut tries = 1;
    let done = loop {
        let done = pending.layer.commit(&pending.workspace, &rules);
        let is_over = |done: &Committed| !how.around || done.conflicts.is_empty() || !done.changes.changes.is_empty();
        match done {
            Ok(done) if tries < MAX_TRIES && !is_over(&done) => {
                tries += 1;
                // What is kept of versions that changed again is none to decide by.
                let tried: Vec<_> = rules.theirs.extract_if(.., |one| is_in(&done.conflicts, one)).collect();
                forget(pending, &tried)?;
                let mut left = Vec::new();
                for conflict in done.conflicts {
                    let (layer, workspace, path) = (&pending.layer, &pending.workspace, &conflict.path);
                    let kept = match (how.takes_theirs, how.merges) {
                        (true, _) => Some(layer.keep_yours(workspace, path)),
                        // A file whose merge is not enough, because more than its text is in conflict, waits.
                        (false, true) if tried.iter().all(|one| one.path != *path) => {
                            Some(layer.merge_yours(workspace, path))
                        }
                        (false, _) => None,
                    };
                    match kept {
                        Some(Ok(yours)) => rules.theirs.push(yours),
                        Some(Err(error)) => {
                            crate::notices::tell(&one_line(&format!("{error}: it waits")));
                            left.push(conflict);
                        }
                        None => left.push(conflict),
                    }
                }
                rules.except.extend(left.iter().map(|conflict| conflict.path.clone()));
                rules.except.extend(around_them(&done.parked, &left));
                left_out.extend(left);
            }
            other => break other,
        }
    };
    match done {
        Ok(done) => {
            let came = |one: &Yours| done.changes.changes.iter().any(|change| change.path == one.path);
            let (theirs, unused): (Vec<_>, Vec<_>) = rules.theirs.into_iter().partition(came);
            forget(pending, &unused)?;
            Ok(Around { done, left_out, theirs })
        }
        Err(error) => {
            // After an interruption the commit may still go on: then the copies are what is left of the workspace's versions.
            if !matches!(error, CommitError::Interrupted { .. }) {
                forget(pending, &rules.theirs)?;
            }
            Err(failed(&error, pending))
        }
    }
}

/// Lists the changes that take a directory away in which something is in conflict.
fn around_them<'a>(parked: &'a [Change], conflicts: &'a [Conflict]) -> impl Iterator<Item = ByteText> + 'a {
    let takes = |change: &&Change| {
        let from = match &change.kind {
            ChangeKind::Renamed { from } => from,
            ChangeKind::Deleted | ChangeKind::Type { was: EntryType::Directory } => &change.path,
            ChangeKind::Added | ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Type { .. } => return false,
        };
        conflicts.iter().any(|conflict| conflict.path.as_path().starts_with(from.as_path()))
    };
    parked.iter().filter(takes).map(|change| change.path.clone())
}

fn is_in(conflicts: &[Conflict], one: &Yours) -> bool {
    conflicts.iter().any(|conflict| conflict.path == one.path)
}

/// Removes copies of versions that stayed at their places.
fn forget(pending: &Pending, all: &[Yours]) -> Result<(), Failure> {
    all.iter().try_for_each(|yours| {
        pending.layer.forget_yours(&pending.workspace, yours).map_err(|error| {
            let copy = yours.copy.as_ref().map(|copy| copy.as_path().display().to_string()).unwrap_or_default();
            let hint = format!("{copy} is a copy of a file that is still at its place: remove it");
            Failure::refused("commit", nexus_runner::causes::chain(&error), one_line(&hint))
        })
    })
}

fn commit(pending: &Pending, rules: &Rules, how: &How) -> Result<(String, Vec<Conflict>), Failure> {
    let Around { done: committed, left_out, theirs } = {
        let _alone = pending.alone()?;
        let _held = run::hold_signals()?;
        commit_around(pending, rules, how)?
    };
    let kept = theirs.iter().map(|one| {
        let path = one.path.as_path().display();
        let yours = match &one.copy {
            Some(copy) => format!("yours is {}", copy.as_path().display()),
            None => "you had removed it".to_owned(),
        };
        let line = match one.merged() {
            Some(merge) => format!("merged {path}; {yours}, the run's is {}", merge.copy.as_path().display()),
            None => format!("took the run's version of {path}; {yours}"),
        };
        one_line(&line) + "\n"
    });
    let text = told(&committed)? + &kept.collect::<String>();
    if committed.changes.changes.is_empty() && !left_out.is_empty() {
        return Ok((text, left_out));
    }
    let in_part = pending.one.is_part.then(|| pending.layer.upper());
    if committed.changes.changes.is_empty() {
        let is_unnamed = |change: &Change| change.protected.is_some() && !rules.accepts_protected(&change.path.0);
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
        } else if let Some((path, why)) = held_for_ever(&committed, rules) {
            let hint = "what waits can be accepted once nothing holds it back: nexus changes show names what does";
            let by_hand = in_part.map(|upper| format!("what was saved is in {}: copy it by hand", upper.display()));
            let message = format!("nothing was accepted: {path} is held back ({why})");
            return Err(Failure::refused("protected", message, by_hand.unwrap_or_else(|| hint.to_owned())));
        } else {
            let hint = "accept or reject everything: nexus changes accept --protected";
            ("nothing was accepted: the changes hang together and cannot be taken apart".to_owned(), hint)
        };
        return Err(Failure::refused("protected", message, hint));
    }
    Ok((text + &held_back(&committed, rules, in_part.as_deref()), left_out))
}

/// A path that was chosen, and what holds it back although it was accepted.
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
        .map(|(path, why)| one_line(&format!("held back {} ({why})", path.display())) + "\n")
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
    if let Some(upper) = in_part {
        let line = format!("What no accept brings can be copied by hand from {}.", upper.display());
        lines.push(one_line(&line) + "\n");
    }
    lines.concat()
}

/// The way out of a conflict.
pub const AROUND_CONFLICTS: &str = "nexus changes accept --rest accepts what is not in conflict, --ours also keeps your \
    version of what is, --merge joins the changes of both where git knows what they were made of, and --theirs takes the run's \
    version and keeps yours beside it; the version of the run is in nexus changes diff";

/// Lists the changes that a commit accepted, or fails with the conflicts that stopped it.
pub fn told(committed: &Committed) -> Result<String, Failure> {
    if let Some(line) = run::unwatched_line(committed.unwatched) {
        crate::notices::tell(&line);
    }
    let accepted = committed
        .changes
        .changes
        .iter()
        .map(|change| one_line(&format!("accepted {}", change_text::line(change))) + "\n");
    let accepted: String = accepted.collect();
    crate::notices::tell_leftovers(&committed.left);
    crate::notices::tell_stashes(&committed.stashes);
    if committed.conflicts.is_empty() {
        return Ok(accepted);
    }
    let what = |one: &Conflict| format!("{} {}", one.path.as_path().display(), change_text::happened(one));
    let names: Vec<_> = committed.conflicts.iter().take(5).map(what).collect();
    let names = names.join(", ");
    let message = if accepted.is_empty() {
        let is_event = committed.conflicts.iter().any(|one| one.outside != Outside::Blocked);
        format!("nothing was accepted: {}{names}", if is_event { "since the run " } else { "" })
    } else {
        // The answer is a failure, which is one line; what was accepted all the same is told before it.
        accepted.lines().for_each(crate::notices::tell);
        format!("not everything was accepted: {names}")
    };
    Err(Failure::refused("conflict", message, AROUND_CONFLICTS))
}

/// Describes to the user how many changes still wait for a decision.
pub fn waiting(left: usize) -> String {
    match left {
        0 => "Nothing of this run waits any more.\n".to_owned(),
        1 => "1 change still waits: nexus changes show\n".to_owned(),
        more => format!("{more} changes still wait: nexus changes show\n"),
    }
}
