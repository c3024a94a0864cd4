//! G01: a secret in the environment of the driver's caller, looked for inside in every way that a command can ask.

use super::detached::Detached;
use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job};
use crate::host::terminal::{Keys, run};
use crate::host::world::WorldError;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const VARIABLE: &str = "NEXUS_ESCAPE_SECRET";
/// The last word proves that the command came to its end; it is written so that the echo of what is typed does not.
const LOOK: &str = "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; echo loo''ked";

/// Returns `seen`, `absent`, or that no probe looked.
fn verdict(bench: &Bench, text: &str, summary: String) -> Answer {
    let word = match (text.contains(&bench.world.context.secret), text.contains("looked")) {
        (true, _) => "seen",
        (false, true) => "absent",
        (false, false) => "did-not-run",
    };
    Answer::of(word).with(summary)
}

/// The driver's own environment, and the one variable that the caller names.
pub fn environment(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let inspect = ["/bin/sh", "-c", LOOK];
    let mut seen = Vec::new();
    let runs: [(&str, &[&str]); 3] = [
        ("layered", &["--changes", "discard"]),
        ("direct", &["--direct"]),
        ("named_by_the_caller", &["--changes", "discard", "--env-secret", VARIABLE]),
    ];
    for (case, flags) in runs {
        let ran = bench.run(&Job::new(flags, &inspect), LIMIT)?;
        seen.push(Seen::new("G01", case, verdict(bench, &ran.text(), ran.summary())));
    }
    let keys = [Keys { after: "ready", keys: &format!("{LOOK}; exit\r") }];
    let workspace = bench.world.context.workspace.to_string_lossy().into_owned();
    let verb = ["shell", "--changes", "discard", "--workspace", &workspace, "--env", "PS1=ready "];
    let job = Job { verb: verb.map(str::to_owned).into(), ..Job::default() };
    let shown = run(bench, &job, &keys, LIMIT)?;
    seen.push(Seen::new("G01", "shell", verdict(bench, &shown.text, shown.summary())));
    seen.extend(detached(bench, &inspect)?);
    Ok(seen)
}

/// A sandbox whose supervisor outlives the command that started it, and an exec inside.
fn detached(bench: &Bench, inspect: &[&str]) -> Result<Vec<Seen>, WorldError> {
    let linger = bench.world.attack(&["act", "linger", &bench.world.context.token, "60"]).join(" ");
    let job = Job::new(&["--changes", "discard"], &["/bin/sh", "-c", &format!("{LOOK}; {linger}")]);
    let detached = match Detached::start(bench, "secret", job)? {
        Ok(detached) => detached,
        Err(ran) => {
            let cases = ["detached", "exec", "exec_named_by_the_caller"];
            return Ok(cases.map(|case| Seen::new("G01", case, verdict(bench, "", ran.summary()))).into());
        }
    };
    let logs = detached.printed("started")?;
    let exec = detached.ask(&["exec"], inspect)?;
    let named = detached.ask(&["exec", "--env-secret", VARIABLE], inspect)?;
    detached.remove()?;
    Ok(vec![
        Seen::new("G01", "detached", verdict(bench, &logs.stdout, logs.summary())),
        Seen::new("G01", "exec", verdict(bench, &exec.stdout, exec.summary())),
        Seen::new("G01", "exec_named_by_the_caller", verdict(bench, &named.stdout, named.summary())),
    ])
}
