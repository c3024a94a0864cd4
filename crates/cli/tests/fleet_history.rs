//! A control plane and three daemons as processes, which are killed, stopped, cut off and robbed of answers under load; what clients,
//! relays and a look at the machine's processes saw is recorded, and the invariants of a fleet are checked from that record.
//!
//! ```text
//!  users ─▶ mothership ◀─ relay 0 ◀─ daemon 0: stopped for longer than its lease
//!     │         ▲    ◀─ relay 1 ◀─ daemon 1 ┐
//!     │         │    ◀─ relay 2 ◀─ daemon 2 ┴ killed, stopped, cut off, answers lost: by the seed
//!     └─ record ┴─ /proc ─▶ check (pure) ─▶ rules that are broken
//! ```
//! `NEXUS_SOAK_SECONDS` sets the time of the faults, `NEXUS_SEED` repeats a run as far as the kernel lets it, and with `NEXUS_HISTORY`
//! the record is kept also when no rule is broken.

#![cfg(feature = "inject")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "fleet_history/check.rs"]
mod check;
mod fleet_support;
#[path = "fleet_history/record.rs"]
mod record;
#[path = "fleet_history/relay.rs"]
mod relay;
#[path = "fleet_history/witness.rs"]
mod witness;

use check::{Bounds, check};
use fleet_support::Scene;
use nexus_api::base64;
use nexus_api::client::{ClientConfig, EventStream, Http, ListQuery, LogQuery, MothershipClient};
use nexus_api::conduits::Stream;
use nexus_api::mothership::{CancelRequest, CreateDirective, CreateFacility, Directive, DirectiveEvent, FacilityKind};
use nexus_model::ids::{DirectiveId, FacilityId};
use record::{Entry, Fault, Record, Seen};
use relay::Switches;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DAEMONS: usize = 3;
const CAPACITY: usize = 3;
/// Workspaces. Each stays on the territory of its first directive, and has one directive at a time.
const FACILITIES: usize = 20;
/// Life of a lease. A daemon counts five seconds less, and commits with ten seconds left.
const LEASE: Duration = Duration::from_secs(18);
/// Time after a fault in which everything has to end: the rest of a lease, the life of one in which nothing is taken back after
/// a restart, and a second attempt.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }
}

/// The kind of a directive, by its number. The first ones are long and may run again: the stopped daemon gets some of them.
fn kind(number: usize) -> usize {
    if number < CAPACITY * DAEMONS { 7 } else { number % 8 }
}

/// The command of a directive, by its number.
fn script(test: u32, number: usize) -> String {
    let lines = |count: usize, pause: &str| {
        format!("i=0; while [ $i -lt {count} ]; do echo \"line $i of {number}\"; i=$((i+1)); sleep {pause}; done")
    };
    let body = match kind(number) {
        2 => format!("{}; exit {}", lines(5, "0.05"), number % 100 + 1),
        3 | 4 => format!("{}; sleep 600", lines(3, "0.05")),
        5 => lines(6, "0.3"),
        6 => lines(15, "0.1"),
        7 => lines(8, "0.5"),
        _ => lines(10, "0.02"),
    };
    format!(": {}; echo {number} >> marks; {body}", witness::word(test, number))
}

/// Returns the whole output of a directive whose command ends on its own.
fn expected(number: usize) -> Option<String> {
    let count = match kind(number) {
        2 => 5,
        3 | 4 => return None,
        5 => 6,
        6 => 15,
        7 => 8,
        _ => 10,
    };
    Some((0..count).map(|line| format!("line {line} of {number}\n")).collect())
}

fn requeues(number: usize) -> bool {
    matches!(kind(number), 5 | 7)
}

fn request(test: u32, number: usize) -> CreateDirective {
    let mut request = json!({ "command": script(test, number) });
    if kind(number) == 4 {
        request["timeout_seconds"] = json!(1);
    }
    if requeues(number) {
        request["on_lease_loss"] = json!("requeue");
    }
    serde_json::from_value(request).unwrap()
}

