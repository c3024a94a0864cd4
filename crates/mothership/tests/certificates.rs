//! Territories that prove their identity by a client certificate.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use nexus_api::client::{
    ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity, TlsFiles, tls_config,
};
use nexus_api::conduits::{CertificateRequest, EnrollRequest, PollRequest, TERRITORY_SECRET_HEADER};
use nexus_api::mothership::CreateEnrollmentToken;
use nexus_mothership::{Config, Listener, ProcessSecret, Running, ServeError, TerritoryAuth, TlsIdentity, serve};
use rcgen::{CertificateParams, KeyPair};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns a server with TLS and the certificate that clients check it against.
async fn start(directory: &TempDir) -> (Running, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    let tls = TlsIdentity { certificate_pem: certificate.clone(), key_pem: key.serialize_pem(), provider: provider() };
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(directory.path());
    config.enroll_per_hour = 100;
    let running = serve(config, vec![Listener { tcp, tls: Some(tls) }], std::future::pending()).await.unwrap();
    (running, certificate)
}

fn http(url: &str, ca: &str, identity: Option<(&str, &str)>) -> Http {
    let mut config = ClientConfig::new(url);
    config.tls = Some(tls_config(&TlsFiles { ca_pem: ca, identity }, provider()).unwrap());
    Http::new(config).unwrap()
}

fn csr(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_territory_enrols_renews_and_is_revoked_by_certificate() {
    let directory = TempDir::new().unwrap();
    let (running, ca) = start(&directory).await;
    let url = running.api_url.clone();
    let owner = MothershipClient::new(&http(&url, &ca, None), running.first_key.as_deref().unwrap()).unwrap();
    let stranger = ConduitsClient::new(&http(&url, &ca, None), &TerritoryIdentity::Certificate).unwrap();
    let token = owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
    let key = KeyPair::generate().unwrap();
    let bad = EnrollRequest {
        enroll_token: token.clone(),
        csr_pem: Some("no request".to_owned()),
        ..EnrollRequest::default()
    };
    assert_eq!(stranger.enroll(&bad).await.unwrap_err().code(), "invalid_csr");
    let request = EnrollRequest { enroll_token: token, csr_pem: Some(csr(&key)), ..EnrollRequest::default() };
    let enrolled = stranger.enroll(&request).await.unwrap();
    let certificate = enrolled.mtls_client_cert_pem.unwrap();
    assert_eq!(enrolled.ca_bundle_pem.as_deref(), Some(running.ca_bundle_pem.as_str()));
    assert_eq!(
        stranger.enroll(&request).await.unwrap().territory_id,
        enrolled.territory_id,
        "a lost answer is repeated"
    );
    let thief = EnrollRequest { csr_pem: Some(csr(&KeyPair::generate().unwrap())), ..request.clone() };
    assert_eq!(stranger.enroll(&thief).await.unwrap_err().code(), "invalid_enroll_token");

    let pem = key.serialize_pem();
    let daemon =
        ConduitsClient::new(&http(&url, &ca, Some((&certificate, &pem))), &TerritoryIdentity::Certificate).unwrap();
    daemon.poll(&PollRequest::default()).await.unwrap();
    let by_header =
        ConduitsClient::new(&http(&url, &ca, None), &TerritoryIdentity::Header(enrolled.territory_id)).unwrap();
    assert_eq!(by_header.poll(&PollRequest::default()).await.unwrap_err().status(), Some(401), "the header is ignored");

    let new_key = KeyPair::generate().unwrap();
    let renewed = daemon.renew_certificate(&CertificateRequest { csr_pem: csr(&new_key) }).await.unwrap();
    let new_pem = new_key.serialize_pem();
    let identity = Some((renewed.mtls_client_cert_pem.as_str(), new_pem.as_str()));
    let again = ConduitsClient::new(&http(&url, &ca, identity), &TerritoryIdentity::Certificate).unwrap();
    again.poll(&PollRequest::default()).await.unwrap();

    owner.revoke(enrolled.territory_id).await.unwrap();
    for revoked in [&daemon, &again] {
        assert_eq!(
            revoked.poll(&PollRequest::default()).await.unwrap_err().status(),
            Some(401),
            "on an open connection"
        );
    }
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_refused() {
    let directory = TempDir::new().unwrap();
    let (running, ca) = start(&directory).await;
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::default().self_signed(&key).unwrap().pem();
    let pem = key.serialize_pem();
    let http = http(&running.api_url, &ca, Some((&own, &pem)));
    let client = ConduitsClient::new(&http, &TerritoryIdentity::Certificate).unwrap();
    let refused = client.ca().await.unwrap_err();
    assert_eq!(refused.status(), None, "the handshake fails: {refused}");
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_development_header_is_refused_off_loopback() {
    let directory = TempDir::new().unwrap();
    let listen = async || Listener { tcp: TcpListener::bind("0.0.0.0:0").await.unwrap(), tls: None };
    let mut config = Config::new(directory.path());
    config.territory_auth = TerritoryAuth::Header;
    let refused = serve(config.clone(), vec![listen().await], std::future::pending()).await.err().unwrap();
    assert!(matches!(refused, ServeError::HeaderNotLocal { .. }), "{refused}");
    config.territory_auth = TerritoryAuth::Mtls;
    let refused = serve(config.clone(), vec![listen().await], std::future::pending()).await.err().unwrap();
    assert!(matches!(refused, ServeError::MtlsWithoutTls { .. }), "{refused}");
    config.territory_auth = TerritoryAuth::Header;
    config.insecure_dev_auth = true;
    let running = serve(config, vec![listen().await], std::future::pending()).await.unwrap();
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_the_same_process_brings_its_secret() {
    let directory = TempDir::new().unwrap();
    let secret = ProcessSecret::make().unwrap();
    let mut config = Config::new(directory.path());
    config.territory_auth = TerritoryAuth::Process(secret.clone());
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let running = serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await.unwrap();
    let http = Http::new(ClientConfig::new(&running.api_url)).unwrap();
    let owner = MothershipClient::new(&http, &running.first_key.clone().unwrap()).unwrap();
    let token = owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
    let anyone = ConduitsClient::new(&http, &TerritoryIdentity::Certificate).unwrap();
    let request = EnrollRequest { enroll_token: token, name: Some("own".to_owned()), ..EnrollRequest::default() };
    let identity = TerritoryIdentity::Header(anyone.enroll(&request).await.unwrap().territory_id);
    let wrong = http.with_header(TERRITORY_SECRET_HEADER, "nxp_wrong").unwrap();
    for other_user in [&http, &wrong] {
        let daemon = ConduitsClient::new(other_user, &identity).unwrap();
        let refused = daemon.poll(&PollRequest::default()).await.err().unwrap();
        assert!(refused.to_string().contains("identity of a territory"), "{refused}");
    }
    let own = http.with_header(TERRITORY_SECRET_HEADER, secret.text()).unwrap();
    let daemon = ConduitsClient::new(&own, &identity).unwrap();
    assert!(daemon.poll(&PollRequest::default()).await.unwrap().directives.is_empty());
    assert!(!format!("{secret:?}").contains(secret.text()));
    running.stop();
    running.stopped().await;
}
