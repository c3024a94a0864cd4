//! Two control planes on one PostgreSQL behind a balancer of the test, three territories with the real program, each with a client
//! certificate that the control plane's own authority signed. One territory is behind a bad network, and as root behind a narrow wire too.
//! A daemon and a control plane are
//! killed in the middle. Everything is checked against what this test itself asked for and was answered, never against
//! the database; at the end the control plane that was killed is started again, and has the same answers.
//!
//! ```text
//!  directives, two daemons ─TLS─▶ balancer ─┬▶ mothership serve ─┬▶ PostgreSQL          kept files: one directory
//!  daemon ─TLS─▶ wire ─▶ bad network ─▶ balancer ┴▶ mothership serve ┘
//! ```
//! `NEXUS_SOAK_DIRECTIVES` sets the number of directives, `NEXUS_SEED` what the bad network does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

#[path = "../../mothership/tests/support/cluster.rs"]
mod cluster;
mod directives;
mod fleet_support;

use cluster::PASSWORD;
use directives::relay::{BadNetwork, Relay};
use directives::wire::NarrowWire;
use directives::{Asked, DAEMONS, Scene, check_all, check_marks, check_one_at_a_time, count, create_all, watch};
use fleet_support::{TestAuthority, address_of};
use nexus_api::client::{ClientConfig, Http, MothershipClient, TlsFiles, tls_config};
use nexus_model::ids::DirectiveId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const FIRST: usize = 0;
const SECOND: usize = 1 + DAEMONS;
/// The territory behind a bad network.
const FAR: usize = DAEMONS - 1;

/// Writes the certificate of the servers, and lets the clients trust its authority.
fn certify(scene: &mut Scene) -> String {
    let authority = TestAuthority::new();
    let (certificate, key) = authority.server();
    for (name, text, mode) in
        [("cert.pem", &certificate, 0o644), ("key.pem", &key, 0o600), ("ca.pem", &authority.pem, 0o644)]
    {
        std::fs::write(scene.path(name), text).unwrap();
        std::fs::set_permissions(scene.path(name), Permissions::from_mode(mode)).unwrap();
    }
    scene.trust = vec!["--ca".to_owned(), scene.path("ca.pem").to_str().unwrap().to_owned()];
    authority.pem
}

/// Starts a control plane. The address of the database, with its password, is in the environment or in a file.
fn serve(scene: &mut Scene, at: usize, database: &str) -> Value {
    let mut command = scene.command(&["mothership", "serve", "--listen", "127.0.0.1:0", "--json"]);
    command.arg("--tls-cert").arg(scene.path("cert.pem")).arg("--tls-key").arg(scene.path("key.pem"));
    if at == FIRST {
        command.env("NEXUS_DATABASE", database);
    } else {
        let file = scene.path("database");
        std::fs::write(&file, format!("{database}\n")).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        command.arg("--database-file").arg(file);
    }
    let data = scene.path("mothership");
    scene.start(at, command, &data)
}

fn client(url: &str, ca_pem: &str, key: &str) -> MothershipClient {
    let mut config = ClientConfig::new(url);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    config.tls = Some(tls_config(&TlsFiles { ca_pem, identity: None }, provider).unwrap());
    MothershipClient::new(&Http::new(config).unwrap(), key).unwrap()
}

fn url(ready: &Value) -> &str {
    ready["api_url"].as_str().unwrap()
}

/// Each territory proves itself by a certificate of its own.
fn check_identities(scene: &Scene) {
    for number in 0..DAEMONS {
        let identity = std::fs::read_to_string(scene.territory(number).join("identity.json")).unwrap();
        let identity: Value = serde_json::from_str(&identity).unwrap();
        assert_eq!(identity["certificate"], "certificate.json", "{identity}");
    }
}

