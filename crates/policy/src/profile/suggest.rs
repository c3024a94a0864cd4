//! The known word that a misspelt one was meant to be.

/// The closest of `known`, when it is close enough to be worth saying.
#[must_use]
pub fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = word.chars().count().div_ceil(3).max(1);
    let measured = known.into_iter().map(|name| (distance(word, name), name));
    measured.min().filter(|(away, _)| *away <= most).map(|(_, name)| name)
}

/// Letters to insert, remove, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().take(40).collect(), right.chars().take(40).collect());
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[left.len()][right.len()]
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
