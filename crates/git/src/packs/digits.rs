//! Reads hexadecimal digits. Pure.

/// Returns the bytes that hexadecimal digits say.
pub fn bytes(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    digits.chunks(2).map(|two| Some(digit(two[0])? << 4 | digit(*two.get(1)?)?)).collect()
}
