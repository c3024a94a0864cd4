//! Certificates and keys as PEM text, read alike for the client and for the server.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reason why certificates or a key cannot be used.
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
    Refused(String),
}

impl TlsError {
    /// Returns the error for an answer of the library.
    pub fn refused(error: impl std::fmt::Display) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Reads a chain of certificates. A text without any is an error.
pub fn certificates(field: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |why: String| TlsError::Pem { field, why };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| fault(error.to_string()))?;
    if found.is_empty() { Err(fault("it holds no certificate".to_owned())) } else { Ok(found) }
}

/// Reads a private key.
pub fn private_key(field: &'static str, pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| TlsError::Pem { field, why: error.to_string() })
}

/// Reads the certificates of authorities.
pub fn authorities(field: &'static str, pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(field, pem)? {
        roots.add(certificate).map_err(TlsError::refused)?;
    }
    Ok(roots)
}
