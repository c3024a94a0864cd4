//! The known word that a misspelt one was meant to be.

/// Returns the closest of `known`, if it is close enough for a suggestion.
#[must_use]
pub fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = word.chars().count().div_ceil(3).max(1);
    let measured = known.into_iter().map(|name| (distance(word, name), name));
    measured.min().filter(|(away, _)| *away <= most).map(|(_, name)| name)
}

/// Counts the letters to insert, remove, replace or swap with their neighbour, of the first 40 of each word.
fn distance(left: &str, right: &str) -> usize {
    let start = |word: &str| word.chars().take(40).collect::<String>();
    strsim::osa_distance(&start(left), &start(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["extends", "limits", "changes", "fs"];
        assert_eq!(closest("limit", known), Some("limits"));
        assert_eq!(closest("exetnds", known), Some("extends"));
        assert_eq!(closest("network", known), None);
        assert_eq!(closest("", known), None);
    }
}
