//! A control plane in memory, and a territory around this program.

use nexus_api::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, ClaimedDirective, ConnectionAnswer, ConnectionRequest,
    DirectiveVerdict, EventsRequest, FinishedAnswer, FinishedRequest, HeartbeatAnswer, HeartbeatRequest,
    LogChunkRequest, PollAnswer, PollRequest, StartedAnswer, StartedRequest, Stream, TerritoryHeartbeatAnswer,
    TerritoryHeartbeatRequest, Verdict,
};
use nexus_driver::{Driver, Handle};
use nexus_driver_namespace::launcher::Launcher;
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_model::directive::{Fence, State};
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_policy::document::{Effective, LoadedPolicy};
use nexus_policy::settings::EgressSettings;
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::state::directory::StateDir;
use nexusd::upkeep::{Committed, Unfinished};
use nexusd::{Daemon, Parts, Settings, SourceError, Territory, Upkeep, WorkSource};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Seconds of a lease.
pub const TTL: u32 = 60;

/// One directive, as the control plane sees it.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub claims: u32,
    pub starts: u32,
    pub chunks: BTreeMap<(Stream, i64), Vec<u8>>,
    pub finished: Vec<FinishedRequest>,
    pub verdict: Option<Verdict>,
    pub settling: u32,
    pub beats: u32,
    /// Heartbeats of the territory that called the directive settling.
    pub settling_beats: u32,
    /// Bytes of the pieces of kept files that were taken.
    pub pieces: Vec<usize>,
    pub events: Vec<serde_json::Value>,
    /// Kept files by name: size, hash and the bytes so far.
    pub files: BTreeMap<String, (u64, String, Vec<u8>)>,
}

impl Seen {
    pub fn text(&self, stream: Stream) -> String {
        let bytes: Vec<u8> =
            self.chunks.iter().filter(|((of, _), _)| *of == stream).flat_map(|(_, bytes)| bytes.clone()).collect();
        String::from_utf8(bytes).unwrap()
    }

    pub fn end(&self) -> &FinishedRequest {
        self.finished.last().unwrap()
    }

    pub fn diff(&self) -> String {
        let diff = self.end().diff_base64.clone().unwrap_or_default();
        String::from_utf8(data_encoding::BASE64.decode(diff.as_bytes()).unwrap()).unwrap()
    }
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<ClaimedDirective>,
    seen: BTreeMap<DirectiveId, Seen>,
    /// Every answer is lost.
    is_away: bool,
    /// The answer to a report of an end is lost.
    loses_ends: bool,
    /// The answer to the announcement of a commit is lost, and every later call of it.
    loses_announcements: bool,
    /// No kept file arrives.
    loses_files: bool,
    /// Bytes of a piece of a kept file that the link carries in time; 0 for any number.
    most_bytes: usize,
    /// Runs whose commits the next daemon finishes.
    committed: Vec<(RunId, Option<String>)>,
    /// Runs whose commits cannot be finished now.
    stuck: Vec<RunId>,
    /// The store takes no output, as with a full disk.
    refuses_chunks: bool,
    ttl: u32,
    is_stopped: bool,
    open: usize,
    most_open: usize,
}

/// A control plane in memory.
#[derive(Default)]
pub struct Memory {
    inner: Mutex<Inner>,
    changed: Condvar,
}

fn no_answer<T>() -> Result<T, SourceError> {
    Err(SourceError::NoAnswer { why: "the answer was lost".to_owned() })
}