#[test]
fn a_crowd_of_directives_ends_as_asked_when_a_daemon_and_a_control_plane_die() {
    let count = count();
    let database = cluster::shared().tcp_url(&cluster::shared().database(), PASSWORD);
    let mut scene = Scene::new();
    let wire = NarrowWire::make();
    let far_end = wire.as_ref().map_or(IpAddr::from([127, 0, 0, 1]), |wire| wire.here);
    let ca = certify(&mut scene);
    let first = serve(&mut scene, FIRST, &database);
    let relay = Relay::start();
    relay.add(address_of(url(&first)));
    let seed = std::env::var("NEXUS_SEED").map_or(13, |text| text.parse().unwrap());
    let far = BadNetwork::start(far_end, relay.address(), seed);
    if let Some(wire) = &wire {
        wire.lead_to(far.address());
    }
    let key = first["api_key"].as_str().unwrap().to_owned();
    let territories: Vec<String> = (0..DAEMONS)
        .map(|number| {
            let is_far = number == FAR;
            let way = if is_far { far.address() } else { relay.address() };
            // Behind the wire the address is one of the namespace's own loopback, as the certificate says.
            let url = format!("https://127.0.0.1:{}", way.port());
            let behind = |command: Command| match wire.as_ref().filter(|_| is_far) {
                Some(wire) => wire.behind(&command),
                None => command,
            };
            scene.join_by(number, &url, &key, behind);
            scene.daemon_by(number, behind)
        })
        .collect();
    check_identities(&scene);
    let second = serve(&mut scene, SECOND, &database);
    assert!(second.get("api_key").is_none(), "the key is shown once: {second}");
    relay.add(address_of(url(&second)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let both = client(&format!("https://{}", relay.address()), &ca, &key);
    let survivor = client(url(&second), &ca, &key);
    let mut asked = runtime.block_on(create_all(&both, count, &territories, None));
    let began = Instant::now();
    let at_half = |scene: &mut Scene| scene.kill(FIRST);
    let killed = runtime.block_on(watch(&survivor, &mut asked, &mut scene, count, at_half));
    assert!(scene.processes[FIRST].is_none(), "the control plane was not killed: the test tried nothing");
    assert!(!killed.is_empty(), "the killed daemon had no work: the test tried nothing");
    println!(
        "    {} directives ended in {:?}; the killed daemon had {} of them",
        asked.len(),
        began.elapsed(),
        killed.len()
    );
    assert!(relay.counts().iter().all(|count| *count > 0), "one control plane had no connection: {:?}", relay.counts());
    println!(
        "    connections of the control planes: {:?}; the bad network (seed {seed}): {:?}",
        relay.counts(),
        far.counts
    );
    let far_id = territories[FAR].as_str();
    let of_far = asked.values().filter(|one| ended_at(one).as_deref() == Some(far_id)).count();
    println!("    {of_far} directives ended behind the bad network");
    assert!(of_far > 0, "nothing ended behind the bad network: the test tried nothing");
    // Connections are kept, so that a short play may have none that is cut; each way to lose one is enough then.
    let [refused, cut, late] =
        [&far.counts.refused, &far.counts.cut, &far.counts.late].map(|count| count.load(Ordering::SeqCst));
    assert!(refused + cut > 0 && late > 0, "the bad network was a good one: {:?}", far.counts);
    if let Some(wire) = &wire {
        let waited = wire.waited();
        println!("    {waited} pieces waited for the narrow wire");
        assert!(waited > 0, "the wire was never full: the test tried nothing");
    }
    runtime.block_on(check_all(&survivor, &asked, &killed));
    check_one_at_a_time(&asked, &killed);
    check_marks(&scene, &asked, &killed, &territories);
    let again = client(url(&serve(&mut scene, FIRST, &database)), &ca, &key);
    runtime.block_on(same_answers(&again, &asked));
    runtime.block_on(check_all(&again, &asked, &killed));
}

fn ended_at(one: &Asked) -> Option<String> {
    one.over.as_ref()?.territory_id.map(|id| id.to_string())
}

async fn same_answers(client: &MothershipClient, asked: &BTreeMap<DirectiveId, Asked>) {
    for (id, one) in asked {
        let (seen, known) = (client.directive(*id).await.unwrap(), one.over.as_ref().unwrap());
        assert_eq!((seen.state, &seen.reason, seen.exit_code), (known.state, &known.reason, known.exit_code));
        assert_eq!(
            (seen.attempt, seen.ended_at, seen.territory_id),
            (known.attempt, known.ended_at, known.territory_id)
        );
    }
}

#[test]
fn a_password_of_the_database_on_the_command_line_is_refused() {
    let scene = Scene::new();
    let run = |words: &[&str]| {
        let mut command = scene.command(&["mothership", "serve", "--listen", "127.0.0.1:0"]);
        let output = command.arg("--data-dir").arg(scene.path("mothership")).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let file = scene.path("database");
    std::fs::write(&file, "postgres://nexus:secret@127.0.0.1:1/fleet").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    for (words, expected) in [
        (&["--database", "postgres://nexus:secret@127.0.0.1:1/fleet"][..], "--database-file"),
        (&["--database-file", file.to_str().unwrap()], "mode 600"),
        (&["--database", "postgres://nexus@db.example/fleet"], "sslrootcert"),
    ] {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{words:?}: {said}");
    }
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let (code, said) = run(&["--database-file", file.to_str().unwrap()]);
    assert_ne!(code, Some(0));
    assert!(said.contains("the database cannot be reached") && !said.contains("secret"), "{said}");
}
