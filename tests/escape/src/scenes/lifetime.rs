//! A11, E06 to E09: when everything inside must be gone.

use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job, Ran, Running};
use crate::host::inspect::{children_of, end_strays, processes_with, wait_until};
use crate::host::world::WorldError;
use crate::sys;
use std::time::Duration;

const COMMIT: &[&str] = &["--changes", "commit"];
const SECOND: Duration = Duration::from_secs(1);

fn label_of(bench: &Bench, name: &str) -> String {
    format!("{}-{name}", bench.world.context.token)
}

/// `gone` when no process with the label is left after `limit`; ends the rest.
fn gone(label: &str, limit: Duration) -> Answer {
    let gone = wait_until(limit, || processes_with(label).is_empty());
    let left = processes_with(label);
    end_strays(label);
    Answer::choose(gone, "gone", "alive").with(format!("{} left", left.len()))
}

fn started(running: &Running) -> bool {
    wait_until(Duration::from_secs(10), || running.printed().contains("started"))
}

fn act(bench: &Bench, flags: &[&str], part: &str, label: &str, seconds: u32) -> Job<'static> {
    bench.part(flags, &["act", part, label, &seconds.to_string()])
}

/// SIGKILL to the driver: it cannot clean up, so the kernel must (PDEATHSIG, pid namespace).
pub fn killed_supervisor(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    for (case, part) in [("killed_supervisor", "stubborn"), ("killed_supervisor_of_a_daemon", "guard")] {
        let label = label_of(bench, case);
        let running = bench.start(&act(bench, COMMIT, part, &label, 30))?;
        let alive = started(&running);
        let inside = processes_with(&label).iter().filter(|pid| **pid != running.pid).count();
        if part == "stubborn" {
            let answer = Answer::choose(alive && inside > 0, "alive", "never-started");
            seen.push(Seen::new("A11", "runs_while_supervised", answer.with(format!("{inside} inside"))));
        }
        let killed = sys::kill(running.pid, libc::SIGKILL);
        let answer = if alive && killed.is_ok() { gone(&label, SECOND) } else { Answer::of("never-started") };
        end_strays(&label);
        let ran = running.finish(SECOND * 5)?;
        seen.push(Seen::new("A11", case, if alive { answer } else { answer.with(ran.summary()) }));
    }
    seen.push(killed_over_a_stopped_init(bench)?);
    Ok(seen)
}

/// PID 1 inside is stopped first, so that it cannot notice the end of its channel: only the kernel is left to end it
/// (PDEATHSIG; a SIGKILL reaches a stopped process).
fn killed_over_a_stopped_init(bench: &Bench) -> Result<Seen, WorldError> {
    let case = "killed_supervisor_of_a_stopped_init";
    let label = label_of(bench, case);
    let running = bench.start(&act(bench, COMMIT, "stubborn", &label, 30))?;
    let alive = started(&running);
    let children = children_of(running.pid);
    let stopped = children.iter().all(|pid| sys::kill(*pid, libc::SIGSTOP).is_ok() && is_stopped(*pid));
    let killed = sys::kill(running.pid, libc::SIGKILL);
    let played = alive && stopped && !children.is_empty() && killed.is_ok();
    let answer = if played { gone(&label, SECOND) } else { Answer::of("never-started") };
    end_strays(&label);
    let ran = running.finish(SECOND * 5)?;
    Ok(Seen::new("A11", case, answer.with(format!("{} children; {}", children.len(), ran.summary()))))
}

