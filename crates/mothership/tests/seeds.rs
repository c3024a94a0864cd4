//! Seeds of the fuzzer, and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use nexus_mothership::fuzz;
use rcgen::{CertificateParams, KeyPair};

#[test]
fn every_seed_of_the_control_plane_holds_its_properties() {
    seeds::each("csr", fuzz::csr);
    seeds::each("log_chunk", fuzz::log_chunk);
}

/// Requests with a byte changed, left out or doubled, at every place.
#[test]
fn a_damaged_certificate_request_signs_for_no_other_key() {
    let request = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    let pem = request.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    fuzz::csr(pem.as_bytes());
    for at in 0..pem.len() {
        let (before, rest) = pem.as_bytes().split_at(at);
        fuzz::csr(&[before, &rest[1..]].concat());
        fuzz::csr(&[before, &rest[..1], rest].concat());
        fuzz::csr(&[before, &[rest[0] ^ 1], &rest[1..]].concat());
        fuzz::csr(before);
    }
}
