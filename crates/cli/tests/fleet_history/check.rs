//! The invariants of a fleet, as a pure function of what a test saw.
//!
//! ```text
//!  I1  one attempt of a directive has effects: reports of an old claim are refused, work is committed once,
//!      and never two sandboxes of a directive or of a facility at one time
//!  I2  fences of a directive grow strictly              I3  a terminal state never changes; one terminal event, one id
//!  I4  what was accepted ends                           I5  acknowledged output is there, in order, once
//!  I6  no command lives after its directive is over     I7  nothing is left
//! ```

use super::record::{Call, Entry, Fault, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// Bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Time that a command may live after its directive is over, in milliseconds.
    pub kill_within: u64,
    /// Time after its last request at which a daemon counts a lease as over, in milliseconds.
    pub lease: u64,
    /// Commands of one daemon at one time.
    pub capacity: usize,
    /// Output is compared only where the whole of it was expected.
    pub expected: fn(usize) -> Option<String>,
}

const TERMINAL: [&str; 5] = ["succeeded", "failed", "canceled", "timed_out", "rejected"];

fn is_over(state: &str) -> bool {
    TERMINAL.contains(&state)
}

/// Returns every rule that a history breaks, one line each.
pub fn check(history: &[Entry], bounds: &Bounds) -> Vec<String> {
    let mut broken = Vec::new();
    fences_grow(history, &mut broken);
    ends_stay(history, &mut broken);
    old_claims_have_no_effect(history, &mut broken);
    sandboxes_never_overlap(history, &mut broken);
    all_end(history, &mut broken);
    output_is_kept(history, bounds, &mut broken);
    commands_die(history, bounds, &mut broken);
    work_is_committed_once(history, &mut broken);
    capacity_holds(history, bounds, &mut broken);
    for entry in history {
        if let Seen::Left { what } = &entry.seen {
            broken.push(format!("I7: {what} is left"));
        }
    }
    broken
}

/// I2. A repeated answer to one poll may name the same claim again.
fn fences_grow(history: &[Entry], broken: &mut Vec<String>) {
    let mut last: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for entry in history {
        let Seen::Claimed { id, daemon, fence, .. } = &entry.seen else { continue };
        match last.get(id.as_str()) {
            Some((before, holder)) if fence < before || (fence == before && holder != daemon) => {
                broken.push(format!("I2: {id} was claimed with fence {fence} after {before}"));
            }
            _ => drop(last.insert(id, (*fence, *daemon))),
        }
    }
}

/// I3. After a terminal answer all answers are the same, and so are all terminal events. An end that the server assumed, of a claim that
/// was lost, gives way once to what the holder of the claim reports (S-1532, S-1498).
fn ends_stay(history: &[Entry], broken: &mut Vec<String>) {
    let is_assumed = |reason: Option<&str>| matches!(reason, Some("commit_unknown" | "unconfirmed"));
    /// State, reason, exit code and attempt.
    type End<'a> = (&'a str, Option<&'a str>, Option<i64>, u64);
    let mut ends: BTreeMap<&str, End<'_>> = BTreeMap::new();
    let mut terminal_ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut by_subscriber: BTreeMap<(&str, usize), Vec<&str>> = BTreeMap::new();
    let unknown: BTreeSet<&str> = history
        .iter()
        .filter_map(|entry| match &entry.seen {
            Seen::Read { id, reason, .. } if is_assumed(reason.as_deref()) => Some(id.as_str()),
            _ => None,
        })
        .collect();
    for entry in history {
        match &entry.seen {
            Seen::Read { id, state, reason, exit, attempt } => {
                let now = (state.as_str(), reason.as_deref(), *exit, *attempt);
                match ends.get(id.as_str()) {
                    None if is_over(state) => drop(ends.insert(id, now)),
                    Some((_, reason, ..)) if is_assumed(*reason) && is_over(state) => drop(ends.insert(id, now)),
                    Some(end) if *end != now => broken.push(format!("I3: {id} was {end:?} and is {now:?}")),
                    _ => {}
                }
            }
            Seen::Event { id, subscriber, event, state } => {
                let seen = by_subscriber.entry((id, *subscriber)).or_default();
                if seen.last() == Some(&event.as_str()) {
                    broken.push(format!("I3: event {event} of {id} came twice to subscriber {subscriber}"));
                }
                seen.push(event);
                if is_over(state) {
                    terminal_ids.entry(id).or_default().insert(event);
                }
            }
            Seen::StreamEnded { id, subscriber } => {
                let own = by_subscriber.get(&(id.as_str(), *subscriber)).cloned().unwrap_or_default();
                let known = terminal_ids.get(id.as_str());
                let count = own.iter().filter(|event| known.is_some_and(|known| known.contains(**event))).count();
                // Late output of an assumed end is an event too, before the end that the holder reports.
                if count != 1 && !(unknown.contains(id.as_str()) && count >= 1) {
                    broken.push(format!("I3: subscriber {subscriber} of {id} got {count} terminal events"));
                }
            }
            _ => {}
        }
    }
    for (id, ids) in terminal_ids.iter().filter(|(id, ids)| ids.len() > 1 && !unknown.contains(*id)) {
        broken.push(format!("I3: {id} ended under the ids {ids:?}"));
    }
}

