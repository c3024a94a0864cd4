//! The server identifies its proxy, refuses pages of other origins, and closes silent connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use nexus_api::client::{ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::EnrollRequest;
use nexus_api::mothership::CreateEnrollmentToken;
use nexus_mothership::{Config, Listener, ProxySecret, Running, ServeError, TerritoryAuth, serve};
use rcgen::{CertificateParams, KeyPair};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const ENROLL: &str = "/conduits/v1/territories/enroll";
const POLLS: &str = "/conduits/v1/polls";
const JSON: &str = "Content-Type: application/json\r\n";

async fn start(directory: &TempDir, auth: TerritoryAuth) -> Result<Running, ServeError> {
    let mut config = Config::new(directory.path());
    config.territory_auth = auth;
    config.enroll_per_hour = 2;
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await
}

fn behind_a_proxy(address: &str, secret: Option<&str>) -> TerritoryAuth {
    let secret = secret.map(|text| ProxySecret::read(text).unwrap());
    TerritoryAuth::Proxy { trusted: vec![address.parse().unwrap()], secret }
}

/// Sends one request in these very words and returns the status of its answer.
async fn post(running: &Running, path: &str, head: &str, body: &str) -> u16 {
    let address = running.addresses[0];
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n{head}\r\n{body}",
        body.len()
    );
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    })
    .await
    .unwrap()
}

