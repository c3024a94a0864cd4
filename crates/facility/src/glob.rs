//! Patterns of files to keep: `*` and `?` within one name, `**` for any number of directories, and a `/` at the end for
//! everything below a directory. A pattern is relative to the workspace.

/// Longest pattern, in bytes.
pub const MAX_BYTES: usize = 1024;
/// Largest number of patterns of one directive.
pub const MAX_PATTERNS: usize = 64;

/// Reason for which a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a pattern of files: {why}")]
pub struct GlobError {
    /// The text as written.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

/// A pattern of files, read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    names: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// Any number of names, also none.
    Any,
    /// One name, with `*` and `?` in it.
    One(Vec<u8>),
}

impl Glob {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        let fault = |why| GlobError { text: text.to_owned(), why };
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(fault("it must have 1 to 1024 bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err(fault("it has a control character"));
        }
        if text.starts_with('/') {
            return Err(fault("it must be relative to the workspace"));
        }
        let text = text.strip_prefix("./").unwrap_or(text);
        let whole = if text.ends_with('/') { format!("{text}**") } else { text.to_owned() };
        let mut names = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => return Err(fault("it has an empty name or a lone dot")),
                ".." => return Err(fault("it leads out of the workspace")),
                // Two in a row mean the same as one, and cost more.
                "**" if names.last() == Some(&Name::Any) => {}
                "**" => names.push(Name::Any),
                one => names.push(Name::One(one.as_bytes().to_vec())),
            }
        }
        Ok(Self { names })
    }

    /// Reports whether a path relative to the workspace matches. The cost is bounded by the lengths of both.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        // `open[at]`: the parts before `at` match the names so far.
        let mut open = vec![false; parts.len() + 1];
        open[0] = true;
        for name in &self.names {
            let mut next = vec![false; parts.len() + 1];
            match name {
                Name::Any => {
                    let mut reached = false;
                    for (at, is_open) in open.iter().enumerate() {
                        reached |= is_open;
                        next[at] = reached;
                    }
                }
                Name::One(pattern) => {
                    for (at, part) in parts.iter().enumerate() {
                        next[at + 1] = open[at] && is_name(pattern, part);
                    }
                }
            }
            open = next;
        }
        open[parts.len()]
    }
}

/// Reports whether a name matches a pattern without directories.
fn is_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where to go on when the rest does not match: after the last star, one byte of the name further.
    let mut back: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at + 1, seen));
                at += 1;
            }
            Some(b'?') => (at, seen) = (at + 1, seen + 1),
            Some(byte) if *byte == name[seen] => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((after_star, from)) = back else { return false };
                (at, seen) = (after_star, from + 1);
                back = Some((after_star, from + 1));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn a_pattern_matches_names_and_directories() {
        for (pattern, good, bad) in [
            ("out", vec!["out"], vec!["out/a", "a/out", "outs"]),
            ("out/", vec!["out/a", "out/a/b", "out"], vec!["a/out/b", "outs/a"]),
            ("*.log", vec!["a.log", ".log"], vec!["d/a.log", "a.log.1"]),
            ("**/*.log", vec!["a.log", "d/a.log", "d/e/a.log"], vec!["a.txt"]),
            ("a/**/z", vec!["a/z", "a/b/z", "a/b/c/z"], vec!["z", "a/b", "b/a/z"]),
            ("./a?c", vec!["abc"], vec!["ac", "abbc"]),
            ("**", vec!["a", "a/b"], vec![]),
            ("*a*b*", vec!["ab", "xaybz", "aab"], vec!["ba", "a/b"]),
        ] {
            for path in good {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in bad {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/a", "../a", "a/../b", "a//b", "a/./b", "a\nb", &"a".repeat(1025)] {
            assert!(Glob::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_with_many_stars_costs_no_more_than_its_length() {
        let pattern = "*a".repeat(500);
        assert!(!matches(&pattern, &("a".repeat(499) + "b")));
        let deep = format!("{}z", "**/a/".repeat(100));
        assert!(!matches(&deep, &"a/".repeat(2000)));
    }
}
