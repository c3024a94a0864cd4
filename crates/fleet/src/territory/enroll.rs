//! Joins a machine to a control plane: a header on loopback, a certificate elsewhere.

use crate::client::call::{failure, http};
use crate::failure::Failure;
use crate::territory::credentials::{Credentials, FILE, key_and_request};
use crate::territory::services::of_territory;
use nexus_api::client::{ConduitsClient, PlainHttp, TerritoryIdentity};
use nexus_api::conduits::{Capacity, EnrollMetadata, EnrollRequest};
use nexusd::Territory;
use nexusd::territory::{IDENTITY_FORM, Identity};
use tokio::runtime::Handle;

/// Enrols with a token and notes the identity.
pub fn enroll(
    territory: &Territory,
    server: &str,
    ca_pem: Option<&str>,
    plain: PlainHttp,
    token: &str,
    name: Option<String>,
    runtime: &Handle,
) -> Result<Identity, Failure> {
    let over_tls = server.starts_with("https://");
    let (key, csr_pem) = if over_tls { Some(key_and_request()?) } else { None }.unzip();
    let http = http(server, ca_pem, None, plain)?;
    let client = ConduitsClient::new(&http, &TerritoryIdentity::Certificate).map_err(|error| failure(&error))?;
    let request = EnrollRequest {
        enroll_token: token.to_owned(),
        name,
        platform: Some(serde_json::json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH })),
        metadata: Some(EnrollMetadata { capacity: Some(Capacity::default()) }),
        csr_pem,
        ..EnrollRequest::default()
    };
    let answer = runtime.block_on(client.enroll(&request)).map_err(|error| failure(&error))?;
    let certificate = match (key, answer.mtls_client_cert_pem, ca_pem) {
        (Some(key), Some(certificate), Some(ca_pem)) => {
            let whole = Credentials { certificate, key: key.serialize_pem(), authority: ca_pem.to_owned() };
            whole.write(territory.path())?;
            Some(FILE.to_owned())
        }
        (Some(_), None, _) => {
            let message = "The control plane gave no certificate for this territory";
            return Err(Failure::refused("enroll", message, "Look at its version and its settings."));
        }
        _ => None,
    };
    let identity =
        Identity { version: IDENTITY_FORM, territory_id: answer.territory_id, server: server.to_owned(), certificate };
    territory.set_identity(&identity).map_err(|error| of_territory(&error))?;
    Ok(identity)
}
