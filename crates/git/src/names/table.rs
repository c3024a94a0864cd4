//! The standard protected names as a table that the compiler builds, so that a start of the program costs nothing.
//! Pure.
//!
//! A pattern is read where it lies in the program: its names end at `/`, and `*` in a name stands for any characters.
//! The table finds the patterns whose first name may be a given one.

use crate::names::list::{DEFAULT_PROTECTED, DEFAULT_PROTECTED_OF_REPOSITORIES};
use std::borrow::Cow;

const COUNT: usize = DEFAULT_PROTECTED.len() + DEFAULT_PROTECTED_OF_REPOSITORIES.len();
/// A power of two, about twice the number of patterns.
const BUCKETS: usize = 1024;
/// Ends a list of patterns.
const END: u16 = u16::MAX;

/// The relation of a pattern to the names of a path from one of them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// A name differs.
    No,
    /// The path ends before the pattern does.
    Begins,
    /// Every name of the pattern agrees.
    Whole,
}

/// One standard pattern, by its number.
#[derive(Debug, Clone, Copy)]
pub struct Standard(u16);

impl Standard {
    /// Returns all standard patterns in the order of their lists.
    pub fn all() -> impl Iterator<Item = Self> + use<> {
        // There are fewer than `END`.
        (0..END).take(COUNT).map(Self)
    }

    /// Returns the pattern as it is written in its list.
    pub fn text(self) -> &'static str {
        text(self.0 as usize)
    }

    /// Tells whether the pattern does not count below packages (`DEFAULT_PROTECTED_OF_REPOSITORIES`).
    pub fn is_of_repository(self) -> bool {
        self.0 as usize >= DEFAULT_PROTECTED.len()
    }

    /// Compares the pattern with the folded names of a path.
    pub fn agreement(self, names: &[Cow<'_, [u8]>]) -> Agreement {
        let mut names = names.iter();
        for wanted in self.text().split('/') {
            match names.next() {
                None => return Agreement::Begins,
                Some(name) if !is_match(wanted.as_bytes(), name) => return Agreement::No,
                Some(_) => {}
            }
        }
        Agreement::Whole
    }

    /// Returns the patterns without a star in their first name that may begin with a folded name.
    pub fn listed(name: &[u8]) -> impl Iterator<Item = Self> + use<> {
        list(TABLE.by_first[bucket(name, name.len())])
    }

    /// Returns those with a star that may begin with it.
    pub fn starting(name: &[u8]) -> impl Iterator<Item = Self> + use<> {
        list(name.first().map_or(END, |byte| TABLE.by_byte[*byte as usize]))
    }

    /// Returns those that begin with a star.
    pub fn starred() -> impl Iterator<Item = Self> + use<> {
        list(TABLE.by_star)
    }
}

/// Compares one name of a pattern with a folded name.
fn is_match(wanted: &[u8], name: &[u8]) -> bool {
    let Some(star) = wanted.iter().position(|byte| *byte == b'*') else { return wanted.eq_ignore_ascii_case(name) };
    let (begin, mut wanted) = (&wanted[..star], &wanted[star + 1..]);
    let Some((start, mut rest)) = name.split_at_checked(begin.len()) else { return false };
    if !start.eq_ignore_ascii_case(begin) {
        return false;
    }
    while let Some(star) = wanted.iter().position(|byte| *byte == b'*') {
        let piece = &wanted[..star];
        if !piece.is_empty() {
            match rest.windows(piece.len()).position(|part| part.eq_ignore_ascii_case(piece)) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        wanted = &wanted[star + 1..];
    }
    rest.len() >= wanted.len() && rest[rest.len() - wanted.len()..].eq_ignore_ascii_case(wanted)
}

/// Lists of patterns, linked by their numbers.
struct Table {
    by_first: [u16; BUCKETS],
    by_byte: [u16; 256],
    by_star: u16,
    next: [u16; COUNT],
}

static TABLE: Table = table();

const fn table() -> Table {
    assert!(COUNT < END as usize, "a number of a pattern must fit");
    let mut table = Table { by_first: [END; BUCKETS], by_byte: [END; 256], by_star: END, next: [END; COUNT] };
    // From the last one on: so each list has the order of the patterns.
    let mut at = COUNT;
    while at > 0 {
        at -= 1;
        let text = text(at).as_bytes();
        let mut end = 0;
        let mut has_star = false;
        while end < text.len() && text[end] != b'/' {
            assert!(text[end].is_ascii(), "a standard name must be ASCII, so that it needs no folding");
            has_star |= text[end] == b'*';
            end += 1;
        }
        let head = if text[0] == b'*' {
            &mut table.by_star
        } else if has_star {
            &mut table.by_byte[text[0].to_ascii_lowercase() as usize]
        } else {
            &mut table.by_first[bucket(text, end)]
        };
        table.next[at] = *head;
        #[expect(clippy::cast_possible_truncation, reason = "COUNT is less than END")]
        let number = at as u16;
        *head = number;
    }
    table
}

const fn text(at: usize) -> &'static str {
    if at < DEFAULT_PROTECTED.len() {
        DEFAULT_PROTECTED[at]
    } else {
        DEFAULT_PROTECTED_OF_REPOSITORIES[at - DEFAULT_PROTECTED.len()]
    }
}

/// Returns the bucket of the first `length` bytes, whatever their case (FNV-1a).
const fn bucket(name: &[u8], length: usize) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    let mut at = 0;
    while at < length {
        hash = (hash ^ name[at].to_ascii_lowercase() as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    ((hash ^ (hash >> 16)) as usize) % BUCKETS
}

fn list(first: u16) -> impl Iterator<Item = Standard> {
    let number = |at: u16| (at != END).then_some(at);
    std::iter::successors(number(first), move |at| number(TABLE.next[*at as usize])).map(Standard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_beneath::fold::fold;

    #[test]
    fn every_standard_name_is_its_own_folded_form_but_for_case() {
        for one in Standard::all() {
            for name in one.text().split('/') {
                let lower = name.to_ascii_lowercase();
                assert!(name.contains('*') || fold(name.as_bytes()).as_ref() == lower.as_bytes(), "{name}");
                assert!(name.is_ascii() && nexus_model::name_pattern::check(name).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn every_standard_pattern_is_in_one_list() {
        let mut seen: Vec<u16> = Standard::starred().map(|one| one.0).collect();
        seen.extend((0..=255_u8).flat_map(|byte| Standard::starting(&[byte]).map(|one| one.0).collect::<Vec<_>>()));
        for head in TABLE.by_first {
            let listed: Vec<u16> = list(head).map(|one| one.0).collect();
            assert!(listed.is_sorted(), "{listed:?}");
            seen.extend(listed);
        }
        seen.sort_unstable();
        assert_eq!(seen, Standard::all().map(|one| one.0).collect::<Vec<_>>());
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (wanted, name, is) in [
            ("a*b*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("A*", "a", true),
            ("*.x", ".x", true),
            ("*.x", "x", false),
            ("a**b", "ab", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(is_match(wanted.as_bytes(), name.as_bytes()), is, "{wanted} {name}");
        }
    }
}
