//! Recognises content that may hold other content in a form that its pieces do not show: archives, compressed and encrypted
//! files. Pure.

/// The first bytes of common formats: gzip, xz, bzip2, zstd, lz4, zip, 7z, lzip, compress (magic(5)).
const BEGINNINGS: &[&[u8]] = &[
    b"\x1f\x8b",
    b"\xfd7zXZ\0",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18",
    b"PK\x03\x04",
    b"7z\xbc\xaf\x27\x1c",
    b"LZIP",
    b"\x1f\x9d",
];

/// Bytes of a content that are looked at.
pub(super) const SAMPLE: u64 = 4096;
/// A shorter sample says nothing about how its bytes are spread, and counts as encoded unless it is text.
const MIN_SAMPLE: usize = 512;

/// Tells by the beginning of a content whether it may be encoded.
pub(super) fn is_encoded(beginning: &[u8]) -> bool {
    let is_binary = || !is_text(beginning);
    BEGINNINGS.iter().any(|magic| beginning.starts_with(magic))
        || ((beginning.len() < MIN_SAMPLE || is_zlib(beginning)) && is_binary())
        || is_spread(beginning)
}

/// Tells whether the bytes begin a stream of zlib (RFC 1950), as the loose objects of git do.
fn is_zlib(beginning: &[u8]) -> bool {
    let [method, flags, ..] = beginning else { return false };
    method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
}

/// Tells whether the bytes are text in UTF-8, which a sample may cut at its end.
fn is_text(sample: &[u8]) -> bool {
    let is_cut = |error: std::str::Utf8Error| error.error_len().is_none();
    let is_printed = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace() || matches!(byte, 0x08 | 0x1b);
    std::str::from_utf8(sample).map_or_else(is_cut, |_| true) && sample.iter().all(is_printed)
}

/// Tells whether the bytes are spread as those of compressed content: text and programs repeat few values.
fn is_spread(sample: &[u8]) -> bool {
    if sample.len() < MIN_SAMPLE {
        return false;
    }
    let mut counts = [0_u32; 256];
    for byte in sample {
        counts[usize::from(*byte)] += 1;
    }
    // The expected sum for random bytes is n + n(n - 1) / 256.
    let n = sample.len() as u64;
    let squares: u64 = counts.iter().map(|count| u64::from(*count) * u64::from(*count)).sum();
    squares <= n + n * (n - 1) / 256 * 3 / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_and_random_bytes_are_recognised() {
        assert!(is_encoded(b"\x1f\x8b\x08\0rest") && is_encoded(b"PK\x03\x04rest"));
        let mut state = 1_u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .take(4096)
        .collect();
        assert!(is_encoded(&random) && is_encoded(&random[..512]));
    }

    #[test]
    fn short_contents_that_are_not_text_are_encoded() {
        // A blob of git with the text "hello\n".
        let object = b"\x78\x01\x4b\xca\xc9\x4f\x52\x30\x63\xc8\x48\xcd\xc9\xc9\xe7\x02\0\x1d\xc5\x04\x14";
        assert!(is_encoded(object) && is_zlib(object) && !is_zlib(b"x") && is_encoded(b"h\0e\0"));
    }

    #[test]
    fn text_and_programs_are_not() {
        let text = include_str!("encoded.rs").as_bytes();
        assert!(!is_encoded(&text[..text.len().min(4096)]));
        for text in ["short", "", "x^2 + 1\n", "HK, Hj\n", "\x1b[1mbold\x1b[0m", "für x\r\n"] {
            assert!(!is_encoded(text.as_bytes()), "{text:?}");
        }
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_encoded(&program[..4096]));
    }
}