async fn token(running: &Running) -> String {
    let http = Http::new(ClientConfig::new(&running.api_url)).unwrap();
    let owner = MothershipClient::new(&http, running.first_key.as_deref().unwrap()).unwrap();
    owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_on_this_machine_needs_a_secret() {
    let directory = TempDir::new().unwrap();
    for address in ["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"] {
        let refused = start(&directory, behind_a_proxy(address, None)).await.err().unwrap();
        assert_eq!(refused.code(), "proxy_secret", "{address}: {refused}");
    }
    for (address, secret) in [("192.0.2.1", None), ("127.0.0.1", Some(SECRET))] {
        let running = start(&directory, behind_a_proxy(address, secret)).await.unwrap();
        running.stop();
        running.stopped().await;
    }
    for text in ["", "short", &SECRET[1..], &"x".repeat(257), &format!("{SECRET} "), &format!("{SECRET}\n")] {
        assert!(ProxySecret::read(text).is_none(), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_names_a_territory_once_and_with_its_secret() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, behind_a_proxy("127.0.0.1", Some(SECRET))).await.unwrap();
    let http = Http::new(ClientConfig::new(&running.api_url)).unwrap();
    let anyone = ConduitsClient::new(&http, &TerritoryIdentity::Certificate).unwrap();
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = EnrollRequest { enroll_token: token(&running).await, csr_pem: Some(csr), ..EnrollRequest::default() };
    let certificate = anyone.enroll(&request).await.unwrap().mtls_client_cert_pem.unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).unwrap();
    let mut fingerprint = String::new();
    for byte in aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &pem.contents).as_ref() {
        write!(fingerprint, "{byte:02x}").unwrap();
    }
    let name = format!("X-Nexus-Client-Cert-Fingerprint: {fingerprint}\r\n");
    let other = format!("X-Nexus-Client-Cert-Fingerprint: {}\r\n", "00".repeat(32));
    let (secret, wrong) =
        (format!("X-Nexus-Proxy-Secret: {SECRET}\r\n"), format!("X-Nexus-Proxy-Secret: {SECRET}x\r\n"));
    for (head, status) in [
        ([name.as_str(), secret.as_str()].concat(), 200),
        (name.clone(), 401),
        ([name.as_str(), wrong.as_str()].concat(), 401),
        ([name.as_str(), secret.as_str(), wrong.as_str()].concat(), 401),
        ([name.as_str(), other.as_str(), secret.as_str()].concat(), 401),
        ([name.as_str(), name.as_str(), secret.as_str()].concat(), 401),
        ([other.as_str(), secret.as_str()].concat(), 401),
    ] {
        assert_eq!(post(&running, POLLS, &format!("{JSON}{head}"), "{}").await, status, "{head}");
    }
    let key = format!("Authorization: Bearer {}\r\n", running.first_key.clone().unwrap());
    let tokens = "/mothership/api/v1/enrollment_tokens";
    assert_eq!(post(&running, tokens, &format!("{JSON}{key}"), "{}").await, 201);
    assert_eq!(post(&running, tokens, &format!("{JSON}{key}Authorization: Bearer x\r\n"), "{}").await, 401);
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_that_the_proxy_appended_is_the_one_that_counts() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, behind_a_proxy("127.0.0.1", Some(SECRET))).await.unwrap();
    let enroll = async |from: &str, secret: &str| {
        post(&running, ENROLL, &format!("{JSON}{from}X-Nexus-Proxy-Secret: {secret}\r\n"), r#"{"enroll_token":"x"}"#)
            .await
    };
    let mut seen = Vec::new();
    for claimed in 1..=2 {
        let lines = format!("X-Forwarded-For: 198.51.100.{claimed}\r\nX-Forwarded-For: 192.0.2.7, 203.0.113.9\r\n");
        seen.push(enroll(&lines, SECRET).await);
    }
    seen.push(enroll("X-Forwarded-For: 203.0.113.9\r\n", SECRET).await);
    assert_eq!(seen, [422, 422, 429]);
    for other in ["198.51.100.1", "192.0.2.7"] {
        assert_eq!(enroll(&format!("X-Forwarded-For: {other}\r\n"), SECRET).await, 422, "{other} was only claimed");
    }
    // Who is not the proxy counts as its own address, whatever it says.
    let mut own = Vec::new();
    for claimed in 1..=3 {
        own.push(enroll(&format!("X-Forwarded-For: 198.51.100.10{claimed}\r\n"), "wrong").await);
    }
    assert_eq!(own, [422, 422, 429]);
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_token_enrols_where_others_have_guessed() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, TerritoryAuth::Header).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(post(&running, ENROLL, JSON, r#"{"enroll_token":"guess"}"#).await);
    }
    assert_eq!(seen, [422, 422, 429]);
    for _ in 0..3 {
        let body = serde_json::json!({ "enroll_token": token(&running).await }).to_string();
        assert_eq!(post(&running, ENROLL, JSON, &body).await, 201);
        assert_eq!(post(&running, ENROLL, JSON, &body).await, 429, "a spent token is a guess");
    }
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_gets_no_answer() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, TerritoryAuth::Header).await.unwrap();
    let own = format!("Origin: {}\r\n", running.api_url);
    let body = r#"{"enroll_token":"x"}"#;
    for origin in [
        "Origin: http://evil.test\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Origin: \r\n",
        &format!("{own}Origin: http://evil.test\r\n"),
    ] {
        assert_eq!(post(&running, ENROLL, &format!("{JSON}{origin}"), body).await, 403, "{origin}");
    }
    for kind in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        assert_eq!(post(&running, ENROLL, kind, body).await, 415, "{kind}");
    }
    // None of these was counted.
    assert_eq!(post(&running, ENROLL, &format!("{JSON}{own}"), body).await, 422);
    assert_eq!(post(&running, ENROLL, JSON, body).await, 422);
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_request_is_closed_after_ten_seconds() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, TerritoryAuth::Header).await.unwrap();
    let address = running.addresses[0];
    tokio::task::spawn_blocking(move || {
        let clock = Instant::now();
        let mut silent = TcpStream::connect(address).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").unwrap();
        let mut used = TcpStream::connect(address).unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let mut answer = [0; 4096];
        used.write_all(request.as_bytes()).unwrap();
        assert!(used.read(&mut answer).unwrap() > 0);
        for stream in [&mut silent, &mut slow] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(stream.read(&mut answer).unwrap(), 0);
        }
        assert!((9..15).contains(&clock.elapsed().as_secs()), "{:?}", clock.elapsed());
        used.write_all(request.as_bytes()).unwrap();
        assert!(used.read(&mut answer).unwrap() > 0, "a connection that was used is kept");
    })
    .await
    .unwrap();
    running.stop();
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_and_several_hosts_are_refused_in_the_form_of_the_contract() {
    let directory = TempDir::new().unwrap();
    let running = start(&directory, TerritoryAuth::Header).await.unwrap();
    let address = running.addresses[0];
    let get = |path: &str, hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect::<Vec<_>>().concat();
        let text = format!("GET {path} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            let body: serde_json::Value =
                serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
            (status, body["code"].as_str().unwrap_or_default().to_owned())
        })
    };
    let own = address.to_string();
    assert_eq!(get("/mothership/api/v1/directives/%ff", &[&own]).await.unwrap(), (404, "not_found".to_owned()));
    for hosts in [[own.as_str(), "evil.test"], ["evil.test", own.as_str()], [own.as_str(), own.as_str()]] {
        let answer = get("/mothership/api/v1/directives", &hosts).await.unwrap();
        assert_eq!(answer, (400, "bad_request".to_owned()), "{hosts:?}");
    }
    running.stop();
    running.stopped().await;
}
