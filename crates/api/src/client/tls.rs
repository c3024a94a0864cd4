//! TLS of the client.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Certificates of a client, as PEM text.
#[derive(Debug, Clone, Copy)]
pub struct TlsFiles<'a> {
    /// Certificates of the authorities that may sign the server's certificate.
    pub ca_pem: &'a str,
    /// Certificate and private key of the client.
    pub identity: Option<(&'a str, &'a str)>,
}

/// Reason why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A text is not PEM, or holds nothing of the expected kind.
    #[error("{field} cannot be read: {why}")]
    Pem {
        /// Certificates or key that cannot be read.
        field: &'static str,
        /// Cause of the failure, for people.
        why: String,
    },
    /// The library refused the certificates.
    #[error("the certificates cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

/// Returns the TLS settings of a client. The provider of cryptography is an argument: nothing process-wide is used.
pub fn tls_config(
    files: &TlsFiles<'_>,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the CA bundle", files.ca_pem)? {
        roots.add(certificate)?;
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|error| TlsError::Pem { field: "the client key", why: error.to_string() })?;
            builder.with_client_auth_cert(certificates("the client certificate", certificate)?, key)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(field: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |why: String| TlsError::Pem { field, why };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| fault(error.to_string()))?;
    if found.is_empty() { Err(fault("it holds no certificate".to_owned())) } else { Ok(found) }
}
