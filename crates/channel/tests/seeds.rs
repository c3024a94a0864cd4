//! Inputs from which the fuzzer starts, and inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn every_seed_of_the_frames_holds_its_properties() {
    seeds::each("frames", frames::frames);
}
