//! G01: a secret in the environment of whoever calls the driver, looked for inside in every way that a command can ask.

use super::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job, Ran};
use crate::host::world::WorldError;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const VARIABLE: &str = "NEXUS_ESCAPE_SECRET";
/// The last word proves that the command came to its end.
const LOOK: &str = "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; echo looked";

/// `seen`, `absent`, or that nobody looked.
fn verdict(bench: &Bench, ran: &Ran) -> Answer {
    let text = ran.text();
    let word = match (text.contains(&bench.world.context.secret), text.contains("looked")) {
        (true, _) => "seen",
        (false, true) => "absent",
        (false, false) => "did-not-run",
    };
    Answer::of(word).with(ran.summary())
}

/// The driver's own environment, and the one variable that the caller names.
pub fn environment(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let look = ["/bin/sh", "-c", LOOK];
    let layered = bench.run(&Job::new(&["--changes", "discard"], &look), LIMIT)?;
    let direct = bench.run(&Job::new(&["--direct"], &look), LIMIT)?;
    let named = bench.run(&Job::new(&["--changes", "discard", "--env", VARIABLE], &look), LIMIT)?;
    Ok(vec![
        Seen::new("G01", "layered", verdict(bench, &layered)),
        Seen::new("G01", "direct", verdict(bench, &direct)),
        Seen::new("G01", "named_by_the_caller", verdict(bench, &named)),
    ])
}
