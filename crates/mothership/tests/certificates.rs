//! Territories that prove their identity by a client certificate.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use nexus_api::client::{
    ClientConfig, ClientError, ConduitsClient, Http, MothershipClient, TerritoryIdentity, TlsFiles, tls_config,
};
use nexus_api::conduits::{CertificateRequest, EnrollRequest, PollRequest, TERRITORY_SECRET_HEADER};
use nexus_api::mothership::CreateEnrollmentToken;
use nexus_model::ids::TerritoryId;
use nexus_mothership::{Config, Listener, ProcessSecret, Running, ServeError, TerritoryAuth, TlsIdentity, serve};
use rcgen::{CertificateParams, KeyPair};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

/// A server with two territories, each with a key and a certificate of its own.
struct World {
    running: Running,
    ca: String,
    owner: MothershipClient,
    territories: Vec<(TerritoryId, KeyPair, String)>,
    _directory: TempDir,
}

impl World {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let (running, ca) = start(&directory).await;
        let key = running.first_key.clone().unwrap();
        let owner = MothershipClient::new(&http(&running.api_url, &ca, None), &key).unwrap();
        let mut world = Self { running, ca, owner, territories: Vec::new(), _directory: directory };
        for _ in 0..2 {
            let key = KeyPair::generate().unwrap();
            let (id, certificate) = world.enroll(&key).await;
            world.territories.push((id, key, certificate));
        }
        world
    }

    async fn enroll(&self, key: &KeyPair) -> (TerritoryId, String) {
        let enroll_token = self.owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
        let anyone = http(&self.running.api_url, &self.ca, None);
        let anyone = ConduitsClient::new(&anyone, &TerritoryIdentity::Certificate).unwrap();
        let request = EnrollRequest { enroll_token, csr_pem: Some(csr(key)), ..EnrollRequest::default() };
        let enrolled = anyone.enroll(&request).await.unwrap();
        (enrolled.territory_id, enrolled.mtls_client_cert_pem.unwrap())
    }

    /// A daemon with connections of its own.
    fn daemon(&self, certificate: &str, key: &KeyPair) -> ConduitsClient {
        let key = key.serialize_pem();
        let http = http(&self.running.api_url, &self.ca, Some((certificate, &key)));
        ConduitsClient::new(&http, &TerritoryIdentity::Certificate).unwrap()
    }

    fn first(&self) -> ConduitsClient {
        let (_, key, certificate) = &self.territories[0];
        self.daemon(certificate, key)
    }

    async fn stop(self) {
        self.running.stop();
        self.running.stopped().await;
    }
}

async fn renewed(daemon: &ConduitsClient, key: &KeyPair) -> Result<String, ClientError> {
    let answer = daemon.renew_certificate(&CertificateRequest { csr_pem: csr(key) }).await;
    answer.map(|answer| answer.mtls_client_cert_pem)
}

/// The status of a poll that waits for nothing.
async fn status(daemon: &ConduitsClient) -> Option<u16> {
    daemon.poll(&PollRequest::default()).await.err().and_then(|error| error.status())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_certificate_ends_when_the_new_one_is_used() {
    let world = World::start().await;
    let old = world.first();
    let [lost, new, strange] = [(); 3].map(|()| KeyPair::generate().unwrap());
    // One answer was lost, and one request was repeated: nothing has ended, whatever was asked for.
    renewed(&old, &lost).await.unwrap();
    let lost_certificate = renewed(&old, &lost).await.unwrap();
    let first_of_new = renewed(&old, &new).await.unwrap();
    let second_of_new = renewed(&old, &new).await.unwrap();
    assert_eq!(status(&old).await, None);
    let by_new = world.daemon(&second_of_new, &new);
    assert_eq!(status(&by_new).await, None);
    assert_eq!(status(&old).await, Some(401), "on the connection that it has");
    assert_eq!(status(&world.daemon(&lost_certificate, &lost)).await, Some(401), "nobody has used it");
    assert_eq!(status(&world.daemon(&first_of_new, &new)).await, None, "a certificate of the same key");
    // A key that has ended gets no certificate again, and neither does the key of another territory.
    let (_, old_key, _) = &world.territories[0];
    let (_, other_key, other_certificate) = &world.territories[1];
    for key in [old_key, &lost, other_key] {
        assert_eq!(renewed(&by_new, key).await.unwrap_err().code(), "invalid_csr");
    }
    let other = world.daemon(other_certificate, other_key);
    assert_eq!(status(&other).await, None, "another territory lost nothing");
    // The own key again: there is nothing to end.
    let same = renewed(&by_new, &new).await.unwrap();
    assert_eq!((status(&world.daemon(&same, &new)).await, status(&by_new).await), (None, None));
    assert!(renewed(&by_new, &strange).await.is_ok());
    assert_eq!(status(&by_new).await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_reaches_a_poll_that_waits() {
    let world = World::start().await;
    let wait = PollRequest { wait_seconds: Some(20), ..PollRequest::default() };
    let waiting = |daemon: ConduitsClient| {
        let wait = wait.clone();
        tokio::spawn(async move { (daemon.poll(&wait).await, Instant::now()) })
    };
    // By another certificate of the same territory.
    let old = waiting(world.first());
    let key = KeyPair::generate().unwrap();
    let certificate = renewed(&world.first(), &key).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!old.is_finished(), "the poll does not wait");
    let new = world.daemon(&certificate, &key);
    let used = Instant::now();
    assert_eq!(status(&new).await, None);
    let (answer, at) = old.await.unwrap();
    assert_eq!(answer.unwrap_err().status(), Some(401));
    assert!(at - used < Duration::from_millis(700), "a timer of the poll: {:?}", at - used);
    // By a user. What is created then is not for a user who is out.
    let new = waiting(new);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let revoked = Instant::now();
    world.owner.revoke(world.territories[0].0).await.unwrap();
    let (answer, at) = new.await.unwrap();
    assert_eq!(answer.unwrap_err().status(), Some(401));
    assert!(at - revoked < Duration::from_millis(700), "a timer of the poll: {:?}", at - revoked);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_of_tls_is_resumed() {
    let world = World::start().await;
    let (_, key, certificate) = &world.territories[0];
    let key = key.serialize_pem();
    let files = TlsFiles { ca_pem: &world.ca, identity: Some((certificate, &key)) };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        // The client takes what the server offers, in one store for both connections.
        let mut config = (*tls_config(&files, provider()).unwrap()).clone();
        if version.version == rustls::ProtocolVersion::TLSv1_2 {
            config = of_version(&world.ca, certificate, &key, version);
        }
        let config = Arc::new(config);
        for number in 0..2 {
            let connector = tokio_rustls::TlsConnector::from(Arc::clone(&config));
            let tcp = tokio::net::TcpStream::connect(world.running.addresses[0]).await.unwrap();
            let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
            let mut tls = connector.connect(name, tcp).await.unwrap();
            tls.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
            let mut answer = [0; 512];
            assert!(tls.read(&mut answer).await.unwrap() > 0);
            let (_, connection) = tls.get_ref();
            assert_eq!(connection.protocol_version(), Some(version.version));
            assert_eq!(connection.tls13_tickets_received(), 0);
            assert_eq!(connection.handshake_kind(), Some(rustls::HandshakeKind::Full), "{version:?} {number}");
        }
    }
    world.stop().await;
}

/// Settings of a client that speaks one version alone.
fn of_version(
    ca: &str,
    certificate: &str,
    key: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> rustls::ClientConfig {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap()
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
