//! Nothing that a command does holds up the end of its run: hostile programs on every stream, a terminal, forwarded
//! connections, the way to the network, execs, stop signals and crashes. Each run is ended by its time limit, by
//! SIGTERM, by `nexus stop`, by `--memory` and by `--disk`, in the foreground and detached, as root and as an ordinary user.
//!
//! A plain run of the test plays each hostile state with each end; `NEXUS_SOAK_HOLD=1` plays every combination.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "hold/play.rs"]
mod play;
mod support;

use play::{Ended, detached, in_the_foreground};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::net::Server;
use support::{Bench, benches, skip, stdout};

const PROGRAM: &str = include_str!("hostile/hold.py");
const LIMIT: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(1);
/// Time that an end may take beyond both.
const MORE: Duration = Duration::from_secs(1);
/// Far more than that: a run that lives so long is held up for ever.
const PATIENCE: Duration = Duration::from_secs(15);
/// Runs at one time: each of them may keep a processor busy.
const AT_ONCE: usize = 6;

/// Acts of the host's side meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Reads what is printed.
    Reads,
    /// And types without an end.
    Types,
    /// And has connections that pour and never read.
    Connects,
    /// And starts execs with long arguments.
    Executes,
    /// And starts execs that print without an end, and reads none of it.
    Ignores,
    /// And has a server that the command may reach.
    Serves,
}

/// Causes that end the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The time limit.
    Limit,
    /// SIGTERM to `nexus`, in the foreground.
    Signal,
    /// `nexus stop`, after an exec was answered.
    Stop,
    /// `--memory`: a process inside takes more.
    Memory,
    /// `--disk`, which the host measures: a process inside takes more.
    Disk,
}

const ENDS: [End; 5] = [End::Limit, End::Signal, End::Stop, End::Memory, End::Disk];

