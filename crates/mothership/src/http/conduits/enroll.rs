//! Enrolment, renewal, and the authority's certificate.

use crate::app::App;
use crate::http::answer::{Answer, Problem, created, ok};
use crate::http::auth;
use crate::http::request::Context;
use crate::identity::{Authority, AuthorityError, CheckedRequest, sha256};
use crate::store::types::{Enrolment, NewTerritory, SecretHash, Territory};
use axum::http::{HeaderMap, StatusCode};
use nexus_api::conduits::{
    CaAnswer, CertificateAnswer, CertificateRequest, EnrollAnswer, EnrollRequest, TerritoryConfig,
};
use std::net::IpAddr;

impl From<AuthorityError> for Problem {
    fn from(error: AuthorityError) -> Self {
        match error {
            AuthorityError::Request(_) => {
                Self::invalid("invalid_csr", "The certificate request cannot be used.").detail(error.to_string())
            }
            AuthorityError::Signer(_) | AuthorityError::Unreadable | AuthorityError::TooMany => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "authority_failed", "The authority could not sign.")
            }
        }
    }
}

/// Enrols a machine. A bad certificate request is refused before the token is spent.
pub async fn enroll(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let request: EnrollRequest = context.json()?;
    let checked = request.csr_pem.as_deref().map(Authority::check).transpose()?;
    let capacity = request.metadata.and_then(|metadata| metadata.capacity).unwrap_or_default();
    let new = NewTerritory {
        token: sha256(request.enroll_token.as_bytes()),
        csr_key: checked.as_ref().map(|checked| checked.key),
        source: source(context),
        max_tries: app.config.enroll_per_hour,
        kind: request.kind,
        name: request.name,
        display_name: request.display_name,
        platform: request.platform,
        labels: request.labels.unwrap_or_default(),
        capacity,
    };
    let (territory, kind) = match app.store.enroll(new, app.now()).await? {
        Enrolment::Enrolled { territory, kind } => (territory, kind),
        Enrolment::BadToken => {
            return Err(Problem::invalid(
                "invalid_enroll_token",
                "The enrolment token is not valid: it is unknown, expired or used.",
            )
            .hint("Ask an operator for a new enrolment token."));
        }
        Enrolment::TooMany { retry_after } => {
            return Err(Problem::too_many("Too many enrolments came from this address.", retry_after));
        }
    };
    let certificate = match &checked {
        Some(checked) => Some(sign(app, checked, territory, None).await?),
        None => None,
    };
    Ok(created(&EnrollAnswer {
        territory_id: territory.id,
        kind,
        ca_bundle_pem: certificate.as_ref().map(|_| app.authorities().bundle().to_owned()),
        mtls_client_cert_pem: certificate,
        config: TerritoryConfig {
            poll_interval_seconds: app.config.poll_interval_seconds,
            heartbeat_interval_seconds: app.config.heartbeat_interval_seconds,
            lease_ttl_seconds: app.config.lease_seconds(),
        },
    }))
}

/// Renews the certificate of a territory. The old one ends when the new one is used, so that a lost answer locks no daemon out. The same
/// key gets a certificate again, and a key that has ended gets none.
pub async fn renew(context: &Context) -> Result<Answer, Problem> {
    let territory = context.territory()?;
    let request: CertificateRequest = context.json()?;
    let checked = Authority::check(&request.csr_pem)?;
    let before = auth::certificate_of(context).await?;
    let pem = sign(&context.app, &checked, territory, before).await?;
    let ca_bundle_pem = context.app.authorities().bundle().to_owned();
    Ok(ok(&CertificateAnswer { mtls_client_cert_pem: pem, ca_bundle_pem }))
}

/// Returns the certificate of the authority.
pub fn ca(context: &Context) -> Answer {
    ok(&CaAnswer { ca_bundle_pem: context.app.authorities().bundle().to_owned() })
}

async fn sign(
    app: &App,
    checked: &CheckedRequest,
    territory: Territory,
    replaces: Option<SecretHash>,
) -> Result<String, Problem> {
    let (now, life) = (app.now(), app.config.certificate_life);
    let authorities = app.authorities();
    let signer = authorities.signer(now, life).ok_or(AuthorityError::Unreadable)?;
    let signed = signer.sign(checked, territory.id, now, life)?;
    if app.store.add_certificate(territory, signed.fingerprint, checked.key, replaces).await? {
        return Ok(signed.pem);
    }
    Err(Problem::invalid("invalid_csr", "The key of the certificate request has ended, or is not of this territory."))
}

/// Returns the address that the proxy appended: the last entry of the last line. What stands before it, the client may have sent.
fn forwarded(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    let address: IpAddr = last.rsplit(',').next()?.trim().parse().ok()?;
    Some(address.to_canonical())
}

/// Returns the source of a try: the address, and for IPv6 its network. Only a proxy that the operator named may say that it
/// speaks for another address.
fn source(context: &Context) -> String {
    let peer = context.peer.address.ip().to_canonical();
    let address = if auth::is_proxy(&context.app.config.territory_auth, &context.headers, &context.peer) {
        forwarded(&context.headers).unwrap_or(peer)
    } else {
        peer
    };
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}
