//! Properties of the readers of hostile bytes in this crate, for the package `fuzz` and for the tests. Each panics where it fails.

use crate::decide::{ChunkFault, chunk};
use crate::identity::{Authority, certificate_key};
use nexus_api::base64;
use nexus_api::conduits::{LogChunkRequest, MAX_CHUNK_BYTES};
use nexus_model::ids::TerritoryId;
use std::sync::OnceLock;

/// Time of the certificates that are signed here, in milliseconds since 1970.
const NOW: i64 = 1_800_000_000_000;

/// A certificate request: one that is taken gives a certificate for its key and for nothing else.
///
/// # Panics
///
/// When the property fails.
pub fn csr(data: &[u8]) {
    static AUTHORITY: OnceLock<Option<Authority>> = OnceLock::new();
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(checked) = Authority::check(text) else { return };
    let Some(authority) = AUTHORITY.get_or_init(|| Authority::create(NOW).ok()) else {
        panic!("the authority of the test cannot be made")
    };
    let territory = TerritoryId::new();
    // A key of a kind that the library does not sign is refused here.
    let Ok(signed) = authority.sign(&checked, territory, NOW, std::time::Duration::from_secs(60)) else { return };
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(signed.pem.as_bytes()) else {
        panic!("the certificate cannot be read")
    };
    assert_eq!(certificate_key(&pem.contents), Some(checked.key), "it is for another key");
    let Ok(certificate) = pem.parse_x509() else { panic!("the certificate cannot be read") };
    assert!(!certificate.is_ca(), "a territory can sign");
    assert!(certificate.subject_alternative_name().is_ok_and(|names| names.is_none()), "the request chose a name");
    assert_eq!(certificate.subject().to_string(), format!("CN={territory}"), "the request chose its subject");
    let usage = certificate.extended_key_usage().ok().flatten().map(|usage| usage.value.clone());
    assert!(
        usage.is_some_and(|usage| usage.client_auth && !usage.server_auth && !usage.any),
        "the request chose a use"
    );
}

/// The body of a chunk: one that is taken has bounds, and its bytes have one spelling.
///
/// # Panics
///
/// When the property fails.
pub fn log_chunk(data: &[u8]) {
    let Ok(request) = serde_json::from_slice::<LogChunkRequest>(data) else { return };
    match chunk(&request) {
        Ok(read) => {
            assert!(read.seq >= 0 && read.bytes.len() <= MAX_CHUNK_BYTES);
            assert_eq!(base64::encode(&read.bytes), request.bytes, "bytes with two spellings have two hashes");
        }
        Err(ChunkFault::Seq) => assert!(request.seq < 0),
        Err(ChunkFault::TooLarge) => assert!(request.bytes.len() > MAX_CHUNK_BYTES),
        Err(ChunkFault::Base64) => assert!(base64::decode(&request.bytes).is_none()),
    }
}
