//! Random numbers from a seed that a report can name.

use std::hash::{BuildHasher, RandomState};

/// Generates the numbers of SplitMix64: every seed gives one fixed sequence.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the sequence.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns an index into a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}

/// Returns a seed that differs at every call.
pub fn any_seed() -> u64 {
    // Short enough to be typed again by hand.
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_one_sequence_and_another_seed_another() {
        let list = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(list(7), list(7));
        assert_ne!(list(7), list(8));
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
