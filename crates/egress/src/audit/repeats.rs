//! Bundles repeated refusals and allowed look-ups: the first ones each have a line, later ones share lines.
//!
//! A refused program tries again, sometimes thousands of times in a second, and a program asks for an allowed name
//! before each connection. Lines that differ in time and number alone add nothing, and the record is bounded. The first
//! [`WHOLE`] events of one kind have a line each; then a line stands for [`WHOLE`], and for twice as many each time. A
//! line that waits is written after [`MAX_WAIT_MS`] with the next event of its kind, when its kind is let go, and at
//! the end. A kind is let go when it was not used for so long and another one needs its place. Where all places are in
//! use, further kinds share lines that name no host.

use crate::audit::event::Event;
use std::collections::HashMap;
use std::mem;

/// Number of identical events that have a line each.
const WHOLE: u64 = 16;
/// Maximum number of events that one line stands for.
const MAX_SHARED: u64 = 1 << 16;
/// Longest wait of a count while the same events go on.
const MAX_WAIT_MS: u64 = 60_000;
/// Maximum number of kinds that are distinguished at one time.
const MAX_KINDS: usize = 1024;
/// Number of kinds that get [`WHOLE`] lines each; those beyond get one.
const FULL_KINDS: usize = 256;
/// Time between two searches for kinds to let go.
const LOOK_MS: u64 = 1000;

/// State of one kind of event.
#[derive(Debug)]
struct Kind {
    /// Number of further events that get a line each.
    whole: u64,
    /// Last event, and the number of events that wait with it.
    waiting: Option<(Event, u64)>,
    /// Number of events that the next line stands for.
    next: u64,
    written_ms: u64,
    used_ms: u64,
}

/// Kinds of event that were seen lately.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    kinds: HashMap<String, Kind>,
    /// Time of the last search for kinds to let go.
    looked_ms: u64,
}

impl Repeats {
    /// Takes an event; returns the lines to write now. An event that is neither a refusal nor a look-up is never
    /// held back.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<Event> {
        let Some(mut key) = key(event) else { return vec![event.clone()] };
        let mut event = event.clone();
        let now = event.time_ms;
        let mut out = Vec::new();
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&key) {
            out = self.let_go(now);
            if self.kinds.len() >= MAX_KINDS {
                event = other(&event);
                key = self::key(&event).unwrap_or(key);
            }
        }
        let whole = if self.kinds.len() < FULL_KINDS { WHOLE } else { 1 };
        let kind =
            self.kinds.entry(key).or_insert(Kind { whole, waiting: None, next: WHOLE, written_ms: now, used_ms: now });
        kind.used_ms = now;
        if kind.whole > 0 {
            kind.whole -= 1;
            kind.written_ms = now;
            out.push(event);
            return out;
        }
        let count = kind.waiting.as_ref().map_or(0, |(_, count)| *count) + 1;
        let is_old = now.abs_diff(kind.written_ms) >= MAX_WAIT_MS;
        if count >= kind.next || is_old {
            kind.next = if is_old { WHOLE } else { (kind.next * 2).min(MAX_SHARED) };
            kind.written_ms = now;
            kind.waiting = None;
            out.push(shared(event, count));
        } else {
            kind.waiting = Some((event, count));
        }
        out
    }

    /// Forgets the kind of an event whose line could not be written, so that the next one of its kind has a line again.
    pub(crate) fn forget(&mut self, event: &Event) {
        for key in [key(event), key(&other(event))].into_iter().flatten() {
            if self.kinds.get(&key).is_some_and(|kind| kind.waiting.is_none()) {
                self.kinds.remove(&key);
            }
        }
    }

    /// Returns the lines that wait, and forgets every kind.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        lines(mem::take(&mut self.kinds).into_values())
    }

    /// Lets go the kinds that were not used for long, and returns their waiting lines.
    fn let_go(&mut self, now: u64) -> Vec<Event> {
        if now.abs_diff(self.looked_ms) < LOOK_MS {
            return Vec::new();
        }
        self.looked_ms = now;
        lines(self.kinds.extract_if(|_, kind| now.abs_diff(kind.used_ms) >= MAX_WAIT_MS).map(|(_, kind)| kind))
    }
}

