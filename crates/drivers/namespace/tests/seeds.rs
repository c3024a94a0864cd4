//! Seeds of the fuzzer, and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../../../../fuzz/src/warm.rs"]
mod warm;

#[test]
fn every_seed_of_the_launchers_holds_its_properties() {
    seeds::each("warm", warm::warm);
}

/// Messages with a byte changed, left out or doubled, at every place.
#[test]
fn a_damaged_message_of_a_launcher_holds_its_properties() {
    for (_, bytes) in seeds::of("warm") {
        for at in 0..bytes.len() {
            let (before, rest) = bytes.split_at(at);
            for bit in [1, 0x40, 0x80] {
                warm::warm(&[before, &[rest[0] ^ bit], &rest[1..]].concat());
            }
            warm::warm(&[before, &rest[1..]].concat());
            warm::warm(&[before, &rest[..1], rest].concat());
        }
    }
}
