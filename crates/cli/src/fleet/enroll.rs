//! Joins a machine to a control plane: a header on loopback, a certificate elsewhere.

use super::call::{failure, http};
use super::services::of_territory;
use crate::failure::Failure;
use nexus_api::client::{ConduitsClient, PlainHttp, TerritoryIdentity};
use nexus_api::conduits::{Capacity, EnrollMetadata, EnrollRequest};
use nexusd::Territory;
use nexusd::territory::{IDENTITY_FORM, Identity};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tokio::runtime::Handle;

/// Name of the file with certificate, key and authority.
const CERTIFICATE: &str = "certificate.json";

#[derive(serde::Serialize, serde::Deserialize)]
struct Credentials {
    certificate: String,
    key: String,
    authority: String,
}

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
    let key = if over_tls { Some(rcgen::KeyPair::generate().map_err(|error| made(&error))?) } else { None };
    let csr_pem = key.as_ref().map(request).transpose()?;
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
            write_secret(&territory.path().join(CERTIFICATE), &whole)?;
            Some(CERTIFICATE.to_owned())
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

/// Makes the client of a territory that has joined.
pub fn client(data_dir: &Path, identity: &Identity, plain: PlainHttp) -> Result<ConduitsClient, Failure> {
    let Some(name) = &identity.certificate else {
        let http = http(&identity.server, None, None, plain)?;
        let proof = TerritoryIdentity::Header(identity.territory_id);
        return ConduitsClient::new(&http, &proof).map_err(|error| failure(&error));
    };
    let path = data_dir.join(name);
    let refused = |why: String| {
        let message = format!("The certificate in {} cannot be used: {why}", path.display());
        Failure::refused("certificate", message, "Join again with another data directory.")
    };
    let text = std::fs::read(&path).map_err(|error| refused(error.to_string()))?;
    let whole: Credentials = serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
    let http = http(&identity.server, Some(&whole.authority), Some((&whole.certificate, &whole.key)), plain)?;
    ConduitsClient::new(&http, &TerritoryIdentity::Certificate).map_err(|error| failure(&error))
}

fn request(key: &rcgen::KeyPair) -> Result<String, Failure> {
    let params = rcgen::CertificateParams::new(Vec::<String>::new()).map_err(|error| made(&error))?;
    let request = params.serialize_request(key).map_err(|error| made(&error))?;
    request.pem().map_err(|error| made(&error))
}

fn made(error: &rcgen::Error) -> Failure {
    Failure::refused("certificate", format!("a key for this territory cannot be made: {error}"), "run it again")
}

fn write_secret(path: &Path, whole: &Credentials) -> Result<(), Failure> {
    let written = (|| -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&serde_json::to_vec(whole)?)?;
        file.sync_all()
    })();
    written.map_err(|error| {
        Failure::refused("certificate", format!("{} cannot be written: {error}", path.display()), "look at its disk")
    })
}