/// I1. A report is refused when a later claim was answered before the report was sent, and one end is accepted.
fn old_claims_have_no_effect(history: &[Entry], broken: &mut Vec<String>) {
    let mut claims: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    let mut ended: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for entry in history {
        match &entry.seen {
            Seen::Claimed { id, fence, .. } => claims.entry(id).or_default().push((entry.at, *fence)),
            Seen::Reported { id, fence, call, status: 200..=299, sent, .. } => {
                let later = claims.get(id.as_str()).into_iter().flatten();
                if let Some((_, newer)) = later.clone().find(|(at, newer)| at < sent && newer > fence) {
                    broken.push(format!(
                        "I1: {call:?} of {id} with fence {fence} was accepted after a claim with {newer}"
                    ));
                }
                if *call == Call::Finished {
                    ended.entry(id).or_default().insert(*fence);
                }
            }
            _ => {}
        }
    }
    for (id, fences) in ended.iter().filter(|(_, fences)| fences.len() > 1) {
        broken.push(format!("I1: ends of {id} were accepted from the claims {fences:?}"));
    }
}

/// I1. Two looks in a row: a process that ends and one that begins may both be seen by one look.
fn sandboxes_never_overlap(history: &[Entry], broken: &mut Vec<String>) {
    let facility = facilities(history);
    let mut before: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut reported: BTreeSet<(u64, u64)> = BTreeSet::new();
    for entry in history {
        let Seen::Alive { sandboxes } = &entry.seen else { continue };
        let mut pairs = BTreeSet::new();
        for (index, (one, first)) in sandboxes.iter().enumerate() {
            for (other, second) in &sandboxes[index + 1..] {
                let same = one == other || facility.get(one).is_some_and(|place| facility.get(other) == Some(place));
                if first != second && same {
                    pairs.insert((*first.min(second), *first.max(second)));
                    let pair = (*first.min(second), *first.max(second));
                    if before.contains(&pair) && reported.insert(pair) {
                        broken.push(format!(
                            "I1: directives {one} and {other} had two sandboxes of a facility at {}",
                            entry.at
                        ));
                    }
                }
            }
        }
        before = pairs;
    }
}

fn facilities(history: &[Entry]) -> BTreeMap<usize, usize> {
    let created = history.iter().filter_map(|entry| match &entry.seen {
        Seen::Created { number, facility, .. } => Some((*number, *facility)),
        _ => None,
    });
    created.collect()
}

/// I4. The history ends when the bound of time is over.
fn all_end(history: &[Entry], broken: &mut Vec<String>) {
    let over: BTreeSet<&str> = history
        .iter()
        .filter_map(|entry| match &entry.seen {
            Seen::Read { id, state, .. } if is_over(state) => Some(id.as_str()),
            _ => None,
        })
        .collect();
    for entry in history {
        if let Seen::Created { id, number, .. } = &entry.seen
            && !over.contains(id.as_str())
        {
            broken.push(format!("I4: directive {number} ({id}) did not end"));
        }
    }
}

