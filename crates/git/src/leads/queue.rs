//! The order in which the directories of a workspace are searched: by turns the nearest to the top and the oldest one.
//!
//! No run can make a directory that is older than those of the workspace: the time of its birth is the kernel's. So the half
//! of the bound that the oldest have is not used up by directories that a run made. Pure, but for [`born`].

use super::collect::Reach;
use rustix::fs::{AtFlags, StatxFlags};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::BorrowedFd;

/// A directory that the search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Its path in the workspace.
    pub path: Vec<u8>,
    /// It lies in a git directory.
    pub in_git: bool,
}

/// Directories in the order of a number each.
type SearchQueue = BinaryHeap<Reverse<(u128, usize)>>;

/// Directories to search, and how many more.
pub(super) struct Queue {
    all: Vec<Option<Place>>,
    /// The nearest and the oldest ones, with what is left of their bounds.
    sides: [(SearchQueue, Reach); 2],
    turn: usize,
    waiting: usize,
}

impl Queue {
    /// Begins with the top directory.
    pub fn new(reach: Reach) -> Self {
        let half = Reach { directories: reach.directories / 2, entries: reach.entries / 2 };
        let more = Reach { directories: reach.directories - half.directories, entries: reach.entries - half.entries };
        let mut queue = Self {
            all: Vec::new(),
            sides: [(SearchQueue::new(), more), (SearchQueue::new(), half)],
            turn: 0,
            waiting: 0,
        };
        queue.push(Place { path: Vec::new(), in_git: false }, 0);
        queue
    }

    /// Adds a directory, born at a time.
    pub fn push(&mut self, place: Place, born: u128) {
        let depth = if place.path.is_empty() { 0 } else { place.path.split(|byte| *byte == b'/').count() };
        let number = self.all.len();
        self.sides[0].0.push(Reverse((depth as u128, number)));
        self.sides[1].0.push(Reverse((born, number)));
        self.all.push(Some(place));
        self.waiting += 1;
    }

    /// Takes the next directory, with the number of entries that may be looked at in it. `None` at the end of the bound, or
    /// when none waits.
    pub fn next(&mut self) -> Option<(Place, usize)> {
        for _ in 0..2 {
            self.turn = 1 - self.turn;
            let (search, left) = &mut self.sides[1 - self.turn];
            if left.directories == 0 || left.entries == 0 {
                continue;
            }
            while let Some(Reverse((_, number))) = search.pop() {
                // The other side may have taken it.
                if let Some(place) = self.all[number].take() {
                    left.directories -= 1;
                    self.waiting -= 1;
                    return Some((place, left.entries));
                }
            }
        }
        None
    }

    /// Counts the entries of the directory that was taken last. Returns whether the bound let all of them be seen.
    pub fn count(&mut self, entries: usize) -> bool {
        let left = &mut self.sides[1 - self.turn].1;
        left.entries -= entries;
        left.entries > 0
    }

    /// Tells whether every directory was taken.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

/// Returns when an entry of a directory was made, in nanoseconds. What the file system does not tell comes last.
pub(super) fn born(dir: BorrowedFd<'_>, name: &[u8]) -> u128 {
    let seen = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME);
    let seen = seen.ok().filter(|seen| seen.stx_mask & StatxFlags::BTIME.bits() != 0);
    let time = |seen: rustix::fs::Statx| {
        let seconds = u128::try_from(seen.stx_btime.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u128::from(seen.stx_btime.tv_nsec)
    };
    seen.map_or(u128::MAX, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        Place { path: path.as_bytes().to_vec(), in_git: false }
    }

    #[test]
    fn the_nearest_and_the_oldest_come_by_turns() {
        let mut queue = Queue::new(Reach { directories: 4, entries: 40 });
        assert_eq!(queue.next(), Some((place(""), 20)));
        for number in 0..10 {
            queue.push(place(&format!("new{number}")), 100 + number);
        }
        queue.push(place("old/deep"), 5);
        let mut found: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(place, _)| place.path).collect();
        found.sort();
        assert_eq!(found, [&b"new0"[..], b"new1", b"old/deep"]);
        assert!(!queue.is_empty());
    }

    #[test]
    fn many_entries_of_near_directories_leave_room_for_old_ones() {
        let mut queue = Queue::new(Reach { directories: 10, entries: 40 });
        assert!(queue.next().is_some());
        queue.push(place("large"), 100);
        queue.push(place("old/deep"), 5);
        queue.push(place("old/next"), 6);
        assert!(!queue.count(20));
        let found: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(place, left)| (place.path, left)).collect();
        assert_eq!(found[..2], [(b"old/deep".to_vec(), 20), (b"old/next".to_vec(), 20)]);
    }
}
