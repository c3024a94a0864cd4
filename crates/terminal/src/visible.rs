//! Writes characters as escapes that would act on a terminal or hide from the reader.
//!
//! Control characters make a terminal act (CVE-2021-25743). Format characters (Unicode Cf) draw nothing themselves and
//! change how the rest is read: a right-to-left override shows `gpj.exe` as `exe.jpg` (CVE-2021-42574), a zero-width
//! space makes two names look alike. Line and paragraph separators end a line for some readers.

/// Code points of general category Cf, Unicode 16, and the separators U+2028 and U+2029 between them.
const FORMAT: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Reports whether a character would act on the terminal or on how its neighbours are read, instead of being seen.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control() || FORMAT.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Returns the text with every unseen character written as an escape, except those of `kept`.
pub fn escaped(text: &str, kept: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) && !kept.contains(&c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bidirectional_controls_and_other_format_characters_are_written_as_escapes() {
        let named = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        let others = "\u{ad}\u{200b}\u{200d}\u{2028}\u{feff}\u{e0041}\u{1b}\u{7f}\u{9b}\n";
        for c in named.chars().chain(others.chars()) {
            let shown = escaped(&format!("a{c}b"), &[]);
            assert!(shown.is_ascii() && shown.starts_with("a\\") && shown.ends_with('b'), "{shown}");
        }
    }

    #[test]
    fn letters_of_every_script_stay_as_they_are() {
        let text = "größe שלום سلام नमस्ते 日本語 é 🙂 \u{301}";
        assert_eq!(escaped(text, &[]), text);
        assert_eq!(escaped("a\tb\n\u{202e}", &['\n', '\t']), "a\tb\n\\u{202e}");
    }
}
