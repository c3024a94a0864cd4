//! Many directives on a control plane and three territories with the real program, of which one is killed in the middle. Everything
//! is checked against what this test itself asked for and was answered, never against the database.
//!
//! ```text
//!  directives (ends, exit codes, time limits, cancels, bounds of output, kept files, repeated calls) ─▶ mothership serve
//!      ─▶ three daemons, one killed with SIGKILL and started again ─▶ each answer: noted
//!  rules: a terminal state never changes · the log is the one that the receipt signs · one directive of a facility at a time ·
//!         work is committed exactly once, or reported as lost and committed at most once
//! ```
//! `NEXUS_SOAK_DIRECTIVES` sets their number.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_api::base64;
use nexus_api::client::{ClientConfig, Http, ListQuery, LogQuery, MothershipClient};
use nexus_api::conduits::Stream;
use nexus_api::mothership::{CancelRequest, CreateDirective, CreateFacility, Directive, FacilityKind};
use nexus_model::Digest;
use nexus_model::directive::State;
use nexus_model::ids::{DirectiveId, FacilityId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FACILITIES: usize = 12;
const DAEMONS: usize = 3;

/// Names the task of a directive, which decides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Prints lines and ends with 0.
    Prints,
    /// Ends with another code.
    Fails(u8),
    /// Is ended by its time limit.
    TimesOut,
    /// Is canceled while it runs.
    Canceled,
    /// Prints more than its bound.
    PrintsTooMuch,
    /// Keeps a file.
    Keeps,
    /// May run again when its territory is lost.
    Requeues,
}

impl Kind {
    fn of(number: usize) -> Self {
        match number % 10 {
            3 => Self::Fails(u8::try_from(number % 100).unwrap() + 1),
            4 => Self::TimesOut,
            5 => Self::Canceled,
            6 => Self::PrintsTooMuch,
            7 => Self::Keeps,
            8 => Self::Requeues,
            _ => Self::Prints,
        }
    }

    fn request(self, number: usize) -> CreateDirective {
        let lines = number % 50;
        let mark = format!("echo {number} >> marks");
        let print = format!("i=0; while [ $i -lt {lines} ]; do echo \"line $i of {number}\"; i=$((i+1)); done");
        let script = match self {
            Self::Prints | Self::Requeues => format!("{mark}; {print}"),
            Self::Fails(code) => format!("{mark}; {print}; exit {code}"),
            Self::TimesOut | Self::Canceled => format!("{print}; sleep 600"),
            Self::PrintsTooMuch => format!("{mark}; seq 1 20000"),
            Self::Keeps => format!("{mark}; mkdir -p out; echo kept {number} > out/{number}; {print}"),
        };
        let mut request = json!({ "command": script });
        match self {
            Self::TimesOut => request["timeout_seconds"] = json!(1),
            Self::PrintsTooMuch => request["limits"] = json!({"max_output_bytes": 3000}),
            Self::Keeps => request["artifacts"] = json!({"collect": [format!("out/{number}")]}),
            Self::Requeues => request["on_lease_loss"] = json!("requeue"),
            _ => {}
        }
        serde_json::from_value(request).unwrap()
    }

    /// The output, where all of it is stored.
    fn output(self, number: usize) -> Option<String> {
        let lines = (0..number % 50).map(|line| format!("line {line} of {number}\n"));
        (self != Self::PrintsTooMuch).then(|| lines.collect())
    }

    fn end(self) -> (State, Option<i64>) {
        match self {
            Self::Prints | Self::PrintsTooMuch | Self::Keeps | Self::Requeues => (State::Succeeded, Some(0)),
            Self::Fails(code) => (State::Failed, Some(i64::from(code))),
            Self::TimesOut => (State::TimedOut, Some(124)),
            Self::Canceled => (State::Canceled, None),
        }
    }

    /// Commits its mark when its own command ends it.
    fn marks(self) -> bool {
        !matches!(self, Self::TimesOut | Self::Canceled)
    }
}

