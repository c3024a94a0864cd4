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
/// A shorter sample says nothing about how its bytes are spread.
const MIN_SAMPLE: usize = 512;

/// Tells by the beginning of a content whether it may be encoded.
pub(super) fn is_encoded(beginning: &[u8]) -> bool {
    BEGINNINGS.iter().any(|magic| beginning.starts_with(magic)) || is_spread(beginning)
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
    fn text_and_programs_are_not() {
        let text = include_str!("encoded.rs").as_bytes();
        assert!(!is_encoded(&text[..text.len().min(4096)]));
        assert!(!is_encoded(b"short") && !is_encoded(b""));
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_encoded(&program[..4096]));
    }
}