impl Memory {
    pub fn new() -> Arc<Self> {
        let memory = Self::default();
        memory.inner.lock().unwrap().ttl = TTL;
        Arc::new(memory)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Queues a directive with this command; `change` changes its other fields.
    pub fn create(&self, facility: FacilityId, command: &str, change: serde_json::Value) -> DirectiveId {
        let id = DirectiveId::new();
        let mut spec = serde_json::json!({
            "directive_id": id, "facility": {"id": facility}, "command": command, "timeout_seconds": 30,
        });
        let serde_json::Value::Object(change) = change else { panic!() };
        spec.as_object_mut().unwrap().extend(change);
        self.again(id, serde_json::from_value(spec).unwrap(), 1);
        id
    }

    fn again(&self, id: DirectiveId, spec: nexus_model::spec::DirectiveSpec, fence: u64) {
        let mut inner = self.inner();
        inner.seen.entry(id).or_default();
        let ttl = inner.ttl;
        inner.queue.push_back(ClaimedDirective {
            directive_id: id,
            directive_token: format!("token of {id}"),
            spec,
            fence: Some(Fence(fence)),
            attempt: Some(1),
            lease_ttl_seconds: Some(ttl),
            approval: None,
        });
        drop(inner);
        self.changed.notify_all();
    }

    pub fn set_away(&self, is_away: bool) {
        self.inner().is_away = is_away;
    }

    pub fn lose_ends(&self, loses: bool) {
        self.inner().loses_ends = loses;
    }

    pub fn lose_announcements(&self, loses: bool) {
        self.inner().loses_announcements = loses;
    }

    pub fn lose_files(&self, loses: bool) {
        self.inner().loses_files = loses;
    }

    pub fn carry_at_most(&self, bytes: usize) {
        self.inner().most_bytes = bytes;
    }

    pub fn refuse_chunks(&self, refuses: bool) {
        self.inner().refuses_chunks = refuses;
    }

    /// Lets the recovery finish these commits; `left_out` names what of them is not where it was to be.
    pub fn finish_commits(&self, runs: &[RunId], left_out: Option<&str>) {
        self.inner().committed = runs.iter().map(|run| (*run, left_out.map(str::to_owned))).collect();
        self.inner().stuck.clear();
    }

    /// Lets the recovery fail to finish these commits.
    pub fn keep_unfinished(&self, runs: &[RunId]) {
        self.inner().stuck = runs.to_vec();
    }

    pub fn set_ttl(&self, ttl: u32) {
        self.inner().ttl = ttl;
    }

    pub fn most_open(&self) -> usize {
        self.inner().most_open
    }

    pub fn tell(&self, id: DirectiveId, verdict: Verdict) {
        self.inner().seen.get_mut(&id).unwrap().verdict = Some(verdict);
    }

    pub fn seen(&self, id: DirectiveId) -> Seen {
        self.inner().seen[&id].clone()
    }

    /// Waits for something about a directive.
    pub fn until(&self, id: DirectiveId, what: &str, is_it: impl Fn(&Seen) -> bool) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(40);
        let mut inner = self.inner();
        while !is_it(&inner.seen[&id]) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}: {:?}", inner.seen[&id]);
            inner = self.changed.wait_timeout(inner, left.min(Duration::from_millis(100))).unwrap().0;
        }
        inner.seen[&id].clone()
    }

    pub fn ended(&self, id: DirectiveId) -> Seen {
        self.until(id, "no end", |seen| !seen.finished.is_empty())
    }
}

impl WorkSource for Memory {
    fn poll(&self, request: &PollRequest) -> Result<PollAnswer, SourceError> {
        let deadline = Instant::now() + Duration::from_secs(u64::from(request.wait_seconds.unwrap_or(0)));
        let mut inner = self.inner();
        while inner.queue.is_empty() && !inner.is_stopped && Instant::now() < deadline {
            inner = self.changed.wait_timeout(inner, Duration::from_millis(100)).unwrap().0;
        }
        if inner.is_away {
            return no_answer();
        }
        if inner.is_stopped {
            return Ok(PollAnswer { directives: Vec::new(), lease_ttl_seconds: inner.ttl, retry_after_seconds: 1 });
        }
        let count = inner.queue.len().min(request.max_directives_to_claim as usize);
        let directives: Vec<_> = inner.queue.drain(..count).collect();
        inner.open += directives.len();
        for claimed in &directives {
            inner.seen.entry(claimed.directive_id).or_default().claims += 1;
        }
        inner.most_open = inner.most_open.max(inner.open);
        Ok(PollAnswer { directives, lease_ttl_seconds: inner.ttl, retry_after_seconds: 1 })
    }

