//! What a client and the supervisor of a detached sandbox send each other: frames come out the same however their bytes are
//! cut.

#[path = "../../crates/cli/src/session/wire.rs"]
#[allow(dead_code, reason = "the properties use a part of it")]
mod wire;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use wire::{Ask, Launched, Reader, Tell, put};

/// Bytes of either side.
pub fn session(data: &[u8]) {
    one::<Ask>(data);
    one::<Tell>(data);
    one::<Launched>(data);
}

fn one<F: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let frames = read::<F>(data, data.len().max(1));
    assert_eq!(read::<F>(data, 1 + data.len() / 7), frames, "cut in pieces it says something else");
    let mut written = Vec::new();
    for frame in &frames {
        assert!(put(&mut written, frame).is_ok(), "{frame:?} was read and cannot be written");
    }
    assert_eq!(read::<F>(&written, written.len().max(1)), frames, "it is written as something else");
}

fn read<F: DeserializeOwned>(data: &[u8], size: usize) -> Vec<F> {
    let (mut reader, mut found) = (Reader::default(), Vec::new());
    for piece in data.chunks(size) {
        reader.push(piece);
        loop {
            match reader.next::<F>() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}
