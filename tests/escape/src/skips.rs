//! The checked-in list of cases whose hole this kind of kernel cannot show.

/// One line of the list.
#[derive(Debug, Clone, Copy)]
pub struct Skip {
    /// The vector.
    pub id: &'static str,
    /// The case.
    pub case: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// A line that does not parse.
#[derive(Debug, thiserror::Error)]
#[error("skips.txt: not `ID case reason`: {line}")]
pub struct SkipError {
    /// The line.
    pub line: &'static str,
}

/// Reads the list that was compiled in.
pub fn list() -> Result<Vec<Skip>, SkipError> {
    include_str!("../skips.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some(id), Some(case), Some(reason)) if !reason.is_empty() => Ok(Skip { id, case, reason }),
                _ => Err(SkipError { line }),
            }
        })
        .collect()
}
