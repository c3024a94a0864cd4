//! Runs the seeds of the fuzzer and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/dns.rs"]
mod dns;
#[path = "../../../fuzz/src/hello.rs"]
mod hello;
#[path = "../../../fuzz/src/http.rs"]
mod http;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

#[test]
fn every_seed_of_http_holds_its_properties() {
    seeds::each("http_head", http::head);
    seeds::each("http_chunks", http::chunks);
}

#[test]
fn every_seed_of_socks_holds_its_properties() {
    seeds::each("socks", socks::frames);
}

#[test]
fn every_seed_of_dns_holds_its_properties() {
    seeds::each("dns", dns::question);
}

#[test]
fn every_seed_of_tls_holds_its_properties() {
    seeds::each("hello", hello::hello);
}
