//! `nexus changes accept`: everything, some paths, or some hunks.
//!
//! Protected entries are accepted only when they are named, or with `--protected`: an accept of everything must not
//! bring a git hook along unseen.

use super::{Pending, patch, paths, show};
use crate::args::AcceptArgs;
use crate::failure::{Failure, one_line};
use crate::run;
use nexus_facility::{Committed, Rules};

/// Accepts, and says what is in the workspace now and what still waits.
pub fn command(args: &AcceptArgs) -> Result<String, Failure> {
    let pending = Pending::open(args.run)?;
    let only = paths::read(&args.paths, &pending.one.workspace)?;
    let changes = pending.changes()?;
    if let Some(only) = &only {
        paths::must_match(only, &changes)?;
    }
    let rules = Rules {
        accept_protected: args.protected || only.is_some(),
        only,
        ..pending.rules.clone()
    };
    let _alone = run::lock(&pending.one.workspace)
        .map_err(|error| Failure::refused("lock", format!("the workspace cannot be locked: {error}"), ""))?;
    if args.patch {
        return patch::command(pending, &rules);
    }
    let committed = pending
        .layer
        .commit(&pending.workspace, &rules)
        .map_err(|error| Failure::refused("commit", run::chain(&error), "nexus changes list finishes or undoes it"))?;
    let text = told(&committed)?;
    if committed.changes.changes.is_empty() {
        let message = "nothing was accepted: what waits is protected and has to be named";
        let hint = "name the paths, or add --protected when you have looked at them (nexus changes diff)";
        return Err(Failure::refused("protected", message, hint));
    }
    let left = pending.finish()?;
    Ok(text + &waiting(left))
}

/// What a commit brought, or which conflicts stopped it.
pub fn told(committed: &Committed) -> Result<String, Failure> {
    if let Some(first) = committed.conflicts.first() {
        let names: Vec<_> =
            committed.conflicts.iter().map(|one| one.path.as_path().display().to_string()).take(5).collect();
        let message = format!("nothing was accepted: changed outside since the run: {}", names.join(", "));
        let hint = format!("look at {} and keep your version, or take theirs by hand from nexus changes diff", first.path.as_path().display());
        return Err(Failure::refused("conflict", message, hint));
    }
    let lines = committed.changes.changes.iter().map(|change| one_line(&format!("accepted {}", show::line(change))) + "\n");
    Ok(lines.collect())
}

/// What is left to decide.
pub fn waiting(left: usize) -> String {
    match left {
        0 => "Nothing of this run waits any more.\n".to_owned(),
        1 => "1 change still waits: nexus changes show\n".to_owned(),
        more => format!("{more} changes still wait: nexus changes show\n"),
    }
}
