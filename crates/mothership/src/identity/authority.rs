//! The authority that signs the certificates of territories. Only the public key of a request is used; names and extensions
//! come from a template of the server.

use super::secret::sha256;
use crate::store::types::SecretHash;
use nexus_model::ids::TerritoryId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use std::time::Duration;

/// Life of the authority's own certificate.
pub(super) const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 86_400);
/// Certificates hold from a little earlier on, for clocks that are slow.
pub(super) const SLOW_CLOCK: Duration = Duration::from_secs(300);

/// Reason why the authority did not sign.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The request is not one that the authority signs.
    #[error("the certificate request cannot be used: {0}")]
    Request(String),
    /// The authority's own certificate or key cannot be used.
    #[error("the authority cannot sign: {0}")]
    Signer(#[from] rcgen::Error),
    /// The store has no authority with a certificate and its key.
    #[error("no authority of the store has both a certificate and its key")]
    Unreadable,
    /// Certificates of so many authorities are trusted that none is added.
    #[error("too many authorities are still trusted; each goes when its last certificate is over")]
    TooMany,
}

/// Certificate and key of the authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert_pem: String,
    key_pem: String,
}

/// A request whose signature is good.
pub struct CheckedRequest {
    request: CertificateSigningRequestParams,
    /// Hash of the public key.
    pub key: SecretHash,
}

/// A certificate for a territory.
pub struct Signed {
    pub pem: String,
    /// SHA-256 of the certificate.
    pub fingerprint: SecretHash,
}

impl Authority {
    /// Makes an authority. `now` is in milliseconds since 1970.
    pub fn create(now: i64) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Nexus territories");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        lifetime(&mut params, now, AUTHORITY_LIFE);
        let cert_pem = params.self_signed(&key)?.pem();
        let key_pem = key.serialize_pem();
        Self::load(&cert_pem, &key_pem)
    }

    /// Reads an authority from its certificate and key.
    pub fn load(cert_pem: &str, key_pem: &str) -> Result<Self, AuthorityError> {
        let issuer = Issuer::from_ca_cert_pem(cert_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { issuer, cert_pem: cert_pem.to_owned(), key_pem: key_pem.to_owned() })
    }

    /// Certificate and private key, as PEM.
    #[must_use]
    pub fn export(&self) -> (&str, &str) {
        (&self.cert_pem, &self.key_pem)
    }

    /// Checks a request: its form, its signature by its own key, and the kind of the key.
    pub fn check(csr_pem: &str) -> Result<CheckedRequest, AuthorityError> {
        if csr_pem.len() > 64 * 1024 {
            return Err(AuthorityError::Request("it is longer than 64 KiB".to_owned()));
        }
        let request = CertificateSigningRequestParams::from_pem(csr_pem)
            .map_err(|error| AuthorityError::Request(error.to_string()))?;
        let key = sha256(&request.public_key.subject_public_key_info());
        Ok(CheckedRequest { request, key })
    }

    /// Signs a certificate for the key of a request, good for `life` from `now` on.
    pub fn sign(
        &self,
        request: &CheckedRequest,
        territory: TerritoryId,
        now: i64,
        life: Duration,
    ) -> Result<Signed, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&territory.to_string());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        lifetime(&mut params, now, life);
        let certificate = params.signed_by(&request.request.public_key, &self.issuer)?;
        Ok(Signed { pem: certificate.pem(), fingerprint: sha256(certificate.der()) })
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn lifetime(params: &mut CertificateParams, now: i64, life: Duration) {
    let epoch = date_time_ymd(1970, 1, 1);
    let now = Duration::from_millis(now.max(0) as u64);
    params.not_before = epoch + now.saturating_sub(SLOW_CLOCK);
    params.not_after = epoch + now + life;
}

/// The time in which a certificate is good, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second in which the certificate is good.
    pub not_before: i64,
    /// Last second in which the certificate is good.
    pub not_after: i64,
}

/// Returns the time in which a certificate in PEM form is good.
#[must_use]
pub fn validity(pem: &str) -> Option<Validity> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let validity = pem.parse_x509().ok()?.validity().clone();
    Some(Validity { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() })
}

/// Returns the public key of a certificate in PEM form.
pub(super) fn public_key(pem: &str) -> Option<Vec<u8>> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    Some(pem.parse_x509().ok()?.tbs_certificate.subject_pki.raw.to_vec())
}

/// Returns the hash of the public key of a certificate in DER form.
#[must_use]
pub fn certificate_key(der: &[u8]) -> Option<SecretHash> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(sha256(certificate.tbs_certificate.subject_pki.raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &KeyPair) -> String {
        let mut params = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn only_the_key_of_a_request_reaches_the_certificate() {
        let authority = Authority::create(1_800_000_000_000).unwrap();
        let key = KeyPair::generate().unwrap();
        let checked = Authority::check(&request(&key)).unwrap();
        let territory = TerritoryId::new();
        let signed = authority.sign(&checked, territory, 1_800_000_000_000, Duration::from_secs(60)).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(signed.pem.as_bytes()).unwrap();
        assert_eq!(certificate_key(&pem.contents), Some(checked.key));
        assert_eq!(sha256(&pem.contents), signed.fingerprint);
        let certificate = pem.parse_x509().unwrap();
        assert!(!certificate.is_ca() && certificate.subject_alternative_name().unwrap().is_none());
        assert_eq!(certificate.subject().to_string(), format!("CN={territory}"));
        let valid = validity(&signed.pem).unwrap();
        assert_eq!(valid, Validity { not_before: 1_800_000_000 - 300, not_after: 1_800_000_000 + 60 });
        let usage = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
    }

    #[test]
    fn a_request_with_a_changed_byte_is_refused() {
        let pem = request(&KeyPair::generate().unwrap());
        assert!(Authority::check(&pem).is_ok());
        let broken = pem.replacen("MI", "MJ", 1);
        assert!(Authority::check(&broken).is_err());
        assert!(Authority::check("").is_err());
        let middle = pem.len() / 2;
        let letter = if pem.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let changed = format!("{}{letter}{}", &pem[..middle], &pem[middle + 1..]);
        assert!(Authority::check(&changed).is_err());
    }
}