    fn beat(&self, request: &TerritoryHeartbeatRequest) -> Result<TerritoryHeartbeatAnswer, SourceError> {
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        for beat in request.directives.iter().flatten() {
            let is_settling = beat.progress.as_ref().is_some_and(nexus_api::conduits::Progress::is_settling);
            let seen = inner.seen.get_mut(&beat.directive_id).unwrap();
            seen.beats += 1;
            seen.settling_beats += u32::from(is_settling);
        }
        let verdict = |beat: &nexus_api::conduits::DirectiveBeat| DirectiveVerdict {
            directive_id: beat.directive_id,
            verdict: inner.seen[&beat.directive_id].verdict.unwrap_or(Verdict::Extend),
            directive_token: None,
        };
        Ok(TerritoryHeartbeatAnswer {
            ok: true,
            territory_id: TerritoryId::new(),
            next_heartbeat_interval_seconds: 1,
            upgrade_available: false,
            latest_version: "0".to_owned(),
            min_compatible_version: "0".to_owned(),
            directives: request.directives.as_ref().map(|beats| beats.iter().map(verdict).collect()),
        })
    }

    fn started(&self, id: DirectiveId, token: &str, _: &StartedRequest) -> Result<StartedAnswer, SourceError> {
        assert_eq!(token, format!("token of {id}"));
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        inner.seen.get_mut(&id).unwrap().starts += 1;
        self.changed.notify_all();
        Ok(StartedAnswer { ok: true, directive_id: id, state: State::Running, duplicate: false, fence: None })
    }

    fn heartbeat(&self, id: DirectiveId, _: &str, request: &HeartbeatRequest) -> Result<HeartbeatAnswer, SourceError> {
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        let is_settling = request.progress.as_ref().is_some_and(nexus_api::conduits::Progress::is_settling);
        inner.seen.get_mut(&id).unwrap().settling += u32::from(is_settling);
        if is_settling && inner.loses_announcements {
            // From here on nothing passes.
            inner.is_away = true;
            self.changed.notify_all();
            return no_answer();
        }
        Ok(HeartbeatAnswer { cancel_requested: false, lease_renewed: true, directive_token: String::new() })
    }

    fn log_chunk(&self, id: DirectiveId, _: &str, request: &LogChunkRequest) -> Result<(), SourceError> {
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        if inner.refuses_chunks {
            let why = "the store is full".to_owned();
            return Err(SourceError::Refused { status: 507, retry_after: None, why });
        }
        let bytes = data_encoding::BASE64.decode(request.bytes.as_bytes()).unwrap();
        let before = inner.seen.get_mut(&id).unwrap().chunks.insert((request.stream, request.seq), bytes);
        // What a later daemon says of a commit has one number.
        assert!(before.is_none() || request.seq >= 1 << 40, "a chunk was sent twice");
        self.changed.notify_all();
        Ok(())
    }

    fn finished(&self, id: DirectiveId, _: &str, request: &FinishedRequest) -> Result<FinishedAnswer, SourceError> {
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        let seen = inner.seen.get_mut(&id).unwrap();
        seen.finished.push(request.clone());
        let duplicate = seen.finished.len() > 1;
        inner.open = inner.open.saturating_sub(usize::from(!duplicate));
        let is_lost = inner.loses_ends;
        self.changed.notify_all();
        if is_lost {
            return no_answer();
        }
        Ok(FinishedAnswer { ok: true, directive_id: id, duplicate, final_state: request.status.state() })
    }

    fn events(&self, id: DirectiveId, _: &str, request: &EventsRequest) -> Result<(), SourceError> {
        let mut inner = self.inner();
        if inner.is_away {
            return no_answer();
        }
        inner.seen.get_mut(&id).unwrap().events.extend(request.events.clone());
        self.changed.notify_all();
        Ok(())
    }

    fn connection(&self, _: DirectiveId, _: &str, _: &ConnectionRequest) -> Result<ConnectionAnswer, SourceError> {
        Err(SourceError::Refused { status: 404, retry_after: None, why: "there is no such call".to_owned() })
    }

    fn artifact(&self, id: DirectiveId, _: &str, request: &ArtifactRequest) -> Result<ArtifactAnswer, SourceError> {
        let mut inner = self.inner();
        if inner.is_away || inner.loses_files {
            return no_answer();
        }
        let ArtifactRequest { name, size, blake3, .. } = request.clone();
        let file = inner.seen.get_mut(&id).unwrap().files.entry(name.clone()).or_insert((size, blake3, Vec::new()));
        let offset = file.2.len() as u64;
        self.changed.notify_all();
        Ok(ArtifactAnswer { ok: true, directive_id: id, artifact_id: name, offset, complete: offset == size })
    }

