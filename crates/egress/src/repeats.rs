//! Refusals that are repeated: the first ones each have a line, later ones share lines with a count.
//!
//! A program that is refused tries again, some of them thousands of times in a second. Lines that differ in time and number alone
//! say nothing new. Each [`WHOLE`] refusals of one kind have a line each; then a line stands for [`WHOLE`], and for twice as many
//! each time. A line that waits is written after [`MAX_WAIT_MS`] with the next refusal of its kind, and at the end.

use crate::audit::Event;
use nexus_policy::net::DenyCode;
use std::collections::HashMap;
use std::mem;

/// Identical refusals that have a line each.
const WHOLE: u64 = 16;
/// Refusals that one line stands for at most.
const MAX_SHARED: u64 = 1 << 16;
/// How long a count waits while the same goes on.
const MAX_WAIT_MS: u64 = 60_000;
/// Kinds that are told apart at one time.
const MAX_KINDS: usize = 256;

/// One kind of refusal.
#[derive(Debug)]
struct Kind {
    /// How many were seen and written with a line each.
    seen: u64,
    /// The last one and how many wait with it.
    waiting: Option<(Event, u64)>,
    /// How many the next line stands for.
    next: u64,
    written_ms: u64,
}

/// The kinds of refusal that were seen lately.
#[derive(Debug, Default)]
pub(crate) struct Repeats(HashMap<String, Kind>);

impl Repeats {
    /// Takes one event; returns what is to be written now. What is no refusal is never held back.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<Event> {
        let Some(key) = key(event) else { return vec![event.clone()] };
        let now = event.time_ms;
        let mut out = Vec::new();
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&key) {
            out = self.drain();
        }
        let kind = self.0.entry(key).or_insert(Kind { seen: 0, waiting: None, next: WHOLE, written_ms: now });
        if kind.seen < WHOLE {
            kind.seen += 1;
            kind.written_ms = now;
            out.push(event.clone());
            return out;
        }
        let count = kind.waiting.as_ref().map_or(0, |(_, count)| *count) + 1;
        let is_old = now.abs_diff(kind.written_ms) >= MAX_WAIT_MS;
        if count >= kind.next || is_old {
            kind.next = if is_old { WHOLE } else { (kind.next * 2).min(MAX_SHARED) };
            kind.written_ms = now;
            kind.waiting = None;
            out.push(shared(event.clone(), count));
        } else {
            kind.waiting = Some((event.clone(), count));
        }
        out
    }

    /// Returns the lines that wait, and forgets everything.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        let kinds = mem::take(&mut self.0).into_values();
        let mut waiting: Vec<(Event, u64)> = kinds.filter_map(|kind| kind.waiting).collect();
        waiting.sort_unstable_by_key(|(event, _)| event.id);
        waiting.into_iter().map(|(event, count)| shared(event, count)).collect()
    }
}

fn shared(event: Event, count: u64) -> Event {
    Event { repeated: (count > 1).then_some(count), ..event }
}

/// What identical refusals have in common; `None` for everything else.
fn key(event: &Event) -> Option<String> {
    let is_refusal = event.code != DenyCode::Ok && event.kind_may_repeat();
    is_refusal.then(|| Event { time_ms: 0, id: 0, at: None, ..event.clone() }.line().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::EventKind;

    fn refusal(host: &str, id: u64, time_ms: u64) -> Event {
        Event { host: host.into(), code: DenyCode::NotInAllowlist, time_ms, ..Event::new(EventKind::Deny, id) }
    }

    fn stands_for(event: &Event) -> u64 {
        event.repeated.unwrap_or(1)
    }

    #[test]
    fn repeated_refusals_share_lines_and_none_is_lost() {
        let mut repeats = Repeats::default();
        let mut lines: Vec<Event> = (0..100_000).flat_map(|id| repeats.take(&refusal("a.test", id, 5))).collect();
        assert!(lines[..16].iter().all(|line| line.repeated.is_none()));
        lines.extend(repeats.drain());
        assert_eq!(lines.iter().map(stands_for).sum::<u64>(), 100_000);
        assert!(lines.len() < 40, "{}", lines.len());
        assert!(repeats.drain().is_empty());
        // Others beside it, more than are told apart, and ones that come rarely.
        let mixed: Vec<Event> =
            (0..10_000).flat_map(|id| repeats.take(&refusal(&format!("{}.test", id % 300), id, 5))).collect();
        let rest: u64 = repeats.drain().iter().map(stands_for).sum();
        assert_eq!(mixed.iter().map(stands_for).sum::<u64>() + rest, 10_000);
        let slow = (0..40).flat_map(|id| repeats.take(&refusal("a.test", id, id * MAX_WAIT_MS)));
        assert_eq!(slow.count(), 40, "each was due");
    }

    #[test]
    fn what_is_no_refusal_is_never_held_back() {
        let mut repeats = Repeats::default();
        for kind in [EventKind::Allow, EventKind::Close, EventKind::Cut, EventKind::Fail, EventKind::Resolve] {
            let lines = (0..50).flat_map(|_| repeats.take(&Event { code: DenyCode::Other, ..Event::new(kind, 1) }));
            assert_eq!(lines.count(), 50, "{kind:?}");
        }
    }
}
