//! Seeds of the fuzzer, and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/claims.rs"]
mod claims;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn every_seed_of_the_notes_holds_its_properties() {
    seeds::each("claims", claims::claims);
}

/// Slots with a byte changed, and with any part of them cut off.
#[test]
fn a_damaged_slot_is_no_other_note() {
    for (_, bytes) in seeds::of("claims") {
        let whole = nexusd::claims::text_of_slot(&bytes[..]).ok().flatten();
        // Zeros are the room of a slot, of which there is much.
        for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            claims::claims(&changed);
            // A slot with a result has two texts: the beginning stands for a torn result.
            if let (Some(whole), Ok(Some(other))) = (&whole, nexusd::claims::text_of_slot(&changed[..])) {
                assert!(&other == whole || bytes.windows(other.len()).any(|part| part == other), "at {at}");
            }
        }
        for cut in (0..bytes.len()).step_by(97) {
            claims::claims(&bytes[..cut]);
        }
    }
}
