//! A10 and N04: what a command can do to the terminal of the operator who started it.

use super::detached::Detached;
use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Driver, Job};
use crate::host::terminal::{Keys, Shown, run};
use crate::host::world::WorldError;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const DISCARD: &[&str] = &["--changes", "discard"];
const TTY: &[&str] = &["--tty", "--changes", "discard"];

/// Reports whether the label reached the operator's screen or input.
fn reached(shown: &Shown, label: &str) -> Answer {
    let word = match (shown.text.contains(label) || shown.typed.contains(label), shown.text.contains("played")) {
        (true, _) => "typed",
        (false, true) => "nothing",
        (false, false) => "did-not-run",
    };
    Answer::of(word).with(shown.summary())
}

/// Returns the answer that the part itself got.
fn answered(shown: &Shown, call: &str) -> Answer {
    let found = shown.text.split_whitespace().find_map(|word| word.strip_prefix(call)?.strip_prefix('='));
    Answer::of(found.unwrap_or("did-not-run")).with(shown.summary())
}

/// Input that is forged with TIOCSTI and TIOCLINUX on every terminal in sight (CVE-2017-5226, CVE-2016-10124).
pub fn forged_input(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    // In no argument and no output as a whole: the operator sees it only when it was typed.
    let label = format!("{}typed", bench.world.context.token.to_uppercase());
    let (first, second) = label.split_at(4);
    let words = ["act", "type", first, second];
    let mut seen = Vec::new();
    let with = run(bench, &bench.part(TTY, &words), &[], LIMIT)?;
    seen.push(Seen::new("A10", "run_with_a_terminal", reached(&with, &label)));
    seen.push(Seen::new("A10", "tiocsti", answered(&with, "tiocsti")));
    seen.push(Seen::new("A10", "tiocsti_high_bits", answered(&with, "high-bits")));
    seen.push(Seen::new("A10", "tioclinux", answered(&with, "tioclinux")));
    let without = run(bench, &bench.part(DISCARD, &words), &[], LIMIT)?;
    seen.push(Seen::new("A10", "run_without_one", reached(&without, &label)));
    let ask = bench.part(TTY, &["act", "answer"]);
    let twin = run(bench, &ask, &[Keys { after: "what?", keys: "hello\r" }], LIMIT)?;
    let works = twin.text.contains("heard hello") && twin.end == "exit 0";
    seen.push(Seen::new("A10", "keys_arrive", Answer::choose(works, "ok", "deaf").with(twin.summary())));
    if matches!(bench.driver, Driver::Unsandboxed) {
        return Ok(seen);
    }
    let part = bench.part(TTY, &["act", "linger", &bench.world.context.token, "60"]);
    match Detached::start(bench, "type", part)? {
        Err(ran) => {
            for case in ["exec_with_a_terminal", "attached"] {
                seen.push(Seen::new("A10", case, Answer::of("did-not-run").with(ran.summary())));
            }
        }
        Ok(detached) => {
            let command = bench.world.attack(&words);
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let shown = run(bench, &detached.job(&["exec", "--tty"], &command), &[], LIMIT)?;
            seen.push(Seen::new("A10", "exec_with_a_terminal", reached(&shown, &label)));
            detached.remove()?;
            seen.push(Seen::new("A10", "attached", attached(bench, &label, &words)?));
        }
    }
    Ok(seen)
}

/// The operator attaches, and only then the command types.
fn attached(bench: &Bench, label: &str, words: &[&str]) -> Result<Answer, WorldError> {
    let command = format!("read go; {}", bench.world.attack(words).join(" "));
    let job = Job::new(TTY, &["/bin/sh", "-c", &format!("echo waits; {command}")]);
    match Detached::start(bench, "attach", job)? {
        Err(ran) => Ok(Answer::of("did-not-run").with(ran.summary())),
        Ok(detached) => {
            let keys = [Keys { after: "waits", keys: "go\r" }];
            let shown = run(bench, &detached.job(&["attach"], &[]), &keys, LIMIT)?;
            detached.remove()?;
            Ok(reached(&shown, label))
        }
    }
}