/// State that the threads of a test share.
struct Shared {
    test: u32,
    record: Arc<Record>,
    client: MothershipClient,
    facilities: Vec<FacilityId>,
    /// Directives that were created, by number.
    created: Mutex<Vec<DirectiveId>>,
    /// No more directives are created.
    enough: AtomicBool,
    over: AtomicUsize,
    /// The test is over.
    stop: Arc<AtomicBool>,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Creates directives one after the other. A call without an answer is repeated by its name until it has one.
async fn create(shared: &Shared) {
    let mut number = 0;
    while !shared.enough.load(Ordering::SeqCst) {
        let (request, name) = (request(shared.test, number), format!("directive {number}"));
        let facility = number % FACILITIES;
        match shared.client.create_directive(shared.facilities[facility], &request, Some(&name)).await {
            Ok(made) => {
                let id = made.directive_id.to_string();
                shared.record.add(Seen::Created { id, number, facility, requeues: requeues(number) });
                shared.created.lock().unwrap().push(made.directive_id);
                number += 1;
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            Err(error) => {
                assert!(error.status().is_none_or(|status| status >= 500 || status == 429), "{error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads all directives again and again, and cancels those that are to be canceled once they run.
async fn read(shared: &Shared) {
    let mut canceled = BTreeSet::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(all) = list(&shared.client).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        for one in &all {
            shared.record.add(seen(one));
            let number = shared.created.lock().unwrap().iter().position(|id| *id == one.directive_id);
            let is_due = one.state.name() == "running" && number.is_some_and(|number| kind(number) == 3);
            if is_due
                && canceled.insert(one.directive_id)
                && shared.client.cancel(one.directive_id, &CancelRequest::default()).await.is_err()
            {
                // It may have arrived; a second one changes nothing.
                canceled.remove(&one.directive_id);
            }
        }
        shared.over.store(all.iter().filter(|one| one.state.is_terminal()).count(), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn seen(one: &Directive) -> Seen {
    Seen::Read {
        id: one.directive_id.to_string(),
        state: one.state.to_string(),
        reason: one.reason.clone(),
        exit: one.exit_code,
        attempt: u64::from(one.attempt),
    }
}

async fn list(client: &MothershipClient) -> Result<Vec<Directive>, nexus_api::client::ClientError> {
    let (mut all, mut query) = (Vec::new(), ListQuery { cursor: None, limit: Some(200) });
    loop {
        let page = client.directives(None, &query).await?;
        all.extend(page.directives);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(all),
        }
    }
}

/// Follows every fourth directive to its end, over as many connections as it takes.
async fn subscribe(shared: Arc<Shared>, subscriber: usize) {
    let mut next = subscriber;
    while !shared.stop.load(Ordering::SeqCst) {
        let id = shared.created.lock().unwrap().get(next).copied();
        match id {
            Some(id) => {
                tokio::spawn(follow(Arc::clone(&shared), subscriber, id));
                next += 4;
            }
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn follow(shared: Arc<Shared>, subscriber: usize, id: DirectiveId) {
    let (mut last, mut is_over) = (None, false);
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(mut stream) = shared.client.events(id, last).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        loop {
            let event = EventStream::next(&mut stream).await;
            let Ok(Some(event)) = event else {
                if matches!(event, Ok(None)) && is_over {
                    return shared.record.add(Seen::StreamEnded { id: id.to_string(), subscriber });
                }
                break;
            };
            last = event.id.as_deref().and_then(|id| id.parse().ok());
            let data: DirectiveEvent = serde_json::from_str(&event.data).unwrap();
            is_over |= data.state.is_terminal();
            let event = event.id.unwrap_or_default();
            shared.record.add(Seen::Event { id: id.to_string(), subscriber, event, state: data.state.to_string() });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The processes and the faults that the test makes on them.
struct Chaos {
    scene: Scene,
    relays: Vec<(SocketAddr, Arc<Switches>)>,
    record: Arc<Record>,
    port: u16,
}

impl Chaos {
    fn mothership(&mut self) {
        let address = format!("127.0.0.1:{}", self.port);
        self.scene.mothership(&["--listen", &address]);
    }

    fn daemon(&mut self, number: usize) {
        self.scene.daemon(number, &["--max-concurrent", &CAPACITY.to_string()]);
    }

    fn fault(&self, fault: Fault, name: &str, begins: bool) {
        self.record.add(Seen::Fault { fault, name: name.to_owned(), begins });
    }

    fn kill(&mut self, target: Target, pause: Duration) {
        let name = target.name();
        self.fault(Fault::Kill, &name, true);
        self.scene.kill(&name);
        std::thread::sleep(pause);
        match target {
            Target::Mothership => self.mothership(),
            Target::Daemon(number) => self.daemon(number),
        }
        self.fault(Fault::Kill, &name, false);
    }

    fn stop(&self, fault: Fault, target: Target, pause: Duration) {
        let name = target.name();
        self.scene.signal(&name, Signal::STOP);
        self.fault(fault, &name, true);
        std::thread::sleep(pause);
        self.fault(fault, &name, false);
        self.scene.signal(&name, Signal::CONT);
    }

    fn cut(&self, number: usize, pause: Duration) {
        let name = format!("daemon{number}");
        self.fault(Fault::Cut, &name, true);
        self.relays[number].1.set_cut(true);
        std::thread::sleep(pause);
        self.relays[number].1.set_cut(false);
        self.fault(Fault::Cut, &name, false);
    }

    fn lose_answers(&self, number: usize, pause: Duration) {
        let name = format!("daemon{number}");
        self.fault(Fault::LoseAnswers, &name, true);
        self.relays[number].1.lose_next();
        self.relays[number].1.lost.store(400, Ordering::SeqCst);
        std::thread::sleep(pause);
        self.relays[number].1.lost.store(0, Ordering::SeqCst);
        self.fault(Fault::LoseAnswers, &name, false);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Mothership,
    Daemon(usize),
}

impl Target {
    fn name(self) -> String {
        match self {
            Self::Mothership => "mothership".to_owned(),
            Self::Daemon(number) => format!("daemon{number}"),
        }
    }
}

/// Makes faults until the time is over, each kind once at least. Daemon 0 is left to its long stop.
fn make_faults(chaos: &mut Chaos, random: &mut Random, until: Instant) {
    // The kills of the control plane come first: nothing is taken back for the life of a lease after one.
    let mut kinds = vec![0, 1, 2, 3, 4, 5];
    let mut turn = 0;
    let is_long = until.saturating_duration_since(Instant::now()) > LEASE;
    while Instant::now() < until || turn < kinds.len() {
        if turn >= kinds.len() {
            kinds.push(if is_long { random.below(6) } else { 1 + random.below(5) });
        }
        let number = 1 + usize::try_from(random.below(2)).unwrap();
        match kinds[turn] {
            0 => chaos.kill(Target::Mothership, random.ms(50, 600)),
            1 => chaos.kill(Target::Daemon(number), random.ms(50, 600)),
            2 => chaos.stop(Fault::Stop, Target::Daemon(number), random.ms(300, 2500)),
            3 => chaos.stop(Fault::Stop, Target::Mothership, random.ms(300, 1500)),
            4 => chaos.cut(number, random.ms(300, 2500)),
            _ => chaos.lose_answers(number, random.ms(1500, 3000)),
        }
        std::thread::sleep(random.ms(50, 500));
        turn += 1;
    }
}

#[test]
fn the_invariants_of_a_fleet_hold_under_faults() {
    let seed = std::env::var("NEXUS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_240_607);
    let seconds = std::env::var("NEXUS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(9);
    let mut random = Random(seed);
    for _ in 0..4 {
        random.below(2);
    }
    println!("    NEXUS_SEED={seed} NEXUS_SOAK_SECONDS={seconds}");
    let record = Arc::new(Record::new());
    let mut chaos = start(&record);
    let shared = connect(&chaos, &record);
    let stop = Arc::clone(&shared.stop);
    let mut threads = vec![witness::watch(shared.test, Arc::clone(&record), Arc::clone(&stop))];
    let creator = Arc::clone(&shared);
    let creator = std::thread::spawn(move || runtime().block_on(create(&creator)));
    for number in 0..3 {
        let shared = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || match number {
            0 => runtime().block_on(read(&shared)),
            subscriber => runtime().block_on(subscribe(Arc::clone(&shared), subscriber - 1)),
        }));
    }
    // The daemon that is stopped for longer than its lease has to have work then.
    record.until("work of daemon 0", Duration::from_secs(20), |seen| open_claims(seen, 0) > 0);
    chaos.scene.signal("daemon0", Signal::STOP);
    chaos.fault(Fault::StopBeyondLease, "daemon0", true);
    let stopped = Instant::now();
    make_faults(&mut chaos, &mut random, stopped + Duration::from_secs(seconds));
    shared.enough.store(true, Ordering::SeqCst);
    creator.join().unwrap();
    let beyond = LEASE + Duration::from_secs(1);
    std::thread::sleep(beyond.saturating_sub(stopped.elapsed()));
    chaos.fault(Fault::StopBeyondLease, "daemon0", false);
    chaos.scene.signal("daemon0", Signal::CONT);
    let count = shared.created.lock().unwrap().len();
    let healed = Instant::now();
    while shared.over.load(Ordering::SeqCst) < count && healed.elapsed() < SETTLES_WITHIN {
        std::thread::sleep(Duration::from_millis(100));
    }
    let settled = healed.elapsed();
    // Subscribers hear of the last ends, and a command that outlives its directive is seen.
    std::thread::sleep(Duration::from_millis(2500));
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    // Alone: an answer that another thread read earlier and recorded later would seem to be a step back.
    runtime().block_on(read_output(&shared));
    end(&mut chaos, &shared);
    judge(&chaos, &record.entries(), count, settled);
}

fn open_claims(seen: &[Entry], of: usize) -> usize {
    let mut open = BTreeSet::new();
    for entry in seen {
        match &entry.seen {
            Seen::Reported { id, daemon, call: record::Call::Started, status: 200, .. } if *daemon == of => {
                open.insert(id.clone());
            }
            Seen::Reported { id, call: record::Call::Finished, .. } => drop(open.remove(id)),
            _ => {}
        }
    }
    open.len()
}

fn start(record: &Arc<Record>) -> Chaos {
    // A restart has the same port, so that relays and users find it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let relays = (0..DAEMONS).map(|number| relay::start(number, server, Arc::clone(record))).collect();
    let mut chaos = Chaos { scene: Scene::new(), relays, record: Arc::clone(record), port };
    chaos.scene.variables = vec![("NEXUS_INJECT_LEASE_MS", LEASE.as_millis().to_string())];
    chaos.mothership();
    for number in 0..DAEMONS {
        chaos.scene.join(number, &format!("http://{}", chaos.relays[number].0));
        // A lease counts from the moment at which the poll left: one that waits must leave most of these short leases.
        std::fs::write(chaos.scene.territory(number).join("nexusd.toml"), "version = 1\npoll_wait = \"2s\"\n").unwrap();
        chaos.daemon(number);
    }
    chaos
}

fn connect(chaos: &Chaos, record: &Arc<Record>) -> Arc<Shared> {
    let client = MothershipClient::new(&Http::new(ClientConfig::new(&chaos.scene.url)).unwrap(), &chaos.scene.key);
    let client = client.unwrap();
    let new = CreateFacility {
        kind: FacilityKind::Empty,
        name: None,
        repo_url: None,
        territory_id: None,
        retention_policy: None,
    };
    let facilities = runtime().block_on(async {
        let mut made = Vec::new();
        for _ in 0..FACILITIES {
            made.push(client.create_facility(&new).await.unwrap().facility_id);
        }
        made
    });
    // Connections belong to the runtime that made them.
    let client = MothershipClient::new(&Http::new(ClientConfig::new(&chaos.scene.url)).unwrap(), &chaos.scene.key);
    Arc::new(Shared {
        test: std::process::id(),
        record: Arc::clone(record),
        client: client.unwrap(),
        facilities,
        created: Mutex::default(),
        enough: AtomicBool::new(false),
        over: AtomicUsize::new(0),
        stop: Arc::default(),
    })
}

/// Reads the output of the latest attempt of every directive.
async fn read_output(shared: &Shared) {
    let client = &shared.client;
    for one in list(client).await.unwrap() {
        shared.record.add(seen(&one));
        for (stream, truncated) in [(Stream::Stdout, one.stdout_truncated), (Stream::Stderr, one.stderr_truncated)] {
            let (mut chunks, mut after_seq) = (Vec::new(), -1);
            loop {
                let query = LogQuery { stream, after_seq, limit: None, attempt: None };
                let page = client.log_chunks(one.directive_id, &query).await.unwrap();
                let Some(last) = page.chunks.last() else { break };
                after_seq = last.seq;
                chunks.extend(page.chunks.iter().map(|chunk| {
                    let bytes = base64::decode(&chunk.bytes_base64).unwrap();
                    (chunk.seq, String::from_utf8_lossy(&bytes).into_owned())
                }));
            }
            let (id, attempt) = (one.directive_id.to_string(), u64::from(one.attempt));
            shared.record.add(Seen::Log { id, attempt, stream: stream.name().to_owned(), truncated, chunks });
        }
    }
}

/// Reads the workspaces, ends all processes in order, and looks for what is left.
fn end(chaos: &mut Chaos, shared: &Shared) {
    let mut marks = vec![0; shared.created.lock().unwrap().len()];
    for number in 0..DAEMONS {
        let Ok(facilities) = std::fs::read_dir(chaos.scene.territory(number).join("facilities")) else { continue };
        for facility in facilities.flatten() {
            let text = std::fs::read_to_string(facility.path().join("tree/marks")).unwrap_or_default();
            text.lines().for_each(|line| marks[line.parse::<usize>().unwrap()] += 1);
        }
    }
    for (number, count) in marks.into_iter().enumerate() {
        chaos.record.add(Seen::Marks { number, count });
    }
    for name in (0..DAEMONS).map(|number| format!("daemon{number}")).chain(["mothership".to_owned()]) {
        chaos.scene.signal(&name, Signal::TERM);
        let mut process = chaos.scene.processes.remove(&name).unwrap();
        let deadline = Instant::now() + Duration::from_secs(40);
        while process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{name} does not end: {}", chaos.scene.said(&name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let base = chaos.scene.base.path().to_str().unwrap().to_owned();
    let left = |what: String| chaos.record.add(Seen::Left { what });
    for line in std::fs::read_to_string("/proc/mounts").unwrap().lines().filter(|line| line.contains(&base)) {
        left(format!("the mount {line}"));
    }
    // Launcher processes end with their daemons, a moment later.
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut found = processes(&base);
    while !found.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        found = processes(&base);
    }
    found.into_iter().for_each(|process| left(format!("the process {process}")));
    for (number, sandbox) in witness::alive(shared.test) {
        left(format!("the command of directive {number} in sandbox {sandbox}"));
    }
}

/// Processes that name the directory of the test or work in it.
fn processes(base: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let at = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let text = String::from_utf8_lossy(&line).replace('\0', " ");
        if text.contains(base) || at.starts_with(base) {
            found.push(format!("{} {text}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// Checks the record. A run counts when every fault was made.
fn judge(chaos: &Chaos, history: &[Entry], count: usize, settled: Duration) {
    let faults: BTreeSet<Fault> = history
        .iter()
        .filter_map(|entry| match &entry.seen {
            Seen::Fault { fault, begins: true, .. } => Some(*fault),
            _ => None,
        })
        .collect();
    assert_eq!(faults.len(), 5, "{faults:?}");
    let lost = history.iter().filter(|entry| matches!(entry.seen, Seen::Claimed { arrived: false, .. })).count();
    let refused = history.iter().filter(|entry| matches!(entry.seen, Seen::Reported { status: 409, .. })).count();
    let second = history.iter().filter(|entry| matches!(entry.seen, Seen::Claimed { attempt: 2.., .. })).count();
    let lease = u64::try_from(LEASE.as_millis()).unwrap() - 5000;
    let bounds = Bounds { kill_within: 2000, lease, capacity: CAPACITY, expected };
    let broken = check(history, &bounds);
    let file = std::env::temp_dir().join(format!("nexus-history-{}.jsonl", std::process::id()));
    let text: String = history.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect();
    let mut reasons = std::collections::BTreeMap::<String, usize>::new();
    let mut ends = std::collections::BTreeMap::new();
    for entry in history {
        if let Seen::Read { id, state, reason, .. } = &entry.seen {
            ends.insert(id, format!("{state} {}", reason.as_deref().unwrap_or_default()));
        }
    }
    ends.into_values().for_each(|end| *reasons.entry(end).or_default() += 1);
    println!(
        "    {count} directives, settled {:.1} s after the last fault: {reasons:?}; {lost} answers with claims lost, \
         {refused} reports refused, {second} second attempts, {} entries",
        settled.as_secs_f64(),
        history.len()
    );
    assert!(lost > 0, "no answer with a claim was lost");
    assert!(second > 0, "no directive was tried again: the long stop hit nothing");
    if !broken.is_empty() || std::env::var_os("NEXUS_HISTORY").is_some() {
        std::fs::write(&file, text).unwrap();
        println!("    the record is in {}", file.display());
    }
    if !broken.is_empty() {
        for number in 0..DAEMONS {
            eprintln!("daemon{number}: {}", chaos.scene.said(&format!("daemon{number}")));
        }
        panic!("{} rules are broken; the record is in {}:\n{}", broken.len(), file.display(), broken.join("\n"));
    }
}
