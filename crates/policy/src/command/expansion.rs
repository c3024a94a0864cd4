//! The escapes of `$'…'`.

/// Returns the text that the escapes stand for. Everything else stays as it is.
pub(super) fn ansi_c(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(escape) = rest.next() else { break };
        let number =
            |max: usize, radix: u32, first: Option<u32>, rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
                let mut value = first.unwrap_or(0);
                let mut read = usize::from(first.is_some());
                while read < max
                    && let Some(digit) = rest.peek().and_then(|c| c.to_digit(radix))
                {
                    value = value.wrapping_mul(radix).wrapping_add(digit);
                    rest.next();
                    read += 1;
                }
                char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
            };
        match escape {
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'e' | 'E' => out.push('\u{1b}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            'x' => out.push(number(2, 16, None, &mut rest)),
            'u' => out.push(number(4, 16, None, &mut rest)),
            'U' => out.push(number(8, 16, None, &mut rest)),
            'c' => {
                rest.next();
            }
            '0'..='7' => out.push(number(3, 8, escape.to_digit(8), &mut rest)),
            other => out.push(other),
        }
    }
    out
}
