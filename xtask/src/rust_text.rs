//! Splits a Rust source into its code, its comments and its literals.

/// A comment or a literal of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Line on which it begins, counted from 1.
    pub line: usize,
    /// The text with its slashes or quotes, as written.
    pub text: String,
}

/// Returns every comment and every literal of a source, in order.
pub fn comments_and_literals(source: &str) -> Vec<Text> {
    let text: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let end = literal_or_comment(&text, at);
        if end == at {
            line += usize::from(text[at] == '\n');
            at += 1;
            while at < text.len() && is_word(text[at - 1]) && is_word(text[at]) {
                at += 1;
            }
        } else {
            found.push(Text { line, text: text[at..end].iter().collect() });
            line += text[at..end].iter().filter(|letter| **letter == '\n').count();
            at = end;
        }
    }
    found
}

/// Replaces comments, and what stands in strings and characters, with spaces. Line breaks stay, so that a line of the
/// result is the same line of the source.
pub fn code_only(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let end = literal_or_comment(&text, at);
        if end == at {
            code.push(text[at]);
            at += 1;
            // The rest of a word is never the prefix of a literal: `for"x"` is not a raw string.
            while at < text.len() && is_word(text[at - 1]) && is_word(text[at]) {
                code.push(text[at]);
                at += 1;
            }
        } else {
            code.extend(text[at..end].iter().map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The end of the comment or literal that begins at `at`; `at` itself where none does. One without an end goes to the
/// end of the text.
fn literal_or_comment(text: &[char], at: usize) -> usize {
    let rest = &text[at..];
    if starts_with(rest, "//") {
        return at + rest.iter().position(|letter| *letter == '\n').unwrap_or(rest.len());
    }
    if starts_with(rest, "/*") {
        return at + block_comment(rest);
    }
    if rest[0] == '\'' {
        return at + character(rest);
    }
    let prefix = rest.iter().take_while(|letter| matches!(letter, 'b' | 'c' | 'r')).count().min(2);
    let is_raw = rest[..prefix].contains(&'r');
    let hashes = if is_raw { rest[prefix..].iter().take_while(|letter| **letter == '#').count() } else { 0 };
    match rest.get(prefix + hashes) {
        Some('"') if is_raw => at + raw_string(rest, prefix + hashes + 1, hashes),
        Some('"') => at + string(rest, prefix + 1),
        Some('\'') if prefix == 1 && rest[0] == 'b' => at + 1 + character(&rest[1..]),
        _ => at,
    }
}

fn starts_with(text: &[char], start: &str) -> bool {
    start.chars().enumerate().all(|(index, letter)| text.get(index) == Some(&letter))
}

fn block_comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if starts_with(&text[at..], "/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if starts_with(&text[at..], "*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a character in quotes, or 0 for a lifetime.
fn character(text: &[char]) -> usize {
    match text.get(1) {
        Some('\\') => text.iter().skip(3).position(|letter| *letter == '\'').map_or(text.len(), |end| end + 4),
        Some(_) if text.get(2) == Some(&'\'') => 3,
        _ => 0,
    }
}

fn string(text: &[char], start: usize) -> usize {
    let mut at = start;
    while let Some(letter) = text.get(at) {
        match letter {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string(text: &[char], start: usize, hashes: usize) -> usize {
    let is_end =
        |at: &usize| text[*at] == '"' && text[*at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    (start..text.len()).find(is_end).map_or(text.len(), |end| end + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(source: &str) {
        assert_eq!(code_only(source), source);
    }

    /// The code that is left, without spaces; nothing moves.
    fn left(source: &str) -> String {
        let code = code_only(source);
        assert_eq!(code.chars().count(), source.chars().count(), "{source}");
        assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "{source}");
        code.replace(' ', "")
    }

    #[test]
    fn comments_and_strings_become_spaces() {
        assert_eq!(left("a // b\nc"), "a\nc");
        assert_eq!(left("a /* b /* c */ d\n */ e"), "a\ne");
        assert_eq!(left("x(\"#[test]\\\" y\", z)"), "x(,z)");
        assert_eq!(left("r#\"a \" b\"# c b\"d\" r\"\\\" e cr\"f\" g"), "ceg");
        assert_eq!(left("'\"' a '\\'' b b'\"' c '\\u{1b}' d"), "abcd");
    }

    #[test]
    fn comments_and_literals_come_with_their_lines() {
        let found = comments_and_literals("/// a\nfn f() {\n    g(\"b \\\n c\", 'd'); // e\n}");
        let found: Vec<(usize, &str)> = found.iter().map(|text| (text.line, text.text.as_str())).collect();
        assert_eq!(found, [(1, "/// a"), (3, "\"b \\\n c\""), (4, "'d'"), (4, "// e")]);
    }

    #[test]
    fn code_stays() {
        same("fn f<'a>(x: &'a str) -> bool { x == y }");
        same("#[test]\nfn r() { for b in c {} }");
        same("r#type + br + crab");
    }

    #[test]
    fn what_has_no_end_goes_to_the_end() {
        for source in ["\"abc", "/* abc", "r#\"abc\"", "'\\abc", "\"a\\"] {
            assert_eq!(code_only(source).trim(), "", "{source}");
        }
    }
}
