//! schemathesis, a public test generator, reads the documents of the contract and calls both APIs with what they allow and with what
//! they do not: no answer is a 5xx, and each has a documented status and form.
//!
//! It is installed into a directory of the test from the index of this machine's pip; where there is none, the test says so and tries
//! nothing. `NEXUS_SOAK_CASES` sets the number of examples for each call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::base64;
use nexus_api::client::{ConduitsClient, ListQuery, MothershipClient};
use nexus_api::conduits::{ArtifactChunkRequest, ArtifactRequest, FinishedRequest, PollRequest, StartedRequest};
use nexus_api::mothership::{ApproveRequest, CreateApiKey, Role};
use nexus_api::routes::{CONDUITS, MOTHERSHIP, Route};
use nexus_model::directive::FinishStatus;
use nexus_model::ids::{DirectiveId, FacilityId};
use nexus_mothership::Config;
use nexus_policy::document::{LoadedPolicy, PolicySet};
use std::collections::BTreeSet;
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

/// Objects to which calls lead, so that they reach more than a 404.
struct Subject {
    daemon: ConduitsClient,
    territory: String,
    running: DirectiveId,
    token: String,
    ended: DirectiveId,
    /// Waits for the answer to its approval.
    waiting: DirectiveId,
    /// Kept files of the first two.
    artifacts: [String; 2],
    /// Parameters of paths beside the directive and its kept file, as settings of the package.
    others: String,
}

/// Every command needs an approval.
fn asks(config: &mut Config) {
    let text =
        r#"{"policy": "nexus.policy/1", "id": "asks", "level": "account", "approval": {"exec": "needs_approval"}}"#;
    config.policies = PolicySet::build(vec![LoadedPolicy::read("asks.yaml", text).unwrap()]).unwrap();
}

async fn subject(server: &Server) -> Subject {
    let (owner, spare) = (server.owner(), server.enroll("two").await);
    let key = |role| CreateApiKey { role, name: None };
    let agent = owner.create_api_key(&key(Role::Agent)).await.unwrap().api_key;
    let agent = MothershipClient::new(&server.http(), &agent).unwrap();
    let spare_key = owner.create_api_key(&key(Role::Viewer)).await.unwrap().api_key_id;
    let id = server.enroll("one").await;
    let daemon = server.daemon(id);
    let beat = serde_json::json!({"protocol_version": 1, "capacity": {"max_concurrent": 5}});
    daemon.territory_heartbeat(&serde_json::from_value(beat).unwrap()).await.unwrap();
    let file = ArtifactRequest {
        name: "a".to_owned(),
        size: 4,
        blake3: blake3::hash(b"file").to_hex().to_string(),
        media_type: None,
    };
    let (mut claims, mut facility) = (Vec::new(), FacilityId::new());
    for _ in 0..2 {
        facility = server.facility().await;
        let made = agent.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
        owner.approve(made, &ApproveRequest::default()).await.unwrap();
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        assert_eq!(claim.directive_id, made);
        daemon.started(made, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        let artifact = daemon.artifact(made, &claim.directive_token, &file).await.unwrap().artifact_id;
        claims.push((made, claim.directive_token, artifact));
    }
    let (ended, ended_token, artifact) = claims.pop().unwrap();
    let piece = ArtifactChunkRequest { offset: 0, bytes: base64::encode(b"file") };
    daemon.artifact_chunk(ended, &ended_token, &artifact, &piece).await.unwrap();
    let report = FinishedRequest {
        diff_base64: Some(base64::encode(b"+x\n")),
        receipt: Some(serde_json::json!({"r": 1})),
        ..end(FinishStatus::Succeeded)
    };
    daemon.finished(ended, &ended_token, &report).await.unwrap();
    let (running, token, unfinished) = claims.pop().unwrap();
    let waiting = agent.create_directive(facility, &plain("x"), None).await.unwrap().directive_id;
    let approvals = owner.approvals(false, &ListQuery::default()).await.unwrap().approvals;
    let approval = approvals.into_iter().find(|one| one.directive_id == waiting).unwrap().approval_id;
    let others = format!(
        "facility_id = \"{facility}\"\napproval_id = \"{approval}\"\nterritory_id = \"{spare}\"\n\
         api_key_id = \"{spare_key}\"\n"
    );
    let artifacts = [unfinished, artifact];
    Subject { daemon, territory: id.to_string(), running, token, ended, waiting, artifacts, others }
}

/// One run of the package over one document.
struct Run<'a> {
    document: &'static str,
    headers: &'a [String],
    /// Parameters of paths.
    parameters: String,
    routes: Vec<&'static Route>,
}

