//! Names as git writes them. Pure.

/// Reports whether a name must be quoted. As git does with its default `core.quotePath`, also for everything beyond
/// ASCII: a diff is read on terminals, where such bytes can hide or reorder text (CVE-2021-42574).
fn needs_quotes(name: &[u8]) -> bool {
    name.iter().any(|byte| !(0x20..0x7f).contains(byte) || matches!(byte, b'"' | b'\\'))
}

/// Writes a name, in quotes with C escapes when it has bytes that would not stay on one line or be misread.
#[must_use]
pub fn quote(name: &[u8]) -> Vec<u8> {
    if !needs_quotes(name) {
        return name.to_vec();
    }
    let mut quoted = vec![b'"'];
    for byte in name {
        let letter = match byte {
            7 => b'a',
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            11 => b'v',
            12 => b'f',
            b'\r' => b'r',
            b'"' | b'\\' => *byte,
            0x20..0x7f => {
                quoted.push(*byte);
                continue;
            }
            _ => {
                quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes());
                continue;
            }
        };
        quoted.extend_from_slice(&[b'\\', letter]);
    }
    quoted.push(b'"');
    quoted
}

/// Writes a name behind `a/` or `b/`, the prefix inside the quotes.
#[must_use]
pub fn quote_with(prefix: &str, name: &[u8]) -> Vec<u8> {
    quote(&[prefix.as_bytes(), name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        for (name, wanted) in [
            (&b"plain"[..], "plain"),
            (b"with space", "with space"),
            (b"new\nline", r#""new\nline""#),
            (b"\x07\x08\t\x0b\x0c\r", r#""\a\b\t\v\f\r""#),
            (br#"quo"te"#, r#""quo\"te""#),
            (br"back\slash", r#""back\\slash""#),
            (b"\xff\x01\x7f", r#""\377\001\177""#),
            ("ü".as_bytes(), r#""\303\274""#),
        ] {
            assert_eq!(String::from_utf8_lossy(&quote(name)), wanted);
        }
        assert_eq!(quote_with("a/", b"x\ny"), br#""a/x\ny""#);
    }
}
