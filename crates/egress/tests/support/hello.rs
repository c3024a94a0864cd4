//! Makes the first message of a TLS client.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// Returns a real ClientHello; `fragment` splits it into records of so many bytes. A name that rustls does not write
/// (beyond ASCII, or with a dot at its end) takes the place of another one of the same length.
pub fn hello(name: &str, fragment: Option<usize>) -> Vec<u8> {
    if !name.is_ascii() || name.ends_with('.') {
        let other = "x".repeat(name.len());
        let mut bytes = hello(&other, None);
        let at = bytes.windows(name.len()).position(|window| window == other.as_bytes()).unwrap();
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        return bytes;
    }
    let mut client = client(name, fragment);
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Creates a client that is about to send its ClientHello.
pub fn client(name: &str, fragment: Option<usize>) -> ClientConnection {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.max_fragment_size = fragment;
    let name: ServerName<'static> = name.to_owned().try_into().unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}
