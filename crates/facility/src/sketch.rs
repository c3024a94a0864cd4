//! Says what contents have in common, from a sample of their short pieces. Pure.
//!
//! A piece is 8 bytes of a content, from any place of it, so that a line that was put in moves no other piece. Of a large
//! amount of bytes a content keeps a part of its pieces only, the same ones in each content.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// The length of a piece.
const PIECE: usize = 8;

/// Pieces that all contents together have at most, about.
const SAMPLED: u64 = 1 << 18;

/// Pieces of a content whose edges are a large part of them.
const SHORT: usize = 64;

/// Pieces of a sample that are too few to tell by.
const FEW: usize = 32;

/// The way to take a sample, the same for all contents that are compared.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// One piece of so many is kept.
    of: u64,
    keys: RandomState,
}

impl Sampling {
    /// For contents of so many bytes together.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { of: (bytes / SAMPLED).max(1), keys: RandomState::new() }
    }

    pub(crate) fn begin(&self) -> Sampler<'_> {
        Sampler { sampling: self, last: 0, pieces: Vec::new(), whole: self.keys.build_hasher(), size: 0 }
    }
}

/// Takes in a content part by part.
pub(crate) struct Sampler<'a> {
    sampling: &'a Sampling,
    last: u64,
    pieces: Vec<u64>,
    whole: std::hash::DefaultHasher,
    size: u64,
}

impl Sampler<'_> {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.whole.write(bytes);
        self.size += bytes.len() as u64;
        for byte in bytes {
            self.push(*byte);
        }
    }

    fn push(&mut self, byte: u8) {
        self.last = (self.last << 8) | u64::from(byte);
        let piece = mixed(self.last);
        // Zeros are in every sparse file.
        if self.last != 0 && piece.is_multiple_of(self.sampling.of) {
            self.pieces.push(piece);
        }
    }

    /// The beginning and the end of a content are pieces as well, filled up with zeros: short contents have some, too.
    pub(crate) fn end(mut self) -> Sketch {
        (1..PIECE).for_each(|_| self.push(0));
        self.pieces.sort_unstable();
        self.pieces.dedup();
        let is_sampled = self.sampling.of > 1;
        Sketch { pieces: self.pieces, whole: self.whole.finish(), size: self.size, is_sampled }
    }
}