/// Place of the report that names the operations.
const REPORT: &str = "report.xml";

async fn call(program: &Path, place: &Path, server: &Server, run: &Run<'_>) -> Output {
    std::fs::write(place.join("schemathesis.toml"), format!("[parameters]\n{}", run.parameters)).unwrap();
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol");
    let cases = std::env::var("NEXUS_SOAK_CASES").unwrap_or_else(|_| "5".to_owned());
    let mut command = Command::new(program);
    command.arg("--config-file").arg(place.join("schemathesis.toml")).arg("run").arg(documents.join(run.document));
    command.args(["--url", &server.url, "--phases", "examples,coverage,fuzzing", "--checks", CHECKS, "-n", &cases]);
    command.args(["--seed", "1", "--no-color", "--warnings", "off", "--request-timeout", "20"]);
    command.args(["--continue-on-failure", "--report", "junit", "--report-junit-path", REPORT]);
    for route in &run.routes {
        command.args(["--include-operation-id", route.id]);
    }
    for header in run.headers {
        command.args(["-H", header]);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place).current_dir(place);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Holds the operations of the report against the routes.
fn check_complete(place: &Path, routes: &[&Route]) {
    let report = std::fs::read_to_string(place.join(REPORT)).unwrap();
    let named = report.split("testcase name=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let called: BTreeSet<String> = named.map(ToOwned::to_owned).collect();
    let wanted: BTreeSet<String> =
        routes.iter().map(|route| format!("{} {}", route.method.name(), route.path)).collect();
    assert_eq!(called, wanted, "every route is called, and nothing else");
}

fn check(api: &str, output: &Output, routes: usize) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{api}: {text}");
    let generated = text.lines().find_map(|line| line.trim().split_once(" generated"));
    let count = generated.and_then(|(count, _)| count.parse::<u32>().ok());
    println!("    {api}: {} cases", count.unwrap_or_default());
    assert!(count.is_some_and(|count| count as usize > 8 * routes), "{api} tried nothing: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_fault_in_either_api() {
    let tools = tempfile::tempdir().unwrap();
    let program = match install(tools.path()) {
        Ok(program) => program,
        Err(why) => return skip::skipped(&format!("{PACKAGE} cannot be installed: {why}")),
    };
    let server = Server::start_with(asks).await;
    let subject = subject(&server).await;
    let parameters = |directive: DirectiveId| {
        let [unfinished, whole] = &subject.artifacts;
        let artifact = if directive == subject.running { unfinished } else { whole };
        format!("directive_id = \"{directive}\"\nartifact_id = \"{artifact}\"\n{}", subject.others)
    };
    let key = [format!("Authorization: Bearer {}", server.key)];
    // The package takes a stream for one text; those of directives that do not exist are called.
    let all = || MOTHERSHIP.iter();
    let of_ended = all().filter(|route| route.id != "directiveEvents").collect();
    let of_waiting = all().filter(|route| ["approveDirective", "rejectDirective", "getApproval"].contains(&route.id));
    for (directive, routes) in
        [(subject.ended, of_ended), (DirectiveId::new(), all().collect()), (subject.waiting, of_waiting.collect())]
    {
        let (document, parameters) = ("mothership_api_openapi.yaml", parameters(directive));
        let run = Run { document, headers: &key, parameters, routes };
        check("mothership", &call(&program, tools.path(), &server, &run).await, run.routes.len());
        check_complete(tools.path(), &run.routes);
    }
    let identity =
        [format!("X-Nexus-Territory-Id: {}", subject.territory), format!("Authorization: Bearer {}", subject.token)];
    let (document, parameters) = ("conduits_api_openapi.yaml", parameters(subject.running));
    let run = Run { document, headers: &identity, parameters, routes: CONDUITS.iter().collect() };
    check("conduits", &call(&program, tools.path(), &server, &run).await, run.routes.len());
    check_complete(tools.path(), &run.routes);
    // The server is as well as before.
    subject.daemon.poll(&PollRequest::default()).await.unwrap();
    server.owner().territories().await.unwrap();
    server.stop().await;
}
