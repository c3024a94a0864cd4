//! The log of a disk: everything that was written to it, and the images that a power loss could have left.
//!
//! A disk may keep what was written since its last flush in any part and any order; what was written before that flush
//! is there. So an image is everything before the last flush, and a random choice of the blocks written after it.

use crate::random::Random;

/// The piece of a write that a disk keeps or loses as a whole.
const BLOCK: usize = 4096;

/// One thing that happened to one of the disks.
#[derive(Debug)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Number of the disk.
        disk: usize,
        /// The first byte.
        offset: u64,
        /// Bytes that were written.
        data: Vec<u8>,
    },
    /// Everything written so far is kept.
    Flush {
        /// Number of the disk.
        disk: usize,
    },
}

impl Event {
    fn disk(&self) -> usize {
        match self {
            Self::Write { disk, .. } | Self::Flush { disk } => *disk,
        }
    }
}

/// A moment at which the power goes, and what the disks keep of the writes that they had not flushed.
#[derive(Debug, Clone)]
pub struct Crash {
    /// The number of events that happened.
    pub position: usize,
    /// Number of blocks that are kept, of each 256 that were not flushed.
    pub kept: u64,
    /// The seed of the choice.
    pub seed: u64,
}

/// Chooses a moment between the events `from` and `to`: half of the time each event is as likely as the others, and half
/// of the time each stretch between two flushes, so that a stretch with few writes is met too.
pub fn choose(events: &[Event], from: usize, to: usize, random: &mut Random) -> Crash {
    let mut position = from + random.index(to + 1 - from);
    if random.below(2) == 0 {
        let mut ends: Vec<usize> =
            (from..to).filter(|at| matches!(events.get(*at), Some(Event::Flush { .. }))).collect();
        ends.push(to);
        let which = random.index(ends.len());
        let end = ends.get(which).copied().unwrap_or(to);
        let begin = if which == 0 { from } else { ends.get(which - 1).copied().unwrap_or(from) };
        position = begin + random.index(end + 1 - begin);
    }
    let kept = match random.below(4) {
        0 => 0,
        1 => 256,
        _ => random.below(257),
    };
    Crash { position, kept, seed: random.next() }
}

/// Applies to `image` what the disk keeps of the events.
pub fn apply(image: &mut [u8], disk: usize, events: &[Event], crash: &Crash) {
    let mut random = Random::new(crash.seed ^ disk as u64);
    let happened = events.get(..crash.position).unwrap_or(events);
    let flushed = happened.iter().rposition(|event| matches!(event, Event::Flush { .. }) && event.disk() == disk);
    for (at, event) in happened.iter().enumerate() {
        let Event::Write { offset, data, .. } = event else { continue };
        if event.disk() != disk {
            continue;
        }
        let safe = flushed.is_some_and(|flush| at < flush);
        for (number, piece) in data.chunks(BLOCK).enumerate() {
            if safe || random.below(256) < crash.kept {
                let begin = *offset as usize + number * BLOCK;
                if let Some(place) = image.get_mut(begin..begin + piece.len()) {
                    place.copy_from_slice(piece);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: usize, block: u64, byte: u8) -> Event {
        Event::Write { disk, offset: block * BLOCK as u64, data: vec![byte; BLOCK] }
    }

    fn blocks(events: &[Event], crash: &Crash) -> Vec<u8> {
        let mut image = vec![0; 4 * BLOCK];
        apply(&mut image, 0, events, crash);
        image.chunks(BLOCK).map(|block| block[0]).collect()
    }

    #[test]
    fn what_was_flushed_is_kept_and_the_rest_is_kept_in_any_part() {
        let events = [write(0, 0, 1), Event::Flush { disk: 0 }, write(0, 1, 2), write(0, 2, 3), write(0, 3, 4)];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let found = blocks(&events, &Crash { position: 5, kept: 128, seed });
            assert_eq!(found[0], 1);
            seen.insert(found[1..].to_vec());
        }
        assert_eq!(seen.len(), 8, "every subset of three blocks");
    }

    #[test]
    fn nothing_after_the_moment_is_kept() {
        let events = [write(0, 0, 1), write(0, 1, 2)];
        assert_eq!(blocks(&events, &Crash { position: 1, kept: 256, seed: 0 }), [1, 0, 0, 0]);
    }

    #[test]
    fn a_flush_of_another_disk_keeps_nothing_here() {
        let events = [write(0, 0, 1), Event::Flush { disk: 1 }];
        assert_eq!(blocks(&events, &Crash { position: 2, kept: 0, seed: 0 }), [0, 0, 0, 0]);
    }

    #[test]
    fn a_moment_lies_between_its_bounds() {
        let events = [write(0, 0, 1), Event::Flush { disk: 0 }, write(0, 1, 1), Event::Flush { disk: 0 }];
        let mut random = Random::new(3);
        let seen: std::collections::BTreeSet<usize> =
            (0..300).map(|_| choose(&events, 1, 4, &mut random).position).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