/// I5. Each acknowledged chunk of the latest attempt is read back once, with its bytes; an output without a gap is the whole one.
fn output_is_kept(history: &[Entry], bounds: &Bounds, broken: &mut Vec<String>) {
    let mut attempts: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ends: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in history {
        match &entry.seen {
            Seen::Claimed { id, fence, attempt, .. } => drop(attempts.insert((id, *fence), *attempt)),
            Seen::Created { id, number, .. } => drop(numbers.insert(id, *number)),
            Seen::Read { id, reason: Some(reason), .. } => drop(ends.insert(id, reason)),
            _ => {}
        }
    }
    let mut acknowledged: BTreeMap<(&str, u64, &str, i64), BTreeSet<&str>> = BTreeMap::new();
    for entry in history {
        if let Seen::Reported {
            id, fence, call: Call::Chunk, status: 200..=299, chunk: Some((stream, seq, bytes)), ..
        } = &entry.seen
            && let Some(attempt) = attempts.get(&(id.as_str(), *fence))
        {
            acknowledged.entry((id, *attempt, stream, *seq)).or_default().insert(bytes);
        }
    }
    for entry in history {
        let Seen::Log { id, attempt, stream, truncated, chunks } = &entry.seen else { continue };
        if chunks.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            broken.push(format!("I5: {stream} of {id} is not in order: {chunks:?}"));
        }
        let stored: BTreeMap<i64, &str> = chunks.iter().map(|(seq, bytes)| (*seq, bytes.as_str())).collect();
        for ((of, of_attempt, of_stream, seq), bytes) in &acknowledged {
            if (*of, *of_attempt, *of_stream) != (id.as_str(), *attempt, stream.as_str()) {
                continue;
            }
            if bytes.len() != 1 || stored.get(seq) != bytes.first() {
                broken.push(format!("I5: chunk {seq} of {stream} of {id} was acknowledged and is not what is stored"));
            }
        }
        let ended_by_itself = ends.get(id.as_str()).is_some_and(|reason| *reason == "exit");
        if stream == "stdout"
            && !truncated
            && ended_by_itself
            && let Some(expected) = numbers.get(id.as_str()).and_then(|number| (bounds.expected)(*number))
        {
            let text: String = chunks.iter().map(|(_, bytes)| bytes.as_str()).collect();
            if text != expected {
                broken.push(format!("I5: the output of {id} is {text:?} and not {expected:?}"));
            }
        }
    }
}

/// I6. After a terminal answer, after a kill of its daemon, and after the lease of a daemon that is stopped, a command is gone soon.
fn commands_die(history: &[Entry], bounds: &Bounds, broken: &mut Vec<String>) {
    let mut number: BTreeMap<&str, usize> = BTreeMap::new();
    let mut until: BTreeMap<usize, (u64, String)> = BTreeMap::new();
    let mut holder: BTreeMap<usize, usize> = BTreeMap::new();
    for entry in history {
        match &entry.seen {
            Seen::Created { id, number: of, .. } => drop(number.insert(id, *of)),
            Seen::Claimed { id, daemon, .. } => {
                if let Some(of) = number.get(id.as_str()) {
                    holder.insert(*of, *daemon);
                    // Another attempt may live.
                    if until.get(of).is_some_and(|(_, why)| why != "it was over") {
                        until.remove(of);
                    }
                }
            }
            Seen::Read { id, state, .. } if is_over(state) => {
                if let Some(of) = number.get(id.as_str()) {
                    let end = (entry.at + bounds.kill_within, "it was over".to_owned());
                    until.entry(*of).or_insert(end);
                }
            }
            Seen::Fault { fault: fault @ (Fault::Kill | Fault::StopBeyondLease), name, begins: true } => {
                let of_daemon = name.strip_prefix("daemon").and_then(|number| number.parse::<usize>().ok());
                let (lives, why) = if *fault == Fault::Kill { (0, "killed") } else { (bounds.lease, "stopped") };
                for (of, _) in holder.iter().filter(|(_, daemon)| Some(**daemon) == of_daemon) {
                    let end = (entry.at + lives + bounds.kill_within, format!("{name} was {why}"));
                    until.entry(*of).or_insert(end);
                }
            }
            Seen::Alive { sandboxes } => {
                for (of, _) in sandboxes {
                    if let Some((end, why)) = until.get(of)
                        && entry.at > *end
                    {
                        broken.push(format!("I6: the command of directive {of} lives at {}, and {why}", entry.at));
                        until.insert(*of, (u64::MAX, why.clone()));
                    }
                }
            }
            _ => {}
        }
    }
}

