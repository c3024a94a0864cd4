//! Recognizes the keys that detach a client from a running session.

use std::str::FromStr;

/// A sequence of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

/// Error: a text that does not name a sequence of keys.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a sequence of keys: write keys such as a or ctrl-p with commas between them, or none")]
pub struct ParseKeysError {
    text: String,
}

impl Default for DetachKeys {
    /// The default sequence is ctrl-p, ctrl-q.
    fn default() -> Self {
        Self(vec![0x10, 0x11])
    }
}

impl FromStr for DetachKeys {
    type Err = ParseKeysError;
    fn from_str(text: &str) -> Result<Self, ParseKeysError> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let keys: Option<Vec<u8>> = text.split(',').map(key).collect();
        keys.map(Self).ok_or_else(|| ParseKeysError { text: text.to_owned() })
    }
}

/// Returns the byte that a key sends.
fn key(name: &str) -> Option<u8> {
    match (name.as_bytes(), name.strip_prefix("ctrl-").map(str::as_bytes)) {
        (&[byte @ 0x21..=0x7e], _) => Some(byte),
        (_, Some(&[letter @ (b'a'..=b'z' | b'A'..=b'Z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')])) => {
            Some(letter.to_ascii_uppercase() - b'@')
        }
        _ => None,
    }
}

/// Looks for the keys in what is typed.
#[derive(Debug)]
pub struct Watch {
    keys: DetachKeys,
    seen: usize,
}

impl Watch {
    /// Makes a watch that has seen no key yet.
    pub fn new(keys: DetachKeys) -> Self {
        Self { keys, seen: 0 }
    }

    /// Takes what was typed and returns what is to be passed on, and whether the keys were among it; what was typed
    /// after them is thrown away. The first keys of the sequence wait until it is clear that they are not the sequence.
    pub fn push(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let keys = &self.keys.0;
        let mut out = Vec::with_capacity(typed.len());
        for byte in typed {
            if keys.is_empty() {
                out.push(*byte);
                continue;
            }
            if *byte != keys[self.seen] {
                out.extend_from_slice(&keys[..self.seen]);
                self.seen = 0;
            }
            if *byte != keys[self.seen] {
                out.push(*byte);
                continue;
            }
            self.seen += 1;
            if self.seen == keys.len() {
                self.seen = 0;
                return (out, true);
            }
        }
        (out, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_letters_or_with_ctrl() {
        assert_eq!("ctrl-p,ctrl-q".parse(), Ok(DetachKeys::default()));
        assert_eq!("a,ctrl-@".parse(), Ok(DetachKeys(vec![b'a', 0])));
        assert_eq!("none".parse(), Ok(DetachKeys(vec![])));
        for bad in ["", "ctrl-", "ctrl-1", "ab", "a,,b", "é"] {
            assert!(bad.parse::<DetachKeys>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_keys_detach_however_they_come_and_others_pass() {
        let mut watch = Watch::new(DetachKeys::default());
        assert_eq!(watch.push(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(watch.push(b"\x10x"), (b"\x10\x10x".to_vec(), false));
        assert_eq!(watch.push(b"\x10\x11rest"), (vec![], true));
        let mut none = Watch::new("none".parse().unwrap());
        assert_eq!(none.push(b"\x10\x11"), (b"\x10\x11".to_vec(), false));
    }
}