    fn artifact_chunk(
        &self,
        id: DirectiveId,
        _: &str,
        artifact: &str,
        request: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, SourceError> {
        let mut inner = self.inner();
        if inner.is_away || inner.loses_files {
            return no_answer();
        }
        let bytes = data_encoding::BASE64.decode(request.bytes.as_bytes()).unwrap();
        if inner.most_bytes > 0 && bytes.len() > inner.most_bytes {
            return no_answer();
        }
        let seen = inner.seen.get_mut(&id).unwrap();
        seen.pieces.push(bytes.len());
        let file = seen.files.get_mut(artifact).unwrap();
        assert_eq!(file.2.len() as u64, request.offset);
        file.2.extend(bytes);
        let (offset, complete) = (file.2.len() as u64, file.2.len() as u64 == file.0);
        self.changed.notify_all();
        Ok(ArtifactAnswer { ok: true, directive_id: id, artifact_id: artifact.to_owned(), offset, complete })
    }

    fn stop_polls(&self) {
        self.inner().is_stopped = true;
        self.changed.notify_all();
    }
}

/// Plays the composition root, which brings the recovery.
pub struct Keeper {
    /// Knows the runs whose commits it finishes, and those that it cannot finish.
    memory: Arc<Memory>,
}

impl Recovery for Keeper {
    fn finish_others(&self, _: &StateDir, _: &str, _: &Path, _: &Workspace) -> Result<(), String> {
        Ok(())
    }

    fn finds(&self, _: RunId, _: &Handle) -> bool {
        false
    }

    fn park(&self, _: &StateDir, run: &str) -> Result<(), String> {
        Err(format!("the run {run} left work that was not settled"))
    }
}

impl Upkeep for Keeper {
    fn recover(&self, _: &StateDir, committed: Committed<'_>) -> Result<Vec<Unfinished>, String> {
        let (runs, stuck) = {
            let inner = self.memory.inner();
            (inner.committed.clone(), inner.stuck.clone())
        };
        runs.iter().try_for_each(|(run, left_out)| committed(*run, left_out.as_deref()))?;
        Ok(stuck.into_iter().map(|run| Unfinished { run: Some(run), why: format!("no room for {run}") }).collect())
    }

    fn finish_again(&self, places: &StateDir, committed: Committed<'_>) -> Vec<Unfinished> {
        self.recover(places, committed).unwrap()
    }

    fn raise_limits(&self) {}

    fn tell(&self, line: &str) {
        println!("    {line}");
    }
}

/// Starts a daemon of this territory.
pub fn daemon(memory: &Arc<Memory>, launcher: &Arc<Launcher>, data: &Path, at_once: u32) -> Daemon {
    start(memory, launcher, data, at_once, Duration::from_millis(200), EgressSettings::default())
}

/// Starts a daemon with this time between two heartbeats.
pub fn daemon_with(memory: &Arc<Memory>, launcher: &Arc<Launcher>, data: &Path, heartbeat: Duration) -> Daemon {
    start(memory, launcher, data, 2, heartbeat, EgressSettings::default())
}

/// Starts a daemon on a territory with this policy document.
pub fn daemon_under(memory: &Arc<Memory>, launcher: &Arc<Launcher>, data: &Path, policy: &str) -> Daemon {
    let policies = Effective::of(&[LoadedPolicy::read("policy.yaml", policy).unwrap()]);
    let egress = EgressSettings { policies, ..EgressSettings::default() };
    start(memory, launcher, data, 2, Duration::from_millis(200), egress)
}

fn start(
    memory: &Arc<Memory>,
    launcher: &Arc<Launcher>,
    data: &Path,
    at_once: u32,
    heartbeat: Duration,
    egress: EgressSettings,
) -> Daemon {
    memory.inner().is_stopped = false;
    let output_within = Duration::from_secs(1);
    let finish_every = Duration::from_millis(300);
    let settings = Settings { max_concurrent: at_once, heartbeat, output_within, finish_every, ..Settings::here("0") };
    assert_eq!(launcher.name(), "namespace");
    Daemon::start(Parts {
        source: Arc::clone(memory) as Arc<dyn WorkSource>,
        driver: Arc::clone(launcher) as Arc<dyn nexusd::LeaseDriver>,
        upkeep: Arc::new(Keeper { memory: Arc::clone(memory) }),
        territory: Territory::open(data).unwrap(),
        settings,
        egress,
    })
    .unwrap()
}
