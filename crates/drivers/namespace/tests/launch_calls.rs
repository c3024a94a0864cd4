//! System calls of one launch, counted under strace(1), so that a launch that becomes dearer is noticed on any machine.
//!
//! How often a process waits depends on when others get a processor, so calls that wait are counted apart and bounded
//! loosely. All others are the same in every launch; the median leaves out those in which the launcher also made
//! something for later.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::Launcher;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use support::{Bench, launcher_program};

/// Launches of one launcher. The first ones make what all later ones use and are left out.
const LAUNCHES: usize = 12;
const FIRST_LAUNCHES: usize = 2;

/// Calls that wait, and the return from a signal that ended a wait.
const WAITS: &[&str] =
    &["ppoll", "poll", "recvfrom", "wait4", "waitid", "rt_sigreturn", "restart_syscall", "epoll_wait", "epoll_pwait"];

/// Calls of the launcher and of PID 1 with the command's process before its exec, for one launch.
#[derive(Debug, PartialEq, PartialOrd)]
struct Calls {
    launcher: usize,
    /// Those of the launcher that wait.
    waits: usize,
    first: usize,
    confined: usize,
}

/// The calls of each process by name, processes in order of their first call.
struct Log<'a> {
    order: Vec<&'a str>,
    calls: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Log<'a> {
    fn of(text: &'a str) -> Self {
        let (mut order, mut calls) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        let other = |line: &&str| !["resumed>", "+++", "---"].iter().any(|sign| line.contains(sign));
        for line in text.lines().filter(other) {
            let (pid, call) = line.split_once(' ').unwrap();
            let name = call.trim_start().split('(').next().unwrap();
            calls
                .entry(pid)
                .or_insert_with(|| {
                    order.push(pid);
                    Vec::new()
                })
                .push(name);
        }
        Self { order, calls }
    }

    /// The calls of the first sandbox process and of the command before its exec, for each launch.
    fn sandboxes(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (index, pid) in self.order.iter().enumerate() {
            if self.calls[pid].contains(&"sethostname") {
                let exec = |pid: &&str| self.calls[pid].iter().position(|call| *call == "execve");
                let confined = self.order[index + 1..].iter().find_map(exec).unwrap();
                found.push((without_waits(&self.calls[pid]), confined));
            }
        }
        found
    }

    /// The calls of the launcher from one sandbox to the next: all that do not wait, and those that wait.
    fn launches(&self) -> Vec<(usize, usize)> {
        let own = &self.calls[self.order[0]];
        let starts: Vec<usize> = (0..own.len()).filter(|at| own[*at] == "clone3").collect();
        let spans = starts.windows(2).map(|pair| &own[pair[0]..pair[1]]);
        spans.map(|calls| (without_waits(calls), calls.len() - without_waits(calls))).collect()
    }
}

fn without_waits(calls: &[&str]) -> usize {
    calls.iter().filter(|call| !WAITS.contains(call)).count()
}

fn median(numbers: impl Iterator<Item = usize>) -> usize {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

fn calls(bench: &Bench, keep: [&str; 2], layered: bool) -> Calls {
    let log = bench.path(&format!("log-{}", nexus_model::RunId::new()));
    let mut program = Command::new("strace");
    program.arg("-f").arg("-o").arg(&log).arg(launcher_program()).args(keep);
    let remote = Launcher::start(program, Namespace::with_defaults()).unwrap();
    for _ in 0..LAUNCHES {
        let target = Path::new("/workspace");
        let mut draft = if layered { bench.layered(target, "") } else { bench.draft(target, "") };
        draft.argv = vec!["/bin/true".into()];
        bench.output(Some(&remote), draft);
    }
    remote.stop().unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    let log = Log::of(&text);
    let (sandboxes, launches) = (log.sandboxes(), log.launches());
    assert_eq!(sandboxes.len(), LAUNCHES, "the log was not understood");
    // From one sandbox to the next there is one span fewer; a launcher's template needs processes of its own before.
    assert!(launches.len() >= LAUNCHES - 1, "the log was not understood: {launches:?}");
    let later = &launches[launches.len() + FIRST_LAUNCHES + 1 - LAUNCHES..];
    Calls {
        launcher: median(later.iter().map(|(calls, _)| *calls)),
        waits: median(later.iter().map(|(_, waits)| *waits)),
        first: median(sandboxes[FIRST_LAUNCHES..].iter().map(|(first, _)| *first)),
        confined: median(sandboxes[FIRST_LAUNCHES..].iter().map(|(_, confined)| *confined)),
    }
}

#[test]
fn a_launch_takes_no_more_system_calls_than_it_should() {
    let bench = Bench::new();
    for (keep, layered, launcher) in
        [(["0", "false"], false, 53), (["2", "true"], false, 57), (["2", "true"], true, 98)]
    {
        // Each clone of a mount is one call more than its open_tree(2): it leaves the group of the host's mount and gets its
        // attributes. Five calls cover a file or a directory of /proc; a kernel with all that is masked has some more of them
        // than a virtual machine, which is at 389. Without input the sandbox's own /dev/null is opened: three calls.
        let most = Calls { launcher, waits: 40, first: 395, confined: 90 };
        let seen = calls(&bench, keep, layered);
        println!("{keep:?}, layered {layered}: {seen:?}");
        assert!(seen.first > 50 && seen.launcher > 10 && seen.confined > 20, "the log was not understood: {seen:?}");
        let dearer = [
            seen.launcher > most.launcher,
            seen.waits > most.waits,
            seen.first > most.first,
            seen.confined > most.confined,
        ];
        assert_eq!(dearer, [false; 4], "{keep:?}, layered {layered}: {seen:?}, at most {most:?}");
    }
}
