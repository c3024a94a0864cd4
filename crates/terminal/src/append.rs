//! Formatted text at the end of a buffer.

/// Appends formatted text to a buffer. Unlike `write!` it returns no error to handle: a buffer in memory takes
/// everything.
pub fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.extend_from_slice(std::fmt::format(text).as_bytes());
}
