//! Messages to the caller, each on a line of standard error.

use crate::failure::{Failure, one_line};
use crate::terminal::out::{stderr, write_unless_closed};
use nexus_layer::{Leftover, Stash};
use nexus_runner::notices::{self, Notice};

/// Tells the caller something, on one line of standard error.
pub fn tell(text: &str) {
    let line = format!("nexus: {}\n", one_line(text));
    // An error is ignored: standard error is the only place for the line.
    write_unless_closed(&mut stderr(), line.as_bytes()).ok();
}

/// Prints a notice of the engine.
pub fn print(notice: &Notice) {
    match notice {
        Notice::NotCleared(error) => tell(&Failure::from(error.clone()).text()),
        other => tell(&other.to_string()),
    }
}

/// Reports the files that a commit or a reject could not remove. They stay, and no later command waits for them.
pub fn tell_leftovers<'a>(left: impl IntoIterator<Item = &'a Leftover>) {
    notices::tell_leftovers(&print, left);
}

/// Names the commits with uncommitted changes that git took out of the working tree.
pub fn tell_stashes(stashes: &[Stash]) {
    for one in stashes {
        print(&Notice::Stash(one.clone()));
    }
}
