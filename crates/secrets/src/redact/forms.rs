//! The byte strings by which a value can appear in output: as it is, in base64, hexadecimal, URLs and JSON, with other line ends.

use crate::value::MIN_BYTES;
use std::collections::BTreeSet;
use zeroize::{Zeroize, Zeroizing};

/// Minimum length of a line of a value that is looked for on its own.
const MIN_LINE: usize = 8;
/// Lengths after which programs break base64: `base64` and MIME, `openssl` and PEM.
const WRAPPED_AT: [usize; 2] = [76, 64];
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters beside letters and digits that encoders of URLs leave as they are: RFC 3986; Python's `quote`; JavaScript's
/// `encodeURIComponent`; HTML forms.
const UNRESERVED: [&[u8]; 4] = [b"-._~", b"-._~/", b"-._~!'()*", b"-._*"];

/// Returns all forms of a value. White space around it may be lost on the way to the output, so it is not looked for.
pub fn of(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let value = value.trim_ascii();
    let mut all = Forms::default();
    all.add(value.to_vec());
    all.texts(value);
    for offset in 0..3 {
        for alphabet in [STANDARD, FOR_URLS] {
            all.add(base64(value, offset, alphabet));
            // At the end of what is encoded, perhaps with a line end, the last characters depend on the value alone too.
            for end in [&b""[..], b"\n", b"\r\n"] {
                let encoded = Zeroizing::new([value, end].concat());
                let (text, padding) = base64_to_end(&encoded, offset, alphabet);
                let padded = Zeroizing::new([&text[..], padding].concat());
                if offset == 0 {
                    for length in WRAPPED_AT {
                        all.add(wrapped(&padded, length));
                    }
                }
                all.add(text);
                all.add(padded.to_vec());
            }
        }
    }
    for upper in [false, true] {
        all.add(value.iter().flat_map(|byte| hex(*byte, upper)).collect());
    }
    if value.contains(&b'\n') {
        let lines = || value.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        all.add(lines().collect::<Vec<_>>().join(&b"\n"[..]));
        all.add(lines().collect::<Vec<_>>().join(&b"\r\n"[..]));
        for line in lines().map(<[u8]>::trim_ascii).filter(|line| line.len() >= MIN_LINE) {
            all.add(line.to_vec());
            all.texts(line);
        }
    }
    all.0.into_iter().map(Zeroizing::new).collect()
}

#[derive(Default)]
struct Forms(BTreeSet<Vec<u8>>);

impl Forms {
    fn add(&mut self, mut form: Vec<u8>) {
        if form.len() >= MIN_BYTES && !self.0.contains(&form) {
            self.0.insert(form);
        } else {
            form.zeroize();
        }
    }

    /// Adds the forms in URLs and in JSON.
    fn texts(&mut self, value: &[u8]) {
        for kept in UNRESERVED {
            for upper in [true, false] {
                self.add(percent(value, kept, upper, false));
                self.add(percent(value, kept, upper, true));
            }
        }
        for slash in [false, true] {
            for upper in [false, true] {
                self.add(json(value, slash, upper, false));
                self.add(json(value, slash, upper, true));
            }
        }
    }
}

/// Returns the characters that depend on the value alone, when so many bytes of something else come before it in the same group.
fn base64(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |at: usize| (value[at / 8 - offset] >> (7 - at % 8)) & 1;
    let first = (8 * offset).div_ceil(6);
    let end = 8 * (offset + value.len()) / 6;
    let character = |at: usize| alphabet[(6 * at..6 * at + 6).fold(0, |bits, at| (bits << 1) | usize::from(bit(at)))];
    (first..end).map(character).collect()
}