fn is_stopped(pid: i32) -> bool {
    wait_until(SECOND, || {
        // Field 3 of proc(5), after a name in parentheses.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// SIGTERM is ignored inside: the limit, the grace and two seconds are all it gets.
pub fn timeout(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let label = label_of(bench, "timeout");
    let mut grace = 1;
    let flags = ["--changes", "discard", "--timeout", "1s", "--grace", "1s"];
    let mut ran = bench.run(&act(bench, &flags, "stubborn", &label, 30), SECOND * 5)?;
    if ran.code == Some(2) {
        // A driver without `--grace` has its default of ten seconds.
        grace = 10;
        ran = bench.run(&act(bench, &flags[..4], "stubborn", &label, 30), SECOND * 14)?;
    }
    let in_time = ran.elapsed >= SECOND && ran.elapsed <= SECOND * (3 + grace);
    let left = gone(&label, SECOND * 2).answer;
    let answer = if ran.code == Some(124) && in_time && left == "gone" {
        Answer::of("timed-out")
    } else {
        Answer::of(ran.reason())
    };
    let label = label_of(bench, "reads-its-own-output");
    let flags = ["--changes", "discard", "--timeout", "3s", "--grace", "1s"];
    let thief = bench.run(&act(bench, &flags, "steal", &label, 30), SECOND * 8)?;
    let left = gone(&label, SECOND * 2).answer;
    let in_time = !thief.overdue && thief.elapsed <= SECOND * 6;
    let held = thief.code == Some(124) && in_time && left == "gone";
    let stolen = if held { Answer::of("timed-out") } else { Answer::of(thief.reason()) };
    let stolen = stolen.with(format!("{left}; {}", thief.summary()));
    let short = bench.run(&Job::new(&["--timeout", "20s"], &["/bin/true"]), SECOND * 10)?;
    Ok(vec![
        Seen::new("E06", "ignores_term", answer.with(format!("{left}; {}", ran.summary()))),
        Seen::new("E06", "reads_its_own_output", stolen),
        Seen::new("E06", "in_time", Answer::of(short.reason()).with(short.summary())),
    ])
}

/// The leader ends; what it detached must not outlive it.
pub fn leader_ends(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    let parts = [
        ("daemon_outlives_leader", "daemon", COMMIT),
        ("pipe_daemon_outlives_leader", "pipe-daemon", &["--changes", "commit", "--json"]),
    ];
    for (case, part, flags) in parts {
        let label = label_of(bench, case);
        let ran = bench.run(&act(bench, flags, part, &label, 20), SECOND * 4)?;
        let answer = if ran.code == Some(0) { gone(&label, SECOND * 2) } else { Answer::of(ran.reason()) };
        end_strays(&label);
        if part == "daemon" {
            seen.push(Seen::new("E07", "leader_ends", Answer::of(ran.reason()).with(ran.summary())));
        }
        seen.push(Seen::new("E07", case, answer.with(ran.summary())));
    }
    Ok(seen)
}

fn prompt(ran: &Ran) -> Answer {
    let prompt = ran.code == Some(0) && ran.elapsed < SECOND * 3;
    Answer::choose(prompt, "prompt", "waited").with(ran.summary())
}

/// A grandchild holds stdout open: the run must not wait for the end of the pipe.
pub fn stdout_held(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    for (case, part) in [("holds_stdout", "pipe-daemon"), ("closes_stdout", "daemon")] {
        let label = label_of(bench, case);
        let job = act(bench, &["--changes", "commit", "--json"], part, &label, 20);
        let ran = bench.run(&job, SECOND * 5)?;
        end_strays(&label);
        seen.push(Seen::new("E08", case, prompt(&ran)));
    }
    Ok(seen)
}

/// Cancelled twice, and at every moment of the start.
pub fn cancelled(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let label = label_of(bench, "cancelled-twice");
    let running = bench.start(&act(bench, COMMIT, "stubborn", &label, 30))?;
    let alive = started(&running);
    let first = sys::kill(running.pid, libc::SIGTERM);
    wait_until(Duration::from_millis(200), || false);
    // The first may already have ended it.
    let second = sys::kill(running.pid, libc::SIGINT);
    let ran = running.finish(SECOND * 13)?;
    let left = gone(&label, SECOND);
    let answer = if alive && !ran.overdue { left } else { Answer::of("alive") };
    let mut seen =
        vec![Seen::new("E09", "cancelled_twice", answer.with(format!("{first:?} {second:?} {}", ran.summary())))];
    seen.push(while_starting(bench)?);
    let whole = bench.run(&Job::new(COMMIT, &["/bin/true"]), SECOND * 10)?;
    seen.push(Seen::new("E09", "not_cancelled", Answer::of(whole.reason()).with(whole.summary())));
    Ok(seen)
}

fn while_starting(bench: &Bench) -> Result<Seen, WorldError> {
    let label = label_of(bench, "cancelled-early");
    let mut answer = Answer::of("gone");
    for delay in [0, 1, 2, 4, 6, 8, 12, 16, 24, 40, 80] {
        let running = bench.start(&act(bench, COMMIT, "linger", &label, 30))?;
        wait_until(Duration::from_millis(delay), || false);
        let sent = sys::kill(running.pid, libc::SIGTERM);
        let ran = running.finish(SECOND * 5)?;
        let left = gone(&label, SECOND);
        if left.answer != "gone" || ran.overdue || sent.is_err() {
            answer = Answer::of("alive").with(format!("after {delay} ms: {}", ran.summary()));
            break;
        }
    }
    Ok(Seen::new("E09", "cancelled_while_starting", answer))
}