/// Spreads the pieces evenly. No two have the same result.
fn mixed(piece: u64) -> u64 {
    let piece = (piece ^ (piece >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let piece = (piece ^ (piece >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    piece ^ (piece >> 31)
}

/// What is known of a content.
#[derive(Debug)]
pub(crate) struct Sketch {
    pieces: Vec<u64>,
    whole: u64,
    size: u64,
    is_sampled: bool,
}

impl Sketch {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.size, self.whole) == (other.size, other.whole)
    }

    /// The steps that a comparison with two others takes.
    pub(crate) fn steps(&self, one: &Self, other: &Self) -> u64 {
        (2 * self.pieces.len() + one.pieces.len() + other.pieces.len()) as u64
    }

    /// Reports that it looks certainly more like `stays` than like `gone`: it has more pieces of it and a larger part of it,
    /// and of those that only `gone` has, less than half. Of a short `gone` it has none of these at all.
    pub(crate) fn is_rather(&self, stays: &Self, gone: &Self) -> bool {
        if gone.says_little() {
            return false;
        }
        let is_own = |piece: &&u64| stays.pieces.binary_search(piece).is_err();
        let (of_stays, of_gone) = (self.shared(stays), self.shared(gone));
        let (found, own) = (of_gone.iter().filter(is_own).count(), gone.pieces.iter().filter(is_own).count());
        let (of_stays, of_gone) = (of_stays.len(), of_gone.len());
        if found == 0 {
            return of_stays > of_gone;
        }
        // A part of a whole is compared crosswise, as numbers without fractions.
        let is_larger_part =
            of_stays as u128 * gone.pieces.len() as u128 > of_gone as u128 * stays.pieces.len() as u128;
        gone.pieces.len() >= SHORT && found * 2 < own && of_stays > of_gone && is_larger_part
    }

    /// Reports that its pieces do not tell it from other contents: too few of them were kept, or it repeats them.
    fn says_little(&self) -> bool {
        if self.is_sampled { self.pieces.len() < FEW } else { self.size > 4 * self.pieces.len() as u64 }
    }

    /// The pieces that both have.
    fn shared(&self, other: &Self) -> Vec<u64> {
        let (mut found, mut at) = (Vec::new(), 0);
        for piece in &self.pieces {
            while other.pieces.get(at).is_some_and(|one| one < piece) {
                at += 1;
            }
            if other.pieces.get(at) == Some(piece) {
                found.push(*piece);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketches<const N: usize>(bytes: u64, texts: [&str; N]) -> [Sketch; N] {
        let sampling = Sampling::new(bytes);
        texts.map(|text| {
            let mut sampler = sampling.begin();
            // Parts of any length make the same sketch.
            for part in text.as_bytes().chunks(7) {
                sampler.add(part);
            }
            sampler.end()
        })
    }

    fn lines(name: &str, count: usize) -> String {
        (0..count).map(|line| ["line ", &line.to_string(), " of ", name, "\n"].concat()).collect()
    }

    #[test]
    fn an_edit_looks_like_its_file() {
        let licence = lines("the licence", 40);
        for (own, other, new) in [
            (lines("a", 9), lines("b", 9), lines("a", 9) + "more"),
            (lines("a", 9), lines("b", 9), format!("first\n{}", lines("a", 9))),
            (lines("a", 90), lines("b", 9), lines("a", 3)),
            (format!("{licence}a"), format!("{licence}b"), format!("{licence}ac")),
            (format!("{licence}a"), licence.clone(), format!("{licence}ac")),
            (lines("a", 50), lines("b", 40), lines("a", 40) + &lines("b", 2)),
            ("1.2.3\n".into(), "0.9\n".into(), "1.2.4\n".into()),
        ] {
            let [stays, gone, found] = sketches(1, [&own, &other, &new]);
            assert!(found.is_rather(&stays, &gone) && !found.is_rather(&gone, &stays), "{own:?} {other:?} {new:?}");
        }
    }

    #[test]
    fn a_copy_of_another_file_does_not_look_like_its_own() {
        let licence = lines("the licence", 40);
        for (own, other, new) in [
            (lines("a", 9), lines("b", 9), lines("b", 9) + "more"),
            (lines("a", 900), lines("b", 2), lines("b", 2) + &lines("a", 4)),
            (format!("{licence}a"), format!("{licence}b"), format!("{licence}bc")),
            // Nothing can be told.
            (lines("a", 9), lines("b", 9), "qqqqqqqqqqqqqqqqqqqqqq".into()),
            (licence.clone(), licence.clone(), licence.clone() + "more"),
            (String::new(), lines("b", 9), "new".into()),
            // All of a short one, behind a header that the other one has as well.
            (format!("{licence}b"), "a secret\n".into(), format!("{licence}a secret\n")),
            // Its end is gone by what was written behind it, which stands in the other one.
            ("KEY=xyz\nDEBUG=1\nMODE=2\n".into(), "KEY=abc\n".into(), "KEY=abc\nDEBUG=1\nMODE=2\n".into()),
            // Order and number are no part of a sketch.
            ("0\n1\n1\n0\n".repeat(200), "1\n0\n0\n1\n".repeat(200), "1\n0\n0\n1\n".repeat(200) + "all\n"),
        ] {
            let [stays, gone, found] = sketches(1, [&own, &other, &new]);
            assert!(!found.is_rather(&stays, &gone), "{own:?} {other:?} {new:?}");
        }
    }

    #[test]
    fn a_sample_of_large_contents_still_tells_them_apart() {
        let (a, b) = (lines("a", 20_000), lines("b", 20_000));
        let [own, other, new] = sketches(64 << 20, [&a, &b, &(a.clone() + "more")]);
        assert!(own.pieces.len() < 5_000, "{}", own.pieces.len());
        assert!(new.is_rather(&own, &other) && !new.is_rather(&other, &own) && !new.is_same(&own));
        // Of a short one the sample has next to nothing.
        let [own, other, new] = sketches(64 << 20, [&a, "a short secret\n", &(a.clone() + "a short secret\n")]);
        assert!(!new.is_rather(&own, &other));
        let [one, same] = sketches(1, [&a, &a]);
        assert!(!one.is_same(&own) && sketches(1, ["x", "y"])[0].size == 1 && one.size == same.size);
    }
}