/// Returns the same with the characters after the value, up to the end of the group, and the padding of that.
fn base64_to_end(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> (Vec<u8>, &'static [u8]) {
    let bits = 8 * (offset + value.len());
    let with_zeros = Zeroizing::new([value, &[0][..]].concat());
    let mut text = base64(&with_zeros, offset, alphabet);
    text.truncate(bits.div_ceil(6) - (8 * offset).div_ceil(6));
    let padding: &[u8] = match bits % 24 {
        8 => b"==",
        16 => b"=",
        _ => b"",
    };
    (text, padding)
}

fn wrapped(text: &[u8], length: usize) -> Vec<u8> {
    text.chunks(length).collect::<Vec<_>>().join(&b"\n"[..])
}

fn hex(byte: u8, upper: bool) -> [u8; 2] {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

fn percent(value: &[u8], kept: &[u8], upper: bool, plus: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(3 * value.len());
    for byte in value {
        match byte {
            b' ' if plus => text.push(b'+'),
            byte if byte.is_ascii_alphanumeric() || kept.contains(byte) => text.push(*byte),
            byte => {
                text.push(b'%');
                text.extend(hex(*byte, upper));
            }
        }
    }
    text
}

/// Returns the value as a JSON string has it, without the quotes. Bytes that are not UTF-8 stay as they are.
fn json(value: &[u8], slash: bool, upper: bool, ascii: bool) -> Vec<u8> {
    // The longest form of a byte, since a buffer that grows leaves copies in freed memory.
    let mut text = Vec::with_capacity(6 * value.len());
    let escape = |text: &mut Vec<u8>, unit: u16| {
        text.extend(b"\\u");
        text.extend(unit.to_be_bytes().into_iter().flat_map(|byte| hex(byte, upper)));
    };
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => text.extend([b'\\', character as u8]),
                '/' if slash => text.extend(b"\\/"),
                '\n' => text.extend(b"\\n"),
                '\r' => text.extend(b"\\r"),
                '\t' => text.extend(b"\\t"),
                '\u{8}' => text.extend(b"\\b"),
                '\u{c}' => text.extend(b"\\f"),
                '\0'..='\u{1f}' => escape(&mut text, character as u16),
                character if ascii && !character.is_ascii() => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        escape(&mut text, *unit);
                    }
                }
                character => text.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        text.extend(chunk.invalid());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(value: &[u8], form: &str) -> bool {
        of(value).iter().any(|found| ***found == *form.as_bytes())
    }

    #[test]
    fn the_usual_encodings_are_there() {
        // Checked with base64(1), Python's urllib and json, and xxd.
        let value = "s3cr\"t/\u{e9} &\tx\n";
        for form in [
            "s3cr\"t/\u{e9} &\tx",
            "czNjciJ0L8OpICYJe",
            "czNjciJ0L8OpICYJeA==",
            "czNjciJ0L8OpICYJeA",
            "czNjciJ0L8OpICYJeAo=",
            "zM2NyInQvw6kgJgl4",
            "MzY3IidC/DqSAmCX",
            "s3cr%22t%2F%C3%A9%20%26%09x",
            "s3cr%22t/%C3%A9%20%26%09x",
            "s3cr%22t%2f%c3%a9+%26%09x",
            "s3cr\\\"t/\u{e9} &\\tx",
            "s3cr\\\"t\\/\\u00e9 &\\tx",
            "733363722274 2fc3a920260978".replace(' ', "").as_str(),
        ] {
            assert!(has(value.as_bytes(), form), "{form}");
        }
        assert!(has("a\u{1f600}b\u{1}cd".as_bytes(), "a\\ud83d\\ude00b\\u0001cd"));
    }

    #[test]
    fn a_value_of_several_lines_is_looked_for_line_by_line() {
        let key = b"-----BEGIN KEY-----\r\nMIIEvQIBADAN\nshort\n-----END KEY-----\n";
        for form in ["MIIEvQIBADAN", "-----BEGIN KEY-----\nMIIEvQIBADAN\nshort\n-----END KEY-----"] {
            assert!(has(key, form), "{form}");
        }
        assert!(has(key, "-----BEGIN KEY-----\r\nMIIEvQIBADAN\r\nshort\r\n-----END KEY-----"));
        assert!(!has(key, "short"));
    }

    #[test]
    fn long_base64_is_also_looked_for_with_line_breaks() {
        let value = vec![b'k'; 120];
        let line = base64(&value, 0, STANDARD);
        let text = String::from_utf8(line).unwrap();
        assert!(has(&value, &format!("{}\n{}\n{}", &text[..76], &text[76..152], &text[152..])));
    }

    #[test]
    fn no_form_is_short_enough_to_be_found_everywhere() {
        for value in [&b"abcd"[..], b" \n", b"", b"a\nb\nc"] {
            assert!(of(value).iter().all(|form| form.len() >= MIN_BYTES), "{value:?}");
        }
    }
}
