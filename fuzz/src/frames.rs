//! Frames between host and guest: what is read writes itself, and a part of it is no frame.

use nexus_channel::codec::{HEADER, MAX_FRAME, decode, encode, payload_len};
use nexus_channel::frames::{GuestFrame, HostFrame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A payload, of either side.
pub fn frames(data: &[u8]) {
    if let Some(header) = data.first_chunk::<HEADER>() {
        assert!(payload_len(*header).is_ok_and(|length| length <= MAX_FRAME) || header[3] > 0 || header[2] >= 0x80);
    }
    one::<GuestFrame>(data);
    one::<HostFrame>(data);
}

fn one<F: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let Ok(frame) = decode::<F>(data) else { return };
    let Ok(written) = encode(&frame) else { panic!("{frame:?} was read and cannot be written") };
    let (header, payload) = written.split_at(HEADER);
    assert_eq!(payload_len([header[0], header[1], header[2], header[3]]), Ok(payload.len()));
    assert_eq!(decode::<F>(payload).as_ref(), Ok(&frame), "it is written as another frame");
    // Numbers have longer forms, too, but none is shorter than the one that is written.
    assert!(payload.len() <= data.len());
    for cut in (0..payload.len()).step_by(1 + payload.len() / 64) {
        assert!(decode::<F>(&payload[..cut]).is_err(), "{cut} bytes of {frame:?} are a frame");
    }
    assert!(decode::<F>(&[payload, b"\0"].concat()).is_err(), "a byte more is passed over");
}
