//! Directories that a sandbox is moving: the name of one that is not whole yet.
//!
//! In a layer of an ordinary user a directory moves by its content, into a new directory with such a name, which is then
//! renamed. One that is still there at the end of a run was being made when the run was killed. It is not a change.

const PREFIX: &[u8] = b".nexus-moving-";

/// Returns the name for a move with this number.
#[must_use]
pub fn name(number: u64) -> Vec<u8> {
    [PREFIX, format!("{number:016x}").as_bytes()].concat()
}

/// Returns whether a directory of this name is one that was being made.
#[must_use]
pub fn is_unfinished(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|number| number.len() == 16 && number.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_are_given_are_known() {
        for number in [0, 7, u64::MAX] {
            assert!(is_unfinished(&name(number)));
        }
        for other in [
            "",
            ".nexus-moving-",
            ".nexus-moving-00000000000000g0",
            "x.nexus-moving-0000000000000000",
            ".nexus-moving-000",
        ] {
            assert!(!is_unfinished(other.as_bytes()), "{other}");
        }
    }
}
