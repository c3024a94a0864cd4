//! schemathesis, a public test generator, reads the documents of the contract and calls both APIs with what they allow and with what
//! they do not: no answer is a 5xx, and each has a documented status and form.
//!
//! It is installed into a directory of the test from the index of this machine's pip; where there is none, the test says so and tries
//! nothing. `NEXUS_SOAK_CASES` sets the number of examples for each call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::client::ConduitsClient;
use nexus_api::conduits::{PollRequest, StartedRequest};
use nexus_model::directive::FinishStatus;
use nexus_model::ids::{DirectiveId, FacilityId};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::bucket::skip;
use support::{Server, end, plain};

const PACKAGE: &str = "schemathesis==4.32.5";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method";

/// Installs the package; an error is the reason why nothing can be tried here.
fn install(place: &Path) -> Result<PathBuf, String> {
    let run = |program: &Path, arguments: &[&str]| -> Result<(), String> {
        let output =
            Command::new(program).args(arguments).current_dir(place).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    // Debian's Python has no pip of its own; an environment has.
    run(Path::new("/usr/bin/python3"), &["-m", "venv", "tools"])?;
    let flags = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"];
    run(&place.join("tools/bin/pip"), &[&flags[..], &[PACKAGE]].concat())?;
    Ok(place.join("tools/bin/schemathesis"))
}

/// A directive that runs, its facility, and what its daemon says of itself.
struct Subject {
    daemon: ConduitsClient,
    territory: String,
    facility: FacilityId,
    running: DirectiveId,
    token: String,
    ended: DirectiveId,
}

async fn subject(server: &Server) -> Subject {
    let users = server.owner();
    let id = server.enroll("one").await;
    let daemon = server.daemon(id);
    let beat = serde_json::json!({"protocol_version": 1, "capacity": {"max_concurrent": 5}});
    daemon.territory_heartbeat(&serde_json::from_value(beat).unwrap()).await.unwrap();
    let (facility, other) = (server.facility().await, server.facility().await);
    let mut claims = Vec::new();
    for place in [facility, other] {
        let made = users.create_directive(place, &plain("x"), None).await.unwrap().directive_id;
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        assert_eq!(claim.directive_id, made);
        daemon.started(made, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        claims.push((made, claim.directive_token));
    }
    let (ended, ended_token) = claims.pop().unwrap();
    daemon.finished(ended, &ended_token, &end(FinishStatus::Succeeded)).await.unwrap();
    let (running, token) = claims.pop().unwrap();
    Subject { daemon, territory: id.to_string(), facility, running, token, ended }
}

/// Calls one API. The parameters lead to what is there, so that calls reach more than a 404.
async fn call(program: &Path, place: &Path, server: &Server, api: (&str, &[String]), parameters: String) -> Output {
    let (document, headers) = api;
    std::fs::write(place.join("schemathesis.toml"), parameters).unwrap();
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol");
    let cases = std::env::var("NEXUS_SOAK_CASES").unwrap_or_else(|_| "5".to_owned());
    let mut command = Command::new(program);
    command.arg("--config-file").arg(place.join("schemathesis.toml")).arg("run").arg(documents.join(document));
    command.args(["--url", &server.url, "--phases", "examples,coverage,fuzzing", "--checks", CHECKS, "-n", &cases]);
    command.args([
        "--seed",
        "1",
        "--no-color",
        "--warnings",
        "off",
        "--request-timeout",
        "20",
        "--continue-on-failure",
    ]);
    // Streams do not end, and a revoked territory has no rights left.
    command.args(["--exclude-operation-id", "directiveEvents", "--exclude-operation-id", "revokeTerritory"]);
    // Answers 503 while the store does not work, as its document says.
    for header in headers {
        command.args(["-H", header]);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place).current_dir(place);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn check(api: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{api}: {text}");
    let generated = text.lines().find_map(|line| line.trim().split_once(" generated"));
    let count = generated.and_then(|(count, _)| count.parse::<u32>().ok());
    println!("    {api}: {} cases", count.unwrap_or_default());
    assert!(count.is_some_and(|count| count > 100), "{api} tried nothing: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_fault_in_either_api() {
    let tools = tempfile::tempdir().unwrap();
    let program = match install(tools.path()) {
        Ok(program) => program,
        Err(why) => return skip::skipped(&format!("{PACKAGE} cannot be installed: {why}")),
    };
    let server = Server::start().await;
    let subject = subject(&server).await;
    let parameters = |directive: DirectiveId| {
        format!("[parameters]\ndirective_id = \"{directive}\"\nfacility_id = \"{}\"\n", subject.facility)
    };
    let key = [format!("Authorization: Bearer {}", server.key)];
    let users = ("mothership_api_openapi.yaml", &key[..]);
    for directive in [subject.ended, DirectiveId::new()] {
        let output = call(&program, tools.path(), &server, users, parameters(directive)).await;
        check("mothership", &output);
    }
    let identity =
        [format!("X-Nexus-Territory-Id: {}", subject.territory), format!("Authorization: Bearer {}", subject.token)];
    let output =
        call(&program, tools.path(), &server, ("conduits_api_openapi.yaml", &identity), parameters(subject.running))
            .await;
    check("conduits", &output);
    // The server is as well as before.
    subject.daemon.poll(&PollRequest::default()).await.unwrap();
    server.owner().territories().await.unwrap();
    server.stop().await;
}