/// I1. The work of a directive whose command ended on its own is in its workspace once, and that of any other at most once.
fn work_is_committed_once(history: &[Entry], broken: &mut Vec<String>) {
    let mut ends: BTreeMap<&str, (&str, Option<&str>)> = BTreeMap::new();
    let mut ids: BTreeMap<usize, &str> = BTreeMap::new();
    for entry in history {
        match &entry.seen {
            Seen::Created { id, number, .. } => drop(ids.insert(*number, id)),
            Seen::Read { id, state, reason, .. } => drop(ends.insert(id, (state, reason.as_deref()))),
            Seen::Marks { number, count } => {
                let end = ids.get(number).and_then(|id| ends.get(id));
                let own = end.is_some_and(|(_, reason)| *reason == Some("exit"));
                if *count > 1 || (own && *count != 1) {
                    broken.push(format!("I1: the work of directive {number} is there {count} times: {end:?}"));
                }
            }
            _ => {}
        }
    }
}

/// No daemon has more commands at one time than it said.
fn capacity_holds(history: &[Entry], bounds: &Bounds, broken: &mut Vec<String>) {
    let mut number: BTreeMap<&str, usize> = BTreeMap::new();
    let mut holder: BTreeMap<usize, usize> = BTreeMap::new();
    for entry in history {
        match &entry.seen {
            Seen::Created { id, number: of, .. } => drop(number.insert(id, *of)),
            Seen::Claimed { id, daemon, .. } => {
                if let Some(of) = number.get(id.as_str()) {
                    holder.insert(*of, *daemon);
                }
            }
            Seen::Alive { sandboxes } => {
                let mut count: BTreeMap<usize, usize> = BTreeMap::new();
                for (of, _) in sandboxes {
                    if let Some(daemon) = holder.get(of) {
                        *count.entry(*daemon).or_default() += 1;
                    }
                }
                for (daemon, count) in count.iter().filter(|(_, count)| **count > bounds.capacity) {
                    broken.push(format!("capacity: daemon {daemon} has {count} commands at {}", entry.at));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { kill_within: 2000, lease: 1000, capacity: 2, expected: |number| Some(format!("line of {number}\n")) };

    fn read(state: &str, reason: &str) -> Seen {
        let reason = (!reason.is_empty()).then(|| reason.to_owned());
        Seen::Read { id: "a".to_owned(), state: state.to_owned(), reason, exit: Some(0), attempt: 1 }
    }

    fn claimed(daemon: usize, fence: u64) -> Seen {
        Seen::Claimed { id: "a".to_owned(), daemon, fence, attempt: fence, arrived: true }
    }

    fn reported(fence: u64, call: Call, sent: u64) -> Seen {
        let chunk = (call == Call::Chunk).then(|| ("stdout".to_owned(), 0, "line of 1\n".to_owned()));
        Seen::Reported { id: "a".to_owned(), daemon: 0, fence, call, status: 200, duplicate: false, chunk, sent }
    }

    fn event(event: &str, state: &str) -> Seen {
        Seen::Event { id: "a".to_owned(), subscriber: 0, event: event.to_owned(), state: state.to_owned() }
    }

    fn log(chunks: &[(i64, &str)]) -> Seen {
        let chunks = chunks.iter().map(|(seq, bytes)| (*seq, (*bytes).to_owned())).collect();
        Seen::Log { id: "a".to_owned(), attempt: 1, stream: "stdout".to_owned(), truncated: false, chunks }
    }

    fn alive(sandboxes: &[(usize, u64)]) -> Seen {
        Seen::Alive { sandboxes: sandboxes.to_vec() }
    }

    fn created(id: &str, number: usize) -> Seen {
        Seen::Created { id: id.to_owned(), number, facility: 7, requeues: false }
    }

    /// Entries a second apart.
    fn broken(seen: &[Seen]) -> Vec<String> {
        let entries = seen.iter().enumerate();
        let entries: Vec<Entry> =
            entries.map(|(at, seen)| Entry { at: at as u64 * 1000, seen: seen.clone() }).collect();
        check(&entries, &BOUNDS)
    }

    fn good() -> Vec<Seen> {
        vec![
            created("a", 1),
            claimed(0, 1),
            reported(1, Call::Started, 1500),
            event("1-2", "running"),
            alive(&[(1, 70)]),
            reported(1, Call::Chunk, 4500),
            reported(1, Call::Finished, 5500),
            read("succeeded", "exit"),
            event("1-4", "succeeded"),
            Seen::StreamEnded { id: "a".to_owned(), subscriber: 0 },
            log(&[(0, "line of 1\n")]),
            Seen::Marks { number: 1, count: 1 },
        ]
    }

    #[test]
    fn a_history_without_a_fault_breaks_no_rule() {
        assert_eq!(broken(&good()), [""; 0]);
    }

    /// Each is the history of a product that is broken in one way.
    #[test]
    fn each_broken_history_breaks_its_rule() {
        let add = |more: &[Seen]| [good(), more.to_vec()].concat();
        let without = |index: usize| {
            let mut all = good();
            all.remove(index);
            all
        };
        let with = |index: usize, seen: Seen| {
            let mut all = good();
            all[index] = seen;
            all
        };
        let left = Seen::Left { what: "a mount".to_owned() };
        let killed = Seen::Fault { fault: Fault::Kill, name: "daemon0".to_owned(), begins: true };
        let stopped = Seen::Fault { fault: Fault::StopBeyondLease, name: "daemon0".to_owned(), begins: true };
        let tick = || alive(&[]);
        let histories = [
            ("I2", "a restored store repeats a fence", add(&[claimed(1, 1)])),
            (
                "I2",
                "a fence goes back",
                [vec![created("a", 1), claimed(0, 2), claimed(0, 1)], vec![read("failed", "")]].concat(),
            ),
            ("I3", "an end is overwritten", add(&[read("failed", "exit")])),
            ("I3", "an end is taken back", add(&[read("running", "")])),
            (
                "I3",
                "an end has two ids",
                add(&[Seen::Event {
                    id: "a".to_owned(),
                    subscriber: 1,
                    event: "1-5".to_owned(),
                    state: "succeeded".to_owned(),
                }]),
            ),
            ("I3", "a subscriber never hears of the end", without(8)),
            ("I3", "an event comes twice", add(&[event("1-4", "succeeded")])),
            ("I1", "a fence is ignored", add(&[claimed(1, 2), reported(1, Call::Chunk, 13_500)])),
            ("I1", "two claims end a directive", add(&[reported(2, Call::Finished, 12_500)])),
            ("I1", "a lease counts from its arrival", add(&[alive(&[(1, 71), (1, 72)]), alive(&[(1, 71), (1, 72)])])),
            (
                "I1",
                "two directives of a facility run at one time",
                add(&[created("b", 2), alive(&[(1, 71), (2, 72)]), alive(&[(1, 71), (2, 72)])]),
            ),
            ("I1", "work is committed twice", with(11, Seen::Marks { number: 1, count: 2 })),
            ("I1", "work of a success is lost", with(11, Seen::Marks { number: 1, count: 0 })),
            ("I4", "a directive is forgotten", without(7)),
            ("I5", "a chunk is lost", with(10, log(&[]))),
            ("I5", "a chunk is replaced", with(10, log(&[(0, "other\n")]))),
            ("I5", "a chunk comes twice", with(10, log(&[(0, "line of 1\n"), (0, "line of 1\n")]))),
            ("I6", "a command outlives its directive", add(&[alive(&[(1, 70)])])),
            (
                "I6",
                "a command outlives its daemon",
                vec![
                    created("a", 1),
                    claimed(0, 1),
                    killed,
                    tick(),
                    tick(),
                    alive(&[(1, 70)]),
                    read("failed", "lease_lost"),
                ],
            ),
            (
                "I6",
                "a launcher has no deadline",
                vec![
                    created("a", 1),
                    claimed(0, 1),
                    stopped,
                    tick(),
                    tick(),
                    tick(),
                    alive(&[(1, 70)]),
                    read("failed", "lease_lost"),
                ],
            ),
            ("I7", "a mount is left", add(&[left])),
            (
                "capacity",
                "a daemon has too much",
                vec![
                    created("a", 1),
                    claimed(0, 1),
                    Seen::Created { id: "b".to_owned(), number: 2, facility: 8, requeues: false },
                    Seen::Claimed { id: "b".to_owned(), daemon: 0, fence: 1, attempt: 1, arrived: true },
                    Seen::Created { id: "c".to_owned(), number: 3, facility: 9, requeues: false },
                    Seen::Claimed { id: "c".to_owned(), daemon: 0, fence: 1, attempt: 1, arrived: true },
                    alive(&[(1, 1), (2, 2), (3, 3)]),
                ],
            ),
        ];
        for (rule, what, history) in histories {
            let found = broken(&history);
            assert!(found.iter().any(|line| line.starts_with(rule)), "{what}: {found:?}");
        }
    }
}