impl End {
    /// The exit code, and how long the end may take from its cause on.
    fn promised(self) -> (i32, Duration) {
        match self {
            Self::Limit => (124, LIMIT + GRACE + MORE),
            Self::Signal | Self::Stop => (137, GRACE + MORE),
            // The cause is inside. If no process noticed it, the time limit would end the run with another code.
            Self::Memory => (137, PATIENCE),
            Self::Disk => (125, PATIENCE),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Foreground,
    Detached,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    /// Act of `hold.py`, by its name there.
    way: &'static str,
    flags: &'static [&'static str],
    host: Host,
}

const fn case(way: &'static str, flags: &'static [&'static str], host: Host) -> Case {
    Case { way, flags, host }
}

const CASES: &[Case] = &[
    case("deaf", &[], Host::Reads),
    case("stdout", &[], Host::Reads),
    case("stderr", &[], Host::Reads),
    case("flood", &[], Host::Reads),
    case("deaf", &["--stdin"], Host::Types),
    case("stdin", &["--stdin"], Host::Types),
    case("stopped", &["--stdin"], Host::Types),
    case("stopped", &[], Host::Reads),
    case("stopped-children", &[], Host::Reads),
    case("vfork", &[], Host::Reads),
    case("crashes", &[], Host::Reads),
    case("egress", &["--allow", "allowed.invalid:443"], Host::Serves),
    case("deaf", &["--tty"], Host::Types),
    case("flood", &["--tty"], Host::Types),
    case("stopped", &["--tty"], Host::Types),
    case("terminal-flaps", &["--tty"], Host::Types),
    case("terminal-stops", &["--tty"], Host::Types),
    case("server", &[], Host::Connects),
    case("deaf", &[], Host::Ignores),
    case("storm", &[], Host::Executes),
    case("storm", &["--tty"], Host::Executes),
];

/// One run of the table, ready to be played.
#[derive(Clone)]
struct Job {
    bench: Arc<Bench>,
    place: Place,
    case: Case,
    end: End,
    /// The port of a server of the host.
    server: u16,
}

impl Job {
    /// Plays it; `None` when it ended as it should, and in time.
    fn play(&self) -> Option<String> {
        // A preallocated file takes a quarter of the memory's size from the disk: one at a time.
        static DISK: Mutex<()> = Mutex::new(());
        let _alone = (self.end == End::Disk).then(|| DISK.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let ended: Ended = if self.place == Place::Detached { detached(self) } else { in_the_foreground(self) };
        let (code, within) = self.end.promised();
        let is_right = matches!(ended, Ok((Some(ended), took)) if ended == code && took <= within);
        (!is_right).then(|| format!("{} {:?} {:?} {:?}: {ended:?}", self.bench.who(), self.place, self.end, self.case))
    }
}

/// Reports whether the user of this bench can have `--memory`.
fn has_memory_limits(bench: &Bench) -> bool {
    stdout(&bench.run(["doctor"])).contains("  yes  limits.memory")
}

/// Reports whether a plain run of the test plays this: for each state the time limit at both places, and each other end once.
fn is_usual(number: usize, identity: usize, case: &Case, place: Place, end: End) -> bool {
    let (even, is_detached) = ((number + identity).is_multiple_of(2), place == Place::Detached);
    let only_detached = case.host == Host::Executes;
    match end {
        End::Limit => only_detached || is_detached == even,
        End::Signal => even,
        End::Stop => only_detached || !even,
        End::Memory => only_detached || is_detached == number.is_multiple_of(2),
        End::Disk => even && (only_detached || is_detached == (number / 2).is_multiple_of(2)),
    }
}

/// All runs, in an order that does not put those of one end side by side.
fn jobs(benches: &[Arc<Bench>], server: u16) -> Vec<Job> {
    let is_full = std::env::var_os("NEXUS_SOAK_HOLD").is_some() || benches.len() == 1;
    let mut jobs = Vec::new();
    for (identity, bench) in benches.iter().enumerate() {
        bench.write("hold.py", PROGRAM);
        let has_memory = has_memory_limits(bench);
        if !has_memory {
            skip::partial("--memory cannot be had here for an ordinary user");
        }
        for (number, case) in CASES.iter().enumerate() {
            for (place, end) in
                [Place::Foreground, Place::Detached].into_iter().flat_map(|place| ENDS.map(|end| (place, end)))
            {
                let is_possible = match (place, end) {
                    (Place::Foreground, _) if case.host == Host::Executes => false,
                    (Place::Foreground, End::Stop) | (Place::Detached, End::Signal) => false,
                    (_, End::Memory) => has_memory,
                    _ => true,
                };
                if is_possible && (is_full || is_usual(number, identity, case, place, end)) {
                    jobs.push(Job { bench: Arc::clone(bench), place, case: *case, end, server });
                }
            }
        }
    }
    jobs
}

#[test]
fn nothing_that_a_command_does_holds_up_the_end_of_its_run() {
    let benches: Vec<Arc<Bench>> = benches().into_iter().map(Arc::new).collect();
    let all = jobs(&benches, Server::start().port);
    let count = all.len();
    let (jobs, late) = (Arc::new(Mutex::new(all)), Arc::new(Mutex::new(Vec::new())));
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (jobs, late) = (Arc::clone(&jobs), Arc::clone(&late));
            std::thread::spawn(move || {
                loop {
                    let Some(job) = jobs.lock().unwrap().pop() else { return };
                    if let Some(why) = job.play() {
                        late.lock().unwrap().push((job, why));
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    // Beside the others a machine with few processors may be late. Alone, each ends in time.
    let late = late.lock().unwrap();
    let again = |(job, first): &(Job, String)| job.play().map(|second| format!("{first}\n  alone: {second}"));
    let wrong: Vec<String> = late.iter().filter_map(again).collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_plain_run_ends_each_hostile_state_in_each_way() {
    for (number, case) in CASES.iter().enumerate() {
        for end in ENDS {
            let places: &[Place] = match (end, case.host) {
                (End::Signal, Host::Executes) => continue,
                (End::Signal, _) => &[Place::Foreground],
                (End::Stop, _) | (_, Host::Executes) => &[Place::Detached],
                _ => &[Place::Foreground, Place::Detached],
            };
            // Memory limits are root's alone on some machines.
            let identities = if end == End::Memory { 0..1 } else { 0..2 };
            let is_played =
                places.iter().any(|&place| identities.clone().any(|who| is_usual(number, who, case, place, end)));
            assert!(is_played, "{case:?} {end:?}");
        }
    }
}
