//! TLS of a listener: a client certificate is asked for and not required, and the server's own can be replaced.

use nexus_api::tls::{TlsError, authorities, certificates, private_key};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::sync::{Arc, PoisonError, RwLock};

/// Certificate of a listener.
#[derive(Clone)]
pub struct TlsIdentity {
    /// Certificate chain, as PEM.
    pub certificate_pem: String,
    /// Private key, as PEM.
    pub key_pem: String,
    /// Provider of cryptography: nothing process-wide is used.
    pub provider: Arc<CryptoProvider>,
}

/// TLS settings of a listener, which can be replaced while connections are open.
pub struct LiveTls(RwLock<TlsSettings>);

/// Settings of a listener, and what they were made of.
#[derive(Clone)]
pub struct TlsSettings {
    identity: TlsIdentity,
    client_ca_pem: String,
    config: Arc<ServerConfig>,
}

impl TlsSettings {
    fn new(identity: TlsIdentity, client_ca_pem: String) -> Result<Self, TlsError> {
        let config = server_config(&identity, &client_ca_pem)?;
        Ok(Self { identity, client_ca_pem, config })
    }
}

impl LiveTls {
    /// Makes the settings of a listener. Clients may show a certificate of `client_ca_pem`.
    pub fn new(identity: &TlsIdentity, client_ca_pem: &str) -> Result<Self, TlsError> {
        TlsSettings::new(identity.clone(), client_ca_pem.to_owned()).map(|settings| Self(RwLock::new(settings)))
    }

    fn settings(&self) -> TlsSettings {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the settings for the next connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.settings().config
    }

    /// Makes settings with another certificate, and changes nothing yet.
    pub fn prepare(&self, identity: &TlsIdentity) -> Result<TlsSettings, TlsError> {
        TlsSettings::new(identity.clone(), self.settings().client_ca_pem)
    }

    /// Makes settings with other authorities of clients, and changes nothing yet.
    pub fn prepare_trust(&self, client_ca_pem: &str) -> Result<TlsSettings, TlsError> {
        TlsSettings::new(self.settings().identity, client_ca_pem.to_owned())
    }

    /// Uses these settings from the next connection on.
    pub fn set(&self, settings: TlsSettings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

/// Returns TLS settings of a listener. Clients that show no certificate can enrol and can bring an API key. Sessions are not
/// resumed: each connection proves its identity. The library refuses a key that does not belong to the certificate.
fn server_config(identity: &TlsIdentity, client_ca_pem: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::clone(&identity.provider);
    let roots = Arc::new(authorities("the CA bundle", client_ca_pem)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::refused)?;
    let chain = certificates("the server certificate", &identity.certificate_pem)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::refused)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, private_key("the server key", &identity.key_pem)?)
        .map_err(TlsError::refused)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
