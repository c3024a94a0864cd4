//! A control plane and three daemons as processes, which are killed, stopped, cut off and robbed of answers under load; what clients,
//! relays and a look at the machine's processes saw is recorded, and the invariants of a fleet are checked from that record.
//!
//! ```text
//!  users ─▶ mothership ◀─ relay 0 ◀─ daemon 0: stopped for longer than its lease
//!     │         ▲    ◀─ relay 1 ◀─ daemon 1 ┐
//!     │         │    ◀─ relay 2 ◀─ daemon 2 ┴ killed, stopped, cut off, answers lost: by the seed
//!     └─ record ┴─ /proc ─▶ check (pure) ─▶ rules that are broken
//! ```
//! In a run of its own the wall clock of the control plane jumps (`clock`).
//!
//! `NEXUS_SOAK_SECONDS` sets the time of the faults, `NEXUS_SEED` repeats a run as far as the kernel lets it, and with `NEXUS_HISTORY`
//! the record is kept also when no rule is broken.

#![cfg(feature = "inject")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "fleet_history/chaos.rs"]
mod chaos;
#[path = "fleet_history/check.rs"]
mod check;
#[path = "fleet_history/clock.rs"]
mod clock;
mod fleet_support;
#[path = "fleet_history/load.rs"]
mod load;
#[path = "fleet_history/record.rs"]
mod record;
#[path = "fleet_history/relay.rs"]
mod relay;
#[path = "fleet_history/witness.rs"]
mod witness;

use chaos::{Chaos, Random, make_faults};
use check::{Bounds, check};
use fleet_support::Scene;
use load::{Shared, create, expected, list, read, runtime, seen, subscribe};
use nexus_api::base64;
use nexus_api::client::{ClientConfig, Http, LogQuery, MothershipClient};
use nexus_api::conduits::Stream;
use nexus_api::mothership::{CreateFacility, FacilityKind};
use record::{Entry, Fault, Record, Seen};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// Tests of this process know their commands by its number, and would see those of each other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn the_invariants_of_a_fleet_hold_under_faults() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = std::env::var("NEXUS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_240_607);
    let seconds = std::env::var("NEXUS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(9);
    let mut random = Random(seed);
    for _ in 0..4 {
        random.below(2);
    }
    println!("    NEXUS_SEED={seed} NEXUS_SOAK_SECONDS={seconds}");
    let record = Arc::new(Record::new());
    let mut chaos = start(&record, false);
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
    record.until("work of daemon 0", Duration::from_secs(20), |seen| {
        let open = open_claims(seen, 0);
        shared.created.lock().unwrap().iter().take(2).filter(|id| open.contains(&id.to_string())).count() == 2
    });
    chaos.scene.signal("daemon0", Signal::STOP);
    chaos.fault(Fault::StopBeyondLease, "daemon0", true);
    let stopped = Instant::now();
    make_faults(&mut chaos, &mut random, stopped + Duration::from_secs(seconds));
    shared.enough.store(true, Ordering::SeqCst);
    creator.join().unwrap();
    // The control plane waits five seconds more before it takes a claim back.
    let beyond = LEASE + Duration::from_secs(7);
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

fn open_claims(seen: &[Entry], of: usize) -> BTreeSet<String> {
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
    open
}

/// Starts a fleet. With `clock` the wall clock of the control plane is set by a file, and commands wait for approvals.
fn start(record: &Arc<Record>, clock: bool) -> Chaos {
    // A restart has the same port, so that relays and users find it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let held = Arc::default();
    let relay = |number| relay::start(number, server, Arc::clone(record), Arc::clone(&held));
    let relays = (0..DAEMONS).map(relay).collect();
    let mut chaos = Chaos { scene: Scene::new(), relays, record: Arc::clone(record), port, clock: None };
    if clock {
        let file = chaos.scene.path("clock");
        std::fs::write(&file, "+0").unwrap();
        chaos.clock = Some(file);
        chaos.scene.ask_for_approvals();
    }
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
        access: (chaos.scene.url.clone(), chaos.scene.key.clone()),
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
    for process in found {
        left(format!("the process {process}"));
    }
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
    assert!(lost > 0, "no answer with a claim was lost");
    assert!(second > 0, "no directive was tried again: the long stop hit nothing");
    hold(chaos, history, count, settled);
    assert!(refused > 0, "no report of an earlier claim came late");
}

/// Checks the invariants.
fn hold(chaos: &Chaos, history: &[Entry], count: usize, settled: Duration) {
    let claims = |is_it: fn(&Seen) -> bool| history.iter().filter(|entry| is_it(&entry.seen)).count();
    let lost = claims(|seen| matches!(seen, Seen::Claimed { arrived: false, .. }));
    let refused = claims(|seen| matches!(seen, Seen::Reported { status: 409, .. }));
    let second = claims(|seen| matches!(seen, Seen::Claimed { attempt: 2.., .. }));
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
    for end in ends.into_values() {
        *reasons.entry(end).or_default() += 1;
    }
    println!(
        "    {count} directives, settled {:.1} s after the last fault: {reasons:?}; {lost} answers with claims lost, \
         {refused} reports refused, {second} second attempts, {} entries",
        settled.as_secs_f64(),
        history.len()
    );
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
