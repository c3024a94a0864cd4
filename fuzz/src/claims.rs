//! The notes of a daemon about its claims: a slot is free, damaged or a note, and a note is never a part of another one.

use nexusd::claims::{Note, text_of_slot};

/// The bytes of a slot, or the text of a note of the version before.
pub fn claims(data: &[u8]) {
    if let Ok(Some(text)) = text_of_slot(data) {
        assert!(text.len() < data.len(), "a text that the slot does not hold");
        note(&text);
        // The digest covers the text: one bit more or less is another slot, and never another note.
        if let Some(place) = data.windows(text.len().max(1)).position(|window| window == text.as_slice()) {
            let mut torn = data.to_vec();
            torn[place] ^= 1;
            if let Ok(Some(other)) = text_of_slot(&torn[..]) {
                assert_ne!(other, text, "a changed byte is not seen");
            }
        }
    }
    note(data);
}

fn note(text: &[u8]) {
    let Ok(read) = serde_json::from_slice::<Note>(text) else { return };
    // The name becomes that of a directory of copies.
    assert!(!read.name().contains(['/', '\0']) && !read.name().starts_with('.'), "{:?}", read.name());
    let Ok(written) = serde_json::to_vec(&read) else { panic!("{read:?} was read and cannot be written") };
    match serde_json::from_slice::<Note>(&written) {
        Ok(again) => assert_eq!(again, read, "it is written as another one"),
        Err(error) => panic!("{read:?} does not read itself: {error}"),
    }
}
