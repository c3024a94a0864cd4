//! A control plane whose wall clock the test sets, while directives wait for approvals, wait for a territory, and run. Everything else of the
//! machine, and the clock by which leases are measured, goes on: libfaketime changes what one process reads.

use super::chaos::Chaos;
use super::load::{self, Shared, list};
use super::record::{Fault, Record, Seen};
use super::{ALONE, connect, end, hold, read_output, runtime, start, witness};
use nexus_api::mothership::{CancelRequest, CreateDirective, Directive};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Claims that may be lost, of some 90.
const MOST_LOST: usize = 4;

/// Times to which the clock is set, with the pauses after them.
const JUMPS: [(&str, Duration); 4] = [
    ("+40d", Duration::from_secs(4)),
    ("+0", Duration::from_secs(3)),
    ("-2h", Duration::from_secs(3)),
    ("+0", Duration::from_secs(3)),
];
const DAY_MS: i64 = 86_400_000;

/// Lets the process read its clock from this file.
pub fn set_by(file: &Path, command: &mut Command) {
    let of_machine = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let library = of_machine.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    command
        .env("LD_PRELOAD", library.unwrap_or_else(|| panic!("the package faketime is missing")))
        .env("FAKETIME_TIMESTAMP_FILE", file);
    // Each look reads the file, and the clocks that no person sets stay as they are.
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
}

fn number_of(shared: &Shared, id: &str) -> Option<usize> {
    shared.created.lock().unwrap().iter().position(|known| known.to_string() == id)
}

/// Approves what waits for it: all, or those that are not kept back.
fn approve(chaos: &Chaos, shared: &Shared, key: &str, all: bool) {
    let (status, list) = chaos.scene.call(key, "GET", "/approvals", "");
    assert_eq!(status, 200, "{list}");
    for one in list["approvals"].as_array().unwrap().iter().filter(|one| one["state"] == "pending") {
        let id = one["directive_id"].as_str().unwrap();
        // One that is not noted yet is answered by the next round.
        let Some(number) = number_of(shared, id) else { continue };
        if all || !waits(number) {
            let body = json!({"approval_id": one["approval_id"], "subject": one["subject"]}).to_string();
            let (status, answer) = chaos.scene.call(key, "POST", &format!("/directives/{id}/approve"), &body);
            assert_eq!(status, 200, "{answer}");
        }
    }
}

/// Reports whether a directive waits for its approval until the clock is right again.
fn waits(number: usize) -> bool {
    number % 3 == 2
}

fn all(shared: &Shared) -> Vec<Directive> {
    runtime().block_on(list(&shared.reader())).unwrap()
}

#[test]
fn the_invariants_of_a_fleet_hold_when_the_clock_of_its_control_plane_jumps() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let record = Arc::new(Record::new());
    let mut chaos = start(&record, true);
    let file = chaos.clock.clone().unwrap();
    let key = chaos.scene.make_key("operator");
    let shared = connect(&chaos, &record);
    let stop = Arc::clone(&shared.stop);
    let mut threads = vec![witness::watch(shared.test, Arc::clone(&record), Arc::clone(&stop))];
    for number in 0..3 {
        let shared = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || match number {
            0 => runtime().block_on(load::read(&shared)),
            subscriber => runtime().block_on(load::subscribe(Arc::clone(&shared), subscriber - 1)),
        }));
    }
    let creator = Arc::clone(&shared);
    let creator = std::thread::spawn(move || runtime().block_on(load::create(&creator)));
    let clock = Instant::now();
    loop {
        approve(&chaos, &shared, &key, false);
        let all = all(&shared);
        let count = |state: &str| all.iter().filter(|one| one.state.name() == state).count();
        if count("awaiting_approval") >= 3 && count("running") >= 3 {
            break;
        }
        assert!(clock.elapsed() < Duration::from_secs(20), "no work: {all:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // No territory has this label: it is queued all the time.
    let request =
        json!({"command": ":", "requirements": {"labels": {"nowhere": "yes"}}, "queue_timeout_seconds": 3600});
    let request: CreateDirective = serde_json::from_value(request).unwrap();
    let made =
        runtime().block_on(async { shared.reader().create_directive(shared.facilities[0], &request, None).await });
    let queued = made.unwrap().directive_id;
    let (_, list) = chaos.scene.call(&key, "GET", "/approvals", "");
    let one = list["approvals"].as_array().unwrap().iter().find(|one| one["directive_id"] == json!(queued)).unwrap();
    let body = json!({"approval_id": one["approval_id"], "subject": one["subject"]}).to_string();
    assert_eq!(chaos.scene.call(&key, "POST", &format!("/directives/{queued}/approve"), &body).0, 200);
    let real = all(&shared).iter().map(|one| one.created_at.0).max().unwrap();
    for (to, pause) in JUMPS {
        chaos.fault(Fault::Clock, to, true);
        std::fs::write(&file, to).unwrap();
        let clock = Instant::now();
        while clock.elapsed() < pause {
            approve(&chaos, &shared, &key, false);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let found = all(&shared);
    assert!(found.iter().any(|one| one.created_at.0 > real + 39 * DAY_MS), "the clock did not jump: nothing was tried");
    assert!(found.iter().any(|one| one.created_at.0 < real - DAY_MS / 24), "the clock was not set back");
    let here = found.iter().find(|one| one.directive_id == queued).unwrap();
    assert_eq!(here.state.name(), "queued", "{here:?}");
    let asked = found.iter().filter(|one| number_of(&shared, &one.directive_id.to_string()).is_some_and(waits));
    let asked: Vec<_> = asked.filter(|one| one.state.name() != "awaiting_approval").collect();
    assert!(asked.is_empty(), "the approval that it waits for is over: {asked:?}");
    runtime().block_on(async { shared.reader().cancel(queued, &CancelRequest::default()).await }).unwrap();
    shared.enough.store(true, Ordering::SeqCst);
    creator.join().unwrap();
    let count = shared.created.lock().unwrap().len();
    let healed = Instant::now();
    // The one that was queued all the time is over, too.
    while shared.over.load(Ordering::SeqCst) <= count && healed.elapsed() < super::SETTLES_WITHIN {
        approve(&chaos, &shared, &key, true);
        std::thread::sleep(Duration::from_millis(200));
    }
    let settled = healed.elapsed();
    std::thread::sleep(Duration::from_millis(2500));
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    runtime().block_on(read_output(&shared));
    end(&mut chaos, &shared);
    let history = record.entries();
    hold(&chaos, &history, count, settled);
    // While the clock is set back, the certificates of the daemons are not valid yet: with the short lease of this test a claim may be lost, as
    // by any outage.
    let mut lost = BTreeSet::new();
    for entry in &history {
        if let Seen::Read { id, state, reason: Some(reason), attempt, .. } = &entry.seen {
            let is_own = matches!(reason.as_str(), "exit" | "timeout" | "canceled");
            let is_lost = matches!(reason.as_str(), "commit_unknown" | "lease_lost" | "unconfirmed");
            assert!(is_own || is_lost, "a clock ended {id}: {state} {reason}, attempt {attempt}");
            if is_lost || *attempt > 1 {
                lost.insert(id.clone());
            }
        }
    }
    assert!(lost.len() <= MOST_LOST, "a clock ended {lost:?}");
}