/// Programs of the test in directories of their own.
struct Scene {
    base: tempfile::TempDir,
    processes: Vec<Option<Child>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nexus"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("NEXUS_CONFIG_DIR", self.path("config")).env("NEXUS_STATE_DIR", self.path("state")).args(words);
        command
    }

    /// Starts a service and returns its line of JSON.
    fn serve(&mut self, at: usize, words: &[&str], data: &Path) -> Value {
        let mut command = self.command(words);
        command.arg("--data-dir").arg(data).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.processes.resize_with(self.processes.len().max(at + 1), || None);
        self.processes[at] = Some(process);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{words:?} said {line:?}: {error}"))
    }

    fn territory(&self, number: usize) -> PathBuf {
        self.path(&format!("territory{number}"))
    }

    fn daemon(&mut self, number: usize) -> String {
        let data = self.territory(number);
        let words = ["daemon", "run", "--max-concurrent", "3", "--json"];
        self.serve(1 + number, &words, &data)["territory_id"].as_str().unwrap().to_owned()
    }

    fn join(&self, number: usize, url: &str, key: &str) {
        let mut token = self.command(&["territory", "token"]);
        let token = token.env("NEXUS_SERVER", url).env("NEXUS_API_KEY", key).output().unwrap();
        let mut join = self.command(&["territory", "join", url, "--data-dir"]);
        let mut join = join.arg(self.territory(number)).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        join.stdin.take().unwrap().write_all(&token.stdout).unwrap();
        assert!(join.wait().unwrap().success(), "{token:?}");
    }
}

/// A directive that was asked for, with the answers so far.
struct Asked {
    number: usize,
    kind: Kind,
    facility: FacilityId,
    /// The first terminal answer.
    over: Option<Directive>,
}

