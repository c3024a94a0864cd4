//! Seeds of the fuzzer, and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

use proptest::prelude::*;

#[test]
fn every_seed_of_the_wire_holds_its_properties() {
    seeds::each("wire", wire::wire);
}

proptest! {
    /// Bodies with one value put in the place of another.
    #[test]
    fn a_body_with_another_value_holds_its_properties(
        seed in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
        value in prop::sample::select(vec!["null", "0", "-1", "1e400", "18446744073709551616", "\"\"", "\"\\u0000\"",
            "\"\\ud800\"", "[]", "{}", "true", "[[[[]]]]", "{\"a\":{\"a\":{}}}", "0.5", "\"2026-02-30T00:00:00Z\""]),
    ) {
        let all = seeds::of("wire");
        let body = &all[seed.index(all.len())].1;
        let Ok(serde_json::Value::Object(mut members)) = serde_json::from_slice(body) else { return Ok(()) };
        if !members.is_empty() {
            let name = members.keys().nth(at.index(members.len())).unwrap().clone();
            members.insert(name, serde_json::Value::Null);
            let text = serde_json::to_string(&members).unwrap().replacen("null", value, 1);
            wire::wire(text.as_bytes());
        }
    }
}