fn lines(kinds: impl Iterator<Item = Kind>) -> Vec<Event> {
    let mut waiting: Vec<(Event, u64)> = kinds.filter_map(|kind| kind.waiting).collect();
    waiting.sort_unstable_by_key(|(event, _)| event.id);
    waiting.into_iter().map(|(event, count)| shared(event, count)).collect()
}

/// Returns the line of an event for which no place is left.
fn other(event: &Event) -> Event {
    let kind = if event.is_refusal() { "a refusal" } else { "a look-up" };
    Event {
        time_ms: event.time_ms,
        way: event.way,
        code: event.code,
        explanation: Some(format!("{kind} beside those of {MAX_KINDS} other kinds, each within a minute")),
        ..Event::new(event.event, event.id)
    }
}

fn shared(event: Event, count: u64) -> Event {
    Event { repeated: (count > 1).then_some(count), ..event }
}

/// Returns the common part of identical refusals or look-ups; `None` for every other event.
fn key(event: &Event) -> Option<String> {
    let may_repeat = event.is_refusal() || event.is_look_up();
    may_repeat.then(|| Event { time_ms: 0, id: 0, at: None, ..event.clone() }.line().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::event::EventKind;
    use nexus_policy::net::DenyCode;

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
        // Others beside it, more than are distinguished, and ones that come rarely.
        let mixed: Vec<Event> =
            (0..10_000).flat_map(|id| repeats.take(&refusal(&format!("{}.test", id % 300), id, 5))).collect();
        let rest: u64 = repeats.drain().iter().map(stands_for).sum();
        assert_eq!(mixed.iter().map(stands_for).sum::<u64>() + rest, 10_000);
        // More kinds at one time than have places.
        let mut crowd: Vec<Event> =
            (0..100_000).flat_map(|id| repeats.take(&refusal(&format!("{}.test", id % 3000), id, 5))).collect();
        crowd.extend(repeats.drain());
        assert_eq!(crowd.iter().map(stands_for).sum::<u64>(), 100_000);
        assert!(crowd.len() < 256 * 18 + 1024 * 4, "{}", crowd.len());
        // A kind that is not used for a minute gives its place to another one.
        for id in 0..2000 {
            repeats.take(&refusal(&format!("{id}.old.test"), id, 5));
        }
        let fresh = repeats.take(&refusal("fresh.test", 3000, 5 + MAX_WAIT_MS));
        assert_eq!(fresh.last().map(|line| line.host.as_str()), Some("fresh.test"));
        repeats.drain();
        let slow = (0..40).flat_map(|id| repeats.take(&refusal("a.test", id, id * MAX_WAIT_MS)));
        assert_eq!(slow.count(), 40, "each was due");
    }

    fn look_up(host: &str, id: u64) -> Event {
        Event { host: host.into(), time_ms: 5, ..Event::new(EventKind::Dns, id) }
    }

    #[test]
    fn repeated_look_ups_share_lines_and_none_is_lost() {
        let mut repeats = Repeats::default();
        let mut lines: Vec<Event> = (0..300_000).flat_map(|id| repeats.take(&look_up("a.test", id))).collect();
        lines.extend(repeats.drain());
        assert_eq!(lines.iter().map(stands_for).sum::<u64>(), 300_000);
        assert!(lines.len() < 40 && lines.iter().all(|line| line.host == "a.test"), "{}", lines.len());
        // Each name has its first line as long as there are places.
        let mut names: Vec<Event> =
            (0..100_000).flat_map(|id| repeats.take(&look_up(&format!("{}.test", id % 3000), id))).collect();
        names.extend(repeats.drain());
        assert_eq!(names.iter().map(stands_for).sum::<u64>(), 100_000);
        assert!(names.len() < 256 * 18 + 1024 * 4, "{}", names.len());
        for number in 0..MAX_KINDS {
            assert!(names.iter().any(|line| line.host == format!("{number}.test")), "{number}");
        }
        let unnamed = names.iter().find(|line| line.host.is_empty()).unwrap();
        assert!(unnamed.code == DenyCode::Ok && unnamed.explanation.as_ref().unwrap().starts_with("a look-up beside"));
    }

    #[test]
    fn a_kind_whose_line_was_not_written_begins_afresh() {
        let mut repeats = Repeats::default();
        for id in 0..50 {
            assert_eq!(repeats.take(&look_up("a.test", id)).len(), 1, "{id}");
            repeats.forget(&look_up("a.test", id));
        }
        assert!(repeats.drain().is_empty());
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
