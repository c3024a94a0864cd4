//! Variables and substitutions in the words of a shell. Pure.

/// Splits `$NAME/x` and `${NAME}/x` into the name and what is behind it.
pub(super) fn split_variable(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = word.strip_prefix(b"$")?;
    let inside = rest.strip_prefix(b"{");
    let rest = inside.unwrap_or(rest);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let end = rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len());
    let behind = if inside.is_some() { rest[end..].strip_prefix(b"}")? } else { &rest[end..] };
    Some((&rest[..end], behind))
}

/// Tells whether a word begins with a variable or a command.
pub(super) fn is_variable(word: &[u8]) -> bool {
    matches!(word.first(), Some(b'$' | b'`'))
}

/// A word without a variable or command at its beginning, which stands for the top of the working tree more often than not.
pub(super) fn plain(word: &[u8]) -> &[u8] {
    if !is_variable(word) {
        return word;
    }
    let from = match word {
        [b'`', rest @ ..] => rest.iter().position(|byte| *byte == b'`').map_or(word.len(), |at| at + 2),
        _ => 0,
    };
    // A slash inside of the brackets belongs to them.
    let mut depth = 0_usize;
    let at = word[from..].iter().position(|byte| {
        match byte {
            b'{' | b'(' => depth += 1,
            b'}' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *byte == b'/' && depth == 0
    });
    // A variable as a whole says nothing.
    at.map_or(b"", |at| &word[from + at + 1..])
}

/// Returns the commands that a word has in `$(…)`.
pub(super) fn substitutions(word: &[u8]) -> Vec<&[u8]> {
    let begins = word.windows(2).enumerate().filter(|(_, two)| *two == b"$(").map(|(at, _)| at + 2);
    let inside = |begin: usize| {
        let mut depth = 1_usize;
        let end = word[begin..].iter().position(|byte| {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        &word[begin..end.map_or(word.len(), |end| begin + end)]
    };
    begins.map(inside).collect()
}
