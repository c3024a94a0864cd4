//! Command lines: the reader ends on every text, and a line with an operator or a substitution outside of quotes is never
//! safe.

use nexus_policy::command::{Commands, Verdict, classify};

/// A command line.
pub fn command_line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let found = classify(text);
    assert_eq!(found.reasons.is_empty(), found.verdict == Verdict::Safe, "{text:?}");
    if found.verdict == Verdict::Safe {
        assert!(!has_bare_operator(text), "{text:?}");
        assert!(Commands::of_line(text).plain.is_some(), "{text:?}");
    }
}

/// Reports whether an operator or a substitution stands outside of quotes, by a reader that knows nothing but quotes.
fn has_bare_operator(line: &str) -> bool {
    let mut chars = line.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\\') => {
                chars.next();
            }
            (Some('"'), '\\') if matches!(chars.peek(), Some('$' | '`' | '"' | '\\' | '\n')) => {
                chars.next();
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ';' | '&' | '|' | '(' | ')' | '<' | '>' | '\n' | '$' | '`') | (Some('"'), '$' | '`') => return true,
            _ => {}
        }
    }
    quote.is_some()
}
