//! Bytes as the contract writes them: base64 in the standard alphabet, with padding.

use data_encoding::BASE64;

/// Returns the text for these bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Returns the bytes of a text; `None` when the text is not base64.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.as_bytes()).ok()
}
