//! The checked-in list of cases whose hole this kind of kernel cannot show.

/// One line of the list.
#[derive(Debug, Clone, Copy)]
pub struct Skip {
    /// Number of the vector.
    pub id: &'static str,
    /// Title of the case.
    pub case: &'static str,
    /// Reason for the skip.
    pub reason: &'static str,
}

/// A line that does not parse.
#[derive(Debug, thiserror::Error)]
#[error("skips.txt: not `ID case reason`: {line}")]
pub struct SkipError {
    /// Text of the line.
    pub line: &'static str,
}

/// Returns the cases that the running kernel refuses on its own, so that no attack can be shown: TIOCSTI without
/// CAP_SYS_ADMIN since Linux 6.2 (`dev.tty.legacy_tiocsti`).
pub fn of_this_kernel() -> Vec<Skip> {
    let setting = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    if setting.trim() == "0" { tiocsti().into() } else { Vec::new() }
}

fn tiocsti() -> [Skip; 4] {
    ["run_with_a_terminal", "run_without_one", "exec_with_a_terminal", "attached"].map(|case| Skip {
        id: "A10",
        case,
        reason: "the kernel refuses TIOCSTI to everybody (dev.tty.legacy_tiocsti is 0)",
    })
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

#[cfg(test)]
mod tests {
    use crate::cases;

    #[test]
    fn what_a_kernel_refuses_by_itself_is_named_by_rows_that_exist() {
        for skip in super::tiocsti() {
            assert!(cases::all().any(|case| case.id == skip.id && case.name == skip.case), "{}", skip.case);
        }
    }
}