#[test]
fn a_crowd_of_directives_ends_as_asked_when_a_daemon_dies() {
    let count = std::env::var("NEXUS_SOAK_DIRECTIVES").map_or(60, |text| text.parse().unwrap());
    let mut scene = Scene { base: tempfile::tempdir_in("/var/tmp").unwrap(), processes: Vec::new() };
    let data = scene.path("mothership");
    let ready = scene.serve(0, &["mothership", "serve", "--listen", "127.0.0.1:0", "--json"], &data);
    let (url, key) = (ready["api_url"].as_str().unwrap().to_owned(), ready["api_key"].as_str().unwrap().to_owned());
    let territories: Vec<String> = (0..DAEMONS)
        .map(|number| {
            scene.join(number, &url, &key);
            scene.daemon(number)
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = MothershipClient::new(&Http::new(ClientConfig::new(&url)).unwrap(), &key).unwrap();
    let mut asked = runtime.block_on(create_all(&client, count));
    let killed = runtime.block_on(watch(&client, &mut asked, &mut scene, count));
    println!("    {} directives ended; the killed daemon had {} of them", asked.len(), killed.len());
    assert!(!killed.is_empty(), "the killed daemon had no work: the test tried nothing");
    runtime.block_on(check_all(&client, &asked, &killed));
    check_one_at_a_time(&asked, &killed);
    check_marks(&scene, &asked, &killed, &territories);
}

async fn create_all(client: &MothershipClient, count: usize) -> BTreeMap<DirectiveId, Asked> {
    let mut facilities = Vec::new();
    for _ in 0..FACILITIES {
        let kind = FacilityKind::Empty;
        let new = CreateFacility { kind, name: None, repo_url: None, territory_id: None, retention_policy: None };
        facilities.push(client.create_facility(&new).await.unwrap().facility_id);
    }
    let mut asked = BTreeMap::new();
    for number in 0..count {
        let (kind, facility) = (Kind::of(number), facilities[number % FACILITIES]);
        let (request, name) = (kind.request(number), format!("directive {number}"));
        let id = client.create_directive(facility, &request, Some(&name)).await.unwrap().directive_id;
        if number % 4 == 0 {
            let again = client.create_directive(facility, &request, Some(&name)).await.unwrap().directive_id;
            assert_eq!(again, id, "a repeated call creates nothing");
        }
        asked.insert(id, Asked { number, kind, facility, over: None });
    }
    asked
}

/// Follows all directives to their end, cancels those that are to be canceled, and kills a daemon in the middle. Returns the
/// directives that the killed daemon had.
async fn watch(
    client: &MothershipClient,
    asked: &mut BTreeMap<DirectiveId, Asked>,
    scene: &mut Scene,
    count: usize,
) -> Vec<DirectiveId> {
    let mut killed = None;
    let deadline = Instant::now() + Duration::from_secs(120 + count as u64);
    let mut canceled = Vec::new();
    loop {
        let all = list(client).await;
        for one in &all {
            let known = asked.get_mut(&one.directive_id).unwrap();
            if let Some(over) = &known.over {
                assert_eq!((over.state, &over.reason, over.exit_code), (one.state, &one.reason, one.exit_code));
                assert_eq!(over.attempt, one.attempt, "a terminal state changed");
            } else if one.state.is_terminal() {
                known.over = Some(one.clone());
            } else if one.state == State::Running
                && known.kind == Kind::Canceled
                && !canceled.contains(&one.directive_id)
            {
                client.cancel(one.directive_id, &CancelRequest::default()).await.unwrap();
                canceled.push(one.directive_id);
            }
        }
        let over = asked.values().filter(|known| known.over.is_some()).count();
        if over == count {
            return killed.unwrap_or_default();
        }
        if killed.is_none() && over >= count / 3 {
            killed = Some(kill_one(client, scene).await);
        }
        assert!(Instant::now() < deadline, "{over} of {count} ended: {:?}", pending(&all));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn pending(all: &[Directive]) -> Vec<(DirectiveId, State, Option<&String>)> {
    let open = all.iter().filter(|one| !one.state.is_terminal());
    open.map(|one| (one.directive_id, one.state, one.queued_because.as_ref())).collect()
}

/// Kills the first daemon that has work, and starts it again a second later.
async fn kill_one(client: &MothershipClient, scene: &mut Scene) -> Vec<DirectiveId> {
    let id_of = |data: PathBuf| {
        let text = std::fs::read_to_string(data.join("identity.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["territory_id"].as_str().unwrap().to_owned()
    };
    loop {
        let all = list(client).await;
        for number in 0..DAEMONS {
            let territory = id_of(scene.territory(number));
            let is_here = |one: &&Directive| {
                matches!(one.state, State::Running | State::Leased)
                    && one.territory_id.is_some_and(|id| id.to_string() == territory)
            };
            if !all.iter().any(|one| is_here(&one)) {
                continue;
            }
            let mut process = scene.processes[1 + number].take().unwrap();
            process.kill().unwrap();
            process.wait().unwrap();
            // What was open at the moment of the kill: it reports nothing more.
            let had = list(client).await.iter().filter(is_here).map(|one| one.directive_id).collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            scene.daemon(number);
            return had;
        }
    }
}

async fn list(client: &MothershipClient) -> Vec<Directive> {
    let (mut all, mut query) = (Vec::new(), ListQuery { cursor: None, limit: Some(200) });
    loop {
        let page = client.directives(None, &query).await.unwrap();
        all.extend(page.directives);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return all,
        }
    }
}

/// Checks each end, each log and each receipt.
async fn check_all(client: &MothershipClient, asked: &BTreeMap<DirectiveId, Asked>, killed: &[DirectiveId]) {
    for (id, Asked { number, kind, over, .. }) in asked {
        let over = over.as_ref().unwrap();
        let (state, exit) = kind.end();
        let what = format!("{number} {kind:?}: {over:?}");
        if over.reason.as_deref() == Some("lease_lost") {
            assert!(over.state == State::Failed && killed.contains(id), "no other daemon lost work: {what}");
            assert_ne!(*kind, Kind::Requeues, "it runs again: {what}");
            continue;
        }
        assert_eq!(over.state, state, "{what}");
        if exit.is_some() {
            assert_eq!(over.exit_code, exit, "{what}");
        }
        assert!(over.attempt == 1 || killed.contains(id), "{what}");
        let log = log(client, *id).await;
        // What a killed daemon had in memory is missing, and said to be.
        assert!(!over.stdout_truncated || *kind == Kind::PrintsTooMuch || killed.contains(id), "{what}");
        if let Some(expected) = kind.output(*number)
            && !over.stdout_truncated
        {
            assert_eq!(String::from_utf8_lossy(&log), expected, "{what}");
        }
        let receipt = client.receipt(*id).await.unwrap_or_else(|error| panic!("{error}: {what}"));
        check_receipt(&receipt, over, &log, &what);
        if *kind == Kind::Keeps && !killed.contains(id) {
            check_kept(client, *id, *number, &what).await;
        }
    }
}

async fn log(client: &MothershipClient, id: DirectiveId) -> Vec<u8> {
    let (mut bytes, mut after_seq) = (Vec::new(), -1);
    loop {
        let query = LogQuery { stream: Stream::Stdout, after_seq, limit: None, attempt: None };
        let page = client.log_chunks(id, &query).await.unwrap();
        if page.chunks.is_empty() {
            return bytes;
        }
        after_seq = page.next_after_seq;
        page.chunks.iter().for_each(|chunk| bytes.extend(base64::decode(&chunk.bytes_base64).unwrap()));
    }
}

/// The receipt states the same exit code, and signs the output that the control plane stored.
fn check_receipt(receipt: &Value, over: &Directive, log: &[u8], what: &str) {
    let payload = base64::decode(receipt["payload"].as_str().unwrap()).unwrap();
    let stated: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(stated["exit"]["code"].as_i64(), over.exit_code, "{what}");
    if !over.stdout_truncated {
        assert_eq!(stated["output"]["stdout"]["bytes"].as_u64(), Some(log.len() as u64), "{what}");
        assert_eq!(stated["output"]["stdout"]["hash"].as_str(), Some(&*Digest::of(log).to_string()), "{what}");
    }
}

async fn check_kept(client: &MothershipClient, id: DirectiveId, number: usize, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let list = client.artifacts(id).await.unwrap().artifacts;
        if let Some(one) = list.iter().find(|one| one.complete) {
            assert_eq!((one.name.clone(), list.len()), (format!("out/{number}"), 1), "{what}");
            let bytes = client.artifact(id, &one.artifact_id, 0).await.unwrap();
            assert_eq!(bytes, format!("kept {number}\n").into_bytes(), "{what}");
            return;
        }
        assert!(Instant::now() < deadline, "its file does not come: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// By the clock of the control plane no two directives of a facility run at one time.
fn check_one_at_a_time(asked: &BTreeMap<DirectiveId, Asked>, killed: &[DirectiveId]) {
    let mut by_facility: BTreeMap<FacilityId, Vec<(i64, i64, usize)>> = BTreeMap::new();
    for (id, one) in asked.iter().filter(|(id, _)| !killed.contains(id)) {
        let over = one.over.as_ref().unwrap();
        assert_eq!(over.directive_id, *id);
        if let (Some(started), Some(ended)) = (over.started_at, over.ended_at) {
            by_facility.entry(one.facility).or_default().push((started.0, ended.0, one.number));
        }
    }
    for times in by_facility.values_mut() {
        times.sort_unstable();
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two directives of a facility at one time: {pair:?}");
        }
    }
}

/// The workspaces hold the mark of each directive that ended on its own once, and of no other one.
fn check_marks(scene: &Scene, asked: &BTreeMap<DirectiveId, Asked>, killed: &[DirectiveId], territories: &[String]) {
    let mut marks: BTreeMap<usize, usize> = BTreeMap::new();
    for number in 0..territories.len() {
        let facilities = scene.territory(number).join("facilities");
        for facility in std::fs::read_dir(&facilities).unwrap() {
            let text = std::fs::read_to_string(facility.unwrap().path().join("tree/marks")).unwrap_or_default();
            text.lines().for_each(|line| *marks.entry(line.parse().unwrap()).or_default() += 1);
        }
    }
    for (id, one) in asked {
        let found = marks.get(&one.number).copied().unwrap_or_default();
        let over = one.over.as_ref().unwrap();
        let is_lost = over.reason.as_deref() == Some("lease_lost");
        match (one.kind.marks(), is_lost) {
            (true, false) => assert_eq!(found, 1, "{} is committed once: {over:?}", one.number),
            (true, true) => assert!(found <= 1 && killed.contains(id), "{} is committed twice: {over:?}", one.number),
            (false, _) => assert_eq!(found, 0, "{}: {over:?}", one.number),
        }
    }
}