/// Title, clipboard, link, device attributes, cursor report, window report, printer, DCS, APC, reset, ENQ, and C1 bytes.
/// Octal for printf(1), which dash has built in.
const HOSTILE: &str = r"\033]0;T\007 \033]52;c;eA==\007 \033]8;;http://x\033\\ \033[c \033[6n \033[21t \033[5i \033P$qm\033\\ \033_x\033\\ \033c \005 \302\2336n \302\235 0;T\302\234";

/// `stripped` when no introducer of a control sequence is left but those that colour.
fn obeyed(shown: &Shown) -> Answer {
    let rest = shown.text.replace("\u{1b}[0m", "");
    let hostile = rest.contains(['\u{1b}', '\u{5}', '\u{7}', '\u{9b}', '\u{9d}', '\u{90}', '\u{9f}']);
    let word = match (hostile, rest.contains("played")) {
        (true, _) => "passed",
        (false, true) => "stripped",
        (false, false) => "did-not-run",
    };
    Answer::of(word).with(shown.summary())
}

/// Prints hostile text on the operator's terminal (CVE-2021-25743, CVE-2003-0063).
pub fn printed(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let script = format!("printf '{HOSTILE}'; echo played");
    let hostile = ["/bin/sh", "-c", &script];
    let mut seen = Vec::new();
    let mut on_terminal = |case, job: &Job| -> Result<(), WorldError> {
        seen.push(Seen::new("N04", case, obeyed(&run(bench, job, &[], LIMIT)?)));
        Ok(())
    };
    on_terminal("run", &Job::new(DISCARD, &hostile))?;
    on_terminal("run_with_a_terminal", &Job::new(TTY, &hostile))?;
    on_terminal("run_raw", &Job::new(&["--raw", "--changes", "discard"], &hostile))?;
    let on_stderr = format!("{{ {script}; }} >&2");
    on_terminal("errors", &Job::new(DISCARD, &["/bin/sh", "-c", &on_stderr]))?;
    let plain =
        run(bench, &Job::new(DISCARD, &["/bin/sh", "-c", r"printf 'gr\303\274n \033[31mred\033[0m\n'"]), &[], LIMIT)?;
    let whole = plain.text.contains("grün \u{1b}[31mred\u{1b}[0m");
    seen.push(Seen::new("N04", "text_and_colours", Answer::choose(whole, "ok", "lost").with(plain.summary())));
    seen.extend(logged(bench, &script)?);
    Ok(seen)
}

/// The same through `logs`, of a sandbox that had no terminal to look at.
fn logged(bench: &Bench, script: &str) -> Result<Vec<Seen>, WorldError> {
    let cases: [(&str, &[&str]); 2] = [("logs", &["logs"]), ("logs_raw", &["logs", "--raw"])];
    let linger = bench.world.attack(&["act", "linger", &bench.world.context.token, "60"]).join(" ");
    let job = Job::new(DISCARD, &["/bin/sh", "-c", &format!("{script}; {linger}")]);
    let detached = match Detached::start(bench, "logs", job)? {
        Ok(detached) => detached,
        Err(ran) => {
            let seen = |(case, _)| Seen::new("N04", case, Answer::of("did-not-run").with(ran.summary()));
            return Ok(cases.map(seen).into());
        }
    };
    let printed = detached.printed("started")?.stdout.contains("started");
    let mut seen = Vec::new();
    for (case, words) in cases {
        let shown = run(bench, &detached.job(words, &[]), &[], LIMIT)?;
        let answer = if printed { obeyed(&shown) } else { Answer::of("did-not-run").with(shown.summary()) };
        seen.push(Seen::new("N04", case, answer));
    }
    detached.remove()?;
    Ok(seen)
}
