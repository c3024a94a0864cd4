//! The grammar of patterns for protected names: a name (`.envrc`), a name with stars (`*.code-workspace`), or a chain of
//! names (`ci/deploy.sh`). Profiles, settings and flags are checked by it where they are read.

/// A text is not a pattern for protected names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be a protected name: {why}")]
pub struct PatternError {
    /// Text that is not a name pattern.
    pub text: String,
    /// Reason for the refusal, and the form to write instead.
    pub why: &'static str,
}

/// Checks a pattern. Signs that mean something in other kinds of patterns are refused: taken literally, they would
/// protect nothing.
pub fn check(text: &str) -> Result<(), PatternError> {
    let refuse = |why| Err(PatternError { text: text.to_owned(), why });
    if text.len() > 1024 {
        return refuse("it is longer than 1024 bytes");
    }
    if text.starts_with('!') {
        return refuse("names can only be added, and ! would take one away");
    }
    if text.chars().any(|one| matches!(one, '?' | '[' | ']' | '{' | '}' | '\\')) {
        return refuse("of the signs of a pattern only * is read");
    }
    if text.chars().any(char::is_control) {
        return refuse("it has a control character");
    }
    for name in text.split('/') {
        match name {
            "" => return refuse("write NAME or NAME/NAME, without / at either end: a name counts at any depth"),
            "." | ".." => return refuse("write the names without . and .."),
            _ if name.chars().all(|one| one == '*') => {
                return refuse("a name of stars alone matches everything: a directory counts with all below it");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stars_and_chains_are_patterns() {
        for text in [".envrc", "*.code-workspace", ".nexus*", "a*b*c", "ci/deploy.sh", "Makefile", "a b", "\u{e9}"] {
            assert_eq!(check(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn what_would_match_all_or_nothing_is_refused() {
        let long = "x".repeat(1025);
        for text in [
            "", "*", "**", "a/**", "*/x", "/x", "x/", "a//b", "..", "a/..", ".", "!x", "a?", "[ab]", "{a,b}", "a\\b",
            "a\n", "\0", &long,
        ] {
            assert!(check(text).is_err(), "{text:?}");
        }
    }
}
