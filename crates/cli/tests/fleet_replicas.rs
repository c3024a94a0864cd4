//! Two control planes on one PostgreSQL behind a relay of the test, three territories with the real program. A daemon and a control
//! plane are killed in the middle. Everything is checked against what this test itself asked for and was answered, never against
//! the database; at the end the control plane that was killed is started again, and has the same answers.
//!
//! ```text
//!  directives ─▶ relay ─┬▶ mothership serve ─┬▶ PostgreSQL          kept files: one directory
//!  three daemons ─▶ relay ┴▶ mothership serve ┘
//! ```
//! `NEXUS_SOAK_DIRECTIVES` sets the number of directives.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

#[path = "../../mothership/tests/support/cluster.rs"]
mod cluster;
mod directives;

use cluster::PASSWORD;
use directives::relay::Relay;
use directives::{Asked, DAEMONS, Scene, check_all, check_marks, check_one_at_a_time, count, create_all, watch};
use nexus_api::client::{ClientConfig, Http, MothershipClient};
use nexus_model::ids::DirectiveId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const FIRST: usize = 0;
const SECOND: usize = 1 + DAEMONS;

/// Starts a control plane. The address of the database, with its password, is in the environment or in a file.
fn serve(scene: &mut Scene, at: usize, url: &str) -> Value {
    let mut command = scene.command(&["mothership", "serve", "--listen", "127.0.0.1:0", "--json"]);
    if at == FIRST {
        command.env("NEXUS_DATABASE", url);
    } else {
        let file = scene.path("database");
        std::fs::write(&file, format!("{url}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        command.arg("--database-file").arg(file);
    }
    let data = scene.path("mothership");
    scene.start(at, command, &data)
}

fn address(ready: &Value) -> SocketAddr {
    ready["api_url"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
}

fn client(ready: &Value, key: &str) -> MothershipClient {
    let http = Http::new(ClientConfig::new(ready["api_url"].as_str().unwrap())).unwrap();
    MothershipClient::new(&http, key).unwrap()
}

#[test]
fn a_crowd_of_directives_ends_as_asked_when_a_daemon_and_a_control_plane_die() {
    let count = count();
    let database = cluster::shared().database();
    let url = cluster::shared().tcp_url(&database, PASSWORD);
    let mut scene = Scene::new();
    let first = serve(&mut scene, FIRST, &url);
    let relay = Relay::start();
    relay.add(address(&first));
    let key = first["api_key"].as_str().unwrap().to_owned();
    let territories: Vec<String> = (0..DAEMONS)
        .map(|number| {
            scene.join(number, &relay.url(), &key);
            scene.daemon(number)
        })
        .collect();
    let second = serve(&mut scene, SECOND, &url);
    assert!(second.get("api_key").is_none(), "the key is shown once: {second}");
    relay.add(address(&second));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let both = MothershipClient::new(&Http::new(ClientConfig::new(relay.url())).unwrap(), &key).unwrap();
    let survivor = client(&second, &key);
    let mut asked = runtime.block_on(create_all(&both, count));
    let at_half = |scene: &mut Scene| scene.kill(FIRST);
    let killed = runtime.block_on(watch(&survivor, &mut asked, &mut scene, count, at_half));
    assert!(scene.processes[FIRST].is_none(), "the control plane was not killed: the test tried nothing");
    assert!(!killed.is_empty(), "the killed daemon had no work: the test tried nothing");
    println!("    {} directives ended; the killed daemon had {} of them", asked.len(), killed.len());
    assert!(relay.counts().iter().all(|count| *count > 0), "one control plane had no connection: {:?}", relay.counts());
    runtime.block_on(check_all(&survivor, &asked, &killed));
    check_one_at_a_time(&asked, &killed);
    check_marks(&scene, &asked, &killed, &territories);
    let again = client(&serve(&mut scene, FIRST, &url), &key);
    runtime.block_on(same_answers(&again, &asked));
    runtime.block_on(check_all(&again, &asked, &killed));
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
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    for (words, expected) in [
        (&["--database", "postgres://nexus:secret@127.0.0.1:1/fleet"][..], "--database-file"),
        (&["--database-file", file.to_str().unwrap()], "mode 600"),
        (&["--database", "postgres://nexus@db.example/fleet"], "sslrootcert"),
    ] {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{words:?}: {said}");
    }
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (code, said) = run(&["--database-file", file.to_str().unwrap()]);
    assert_ne!(code, Some(0));
    assert!(said.contains("the database cannot be reached") && !said.contains("secret"), "{said}");
}
