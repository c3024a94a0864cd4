//! Writes hexadecimal digits. Pure.

/// Returns the hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).map_or(b'0', |digit| digit as u8);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
