//! The text that reports an accept: the committed changes, the conflicts, and the changes that are still parked.

use crate::change_text;
use crate::failure::{Failure, one_line};
use nexus_layer::{Committed, Conflict, Outside};

/// Names the ways around conflicts.
pub const AROUND_CONFLICTS: &str = "nexus changes accept --rest accepts what is not in conflict, --ours also keeps your \
    version of what is, --merge joins the changes of both where git knows what they were made of, and --theirs takes the run's \
    version and keeps yours beside it; the version of the run is in nexus changes diff";

/// Lists the changes that a commit accepted, or fails with the conflicts that stopped it.
pub fn accepted_text(committed: &Committed) -> Result<String, Failure> {
    if let Some(line) = change_text::unwatched_line(committed.unwatched) {
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
        // The answer is a failure, which is one line; what was accepted all the same is printed before it.
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
