//! TLS of the client.

use crate::tls::{TlsError, authorities, certificates, private_key};
use rustls::ClientConfig;
use std::sync::Arc;

/// Certificates of a client, as PEM text.
#[derive(Debug, Clone, Copy)]
pub struct TlsFiles<'a> {
    /// Certificates of the authorities that may sign the server's certificate.
    pub ca_pem: &'a str,
    /// Certificate and private key of the client.
    pub identity: Option<(&'a str, &'a str)>,
}

/// Returns the TLS settings of a client. The provider of cryptography is an argument: nothing process-wide is used.
pub fn tls_config(
    files: &TlsFiles<'_>,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::refused)?
        .with_root_certificates(authorities("the CA bundle", files.ca_pem)?);
    let config = match files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                certificates("the client certificate", certificate)?,
                private_key("the client key", key)?,
            )
            .map_err(TlsError::refused)?,
    };
    Ok(Arc::new(config))
}
