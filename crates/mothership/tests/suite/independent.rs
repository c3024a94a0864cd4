//! A client that knows the contract alone walks its tables.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::{Server, other_account};
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn an_independent_client_gets_the_documented_answers() {
    let server = Server::start().await;
    let other = other_account(&server);
    let (url, key) = (server.url.clone(), server.key.clone());
    let run = tokio::task::spawn_blocking(move || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py");
        Command::new("python3").args([script, &url, &key, &other]).output().unwrap()
    });
    let output = run.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("all answers are the documented ones"), "{text}");
    server.stop().await;
}
