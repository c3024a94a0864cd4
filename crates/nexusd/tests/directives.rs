//! Directives on a territory with a real launcher and a control plane in memory: ends, output, changes, leases, restarts.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_api::conduits::{Stream, Verdict};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{Launcher, PoolConfig, serve_stdin};
use nexus_model::RunId;
use nexus_model::directive::FinishStatus;
use nexus_model::ids::FacilityId;
use nexusd::claims::{Claims, Ended, Note};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Memory, daemon, daemon_under, daemon_with};

/// Argument with which this program is the launcher process.
const AS_LAUNCHER: &str = "as-launcher";

type Test = fn(&Arc<Launcher>, &Path);

const TESTS: [(&str, Test); 31] = [
    (
        "a_directive_runs_and_reports_its_output_changes_and_receipt",
        a_directive_runs_and_reports_its_output_changes_and_receipt,
    ),
    ("a_directive_that_fails_or_is_refused_says_why", a_directive_that_fails_or_is_refused_says_why),
    (
        "a_directive_that_a_policy_of_the_territory_forbids_is_refused_at_its_claim",
        a_directive_that_a_policy_of_the_territory_forbids_is_refused_at_its_claim,
    ),
    ("a_canceled_directive_ends_and_its_facility_is_free", a_canceled_directive_ends_and_its_facility_is_free),
    ("a_time_limit_ends_a_directive", a_time_limit_ends_a_directive),
    ("output_beyond_its_bound_keeps_both_ends", output_beyond_its_bound_keeps_both_ends),
    ("no_more_directives_run_than_a_territory_has_room_for", no_more_directives_run_than_a_territory_has_room_for),
    ("a_lost_claim_is_killed_and_commits_nothing", a_lost_claim_is_killed_and_commits_nothing),
    ("a_lease_without_renewal_ends_the_sandbox", a_lease_without_renewal_ends_the_sandbox),
    ("the_launcher_ends_a_lease_that_the_daemon_forgets", the_launcher_ends_a_lease_that_the_daemon_forgets),
    (
        "a_result_without_an_answer_is_sent_again_by_the_next_daemon",
        a_result_without_an_answer_is_sent_again_by_the_next_daemon,
    ),
    ("kept_files_outlive_their_changes_and_a_restart", kept_files_outlive_their_changes_and_a_restart),
    (
        "the_commit_of_a_repository_is_reported_before_and_after",
        the_commit_of_a_repository_is_reported_before_and_after,
    ),
    ("an_end_with_a_receipt_and_without_a_note_is_no_loss", an_end_with_a_receipt_and_without_a_note_is_no_loss),
    ("an_end_outlives_an_outage_that_is_longer_than_a_lease", an_end_outlives_an_outage_that_is_longer_than_a_lease),
    ("a_lease_that_was_over_is_no_end_of_a_directive", a_lease_that_was_over_is_no_end_of_a_directive),
    ("a_directive_that_never_runs_again_is_reported_lost", a_directive_that_never_runs_again_is_reported_lost),
    ("a_launcher_that_dies_takes_no_later_directive_with_it", a_launcher_that_dies_takes_no_later_directive_with_it),
    ("a_directive_that_may_run_again_is_not_reported_lost", a_directive_that_may_run_again_is_not_reported_lost),
    ("a_commit_asks_for_the_lease_that_it_needs", a_commit_asks_for_the_lease_that_it_needs),
    ("a_claim_that_comes_too_late_is_not_started", a_claim_that_comes_too_late_is_not_started),
    (
        "output_that_does_not_arrive_is_missing_by_the_report_and_sent_behind_it",
        output_that_does_not_arrive_is_missing_by_the_report_and_sent_behind_it,
    ),
    ("a_claim_called_lost_while_it_reports_is_reported", a_claim_called_lost_while_it_reports_is_reported),
    ("a_commit_that_the_recovery_finished_is_reported", a_commit_that_the_recovery_finished_is_reported),
    (
        "a_commit_that_cannot_be_finished_now_is_reported_when_it_is",
        a_commit_that_cannot_be_finished_now_is_reported_when_it_is,
    ),
    (
        "a_commit_without_an_answer_is_no_end_of_a_directive_that_may_run_again",
        a_commit_without_an_answer_is_no_end_of_a_directive_that_may_run_again,
    ),
    (
        "a_commit_whose_announcement_lost_its_answer_is_reported_as_not_made",
        a_commit_whose_announcement_lost_its_answer_is_reported_as_not_made,
    ),
    (
        "changes_that_wait_are_named_in_the_output_of_their_directive",
        changes_that_wait_are_named_in_the_output_of_their_directive,
    ),
    ("kept_files_of_an_earlier_daemon_hold_up_no_end", kept_files_of_an_earlier_daemon_hold_up_no_end),
    ("a_commit_is_announced_while_it_goes_on", a_commit_is_announced_while_it_goes_on),
    ("a_kept_file_goes_over_a_slow_link_in_smaller_pieces", a_kept_file_goes_over_a_slow_link_in_smaller_pieces),
];

fn main() {
    // Listing is what a test runner asks of a test that it knows nothing of.
    if std::env::args().any(|argument| argument == "--list") {
        for (name, _) in &TESTS {
            println!("{name}: test");
        }
        return;
    }
    if std::env::args().nth(1).as_deref() == Some(AS_LAUNCHER) {
        let pools = PoolConfig { networks: 2, reuse: false, sandboxes: 0 };
        serve_stdin(&Namespace::with_defaults().drawing_each(), pools).unwrap();
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg(AS_LAUNCHER);
    let launcher = Arc::new(Launcher::start(program, Namespace::with_defaults()).unwrap());
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let tests: [(&str, Test); 31] = TESTS;
    let mut passed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let clock = Instant::now();
        test(&launcher, &dir.path().join("data"));
        passed += 1;
        println!("    {:?}\ntest {name} ... ok", clock.elapsed());
    }
    println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// The claims that are noted in a data directory.
fn noted(data: &Path) -> Vec<Note> {
    Claims::open(&data.join("claims")).unwrap().all().unwrap().0
}

fn tree(data: &Path, facility: FacilityId) -> PathBuf {
    data.join(format!("facilities/{facility}/tree"))
}

fn a_directive_runs_and_reports_its_output_changes_and_receipt(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let id = memory.create(
        facility,
        "pwd; echo $CI; echo err >&2; echo one > file",
        json!({
            "capabilities": {"net": {"mode": "none"}, "fs": {}, "env": {"CI": "yes"}}, "on_lease_loss": "requeue",
        }),
    );
    let seen = memory.ended(id);
    let end = seen.end();
    assert_eq!((end.status, end.exit_code, end.reason.as_deref()), (FinishStatus::Succeeded, Some(0), Some("exit")));
    assert_eq!(seen.text(Stream::Stdout), "/workspace\nyes\n");
    assert_eq!(seen.text(Stream::Stderr), "err\n");
    assert!(seen.diff().contains("+one") && !end.diff_truncated, "{}", seen.diff());
    assert_eq!((seen.starts, seen.settling), (1, 1), "a commit that could be overtaken is announced");
    assert!(end.receipt.is_some() && end.timing.as_ref().unwrap()["duration_ms"].is_u64());
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "one\n");
    let seen = memory.until(id, "no events", |seen| !seen.events.is_empty());
    let types: Vec<_> = seen.events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        types,
        ["prepared", "sandbox_started", "environment_set", "command_started", "change_set", "finished"],
        "{:?}",
        seen.events
    );
    assert_eq!(seen.events[2]["names"], json!(["CI"]), "names, and no value");
    assert!(seen.events[1]["proof"].as_array().is_some_and(|proof| proof.len() > 3) && seen.events[4]["added"] == 1);
    // The next directive of the facility sees what this one left, and its own changes are thrown away.
    let id = memory.create(facility, "cat file; echo two > file", json!({"changes": "discard"}));
    let seen = memory.ended(id);
    assert_eq!((seen.text(Stream::Stdout).as_str(), seen.end().status), ("one\n", FinishStatus::Succeeded));
    assert!(seen.diff().contains("+two"), "{}", seen.diff());
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "one\n");
    running.stop();
    assert!(noted(data).is_empty());
}

fn a_directive_that_fails_or_is_refused_says_why(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 4);
    let end = |command: &str, change| {
        let seen = memory.ended(memory.create(FacilityId::new(), command, change));
        let end = seen.end().clone();
        (end.status, end.exit_code, end.reason.unwrap(), seen.text(Stream::Stderr))
    };
    let (status, code, reason, _) = end("exit 7", json!({}));
    assert_eq!((status, code, reason.as_str()), (FinishStatus::Failed, Some(7), "exit"));
    let (status, code, reason, text) = end("true", json!({"shell": "/no/such/shell"}));
    assert_eq!((status, code, reason.as_str()), (FinishStatus::Failed, Some(127), "exit"), "{text}");
    for (change, word) in [
        (json!({"sandbox_profile": "host"}), "profile"),
        (json!({"capabilities": {"net": {"mode": "none"}, "fs": {"read": ["host:/etc"]}}}), "host_path"),
        (json!({"capabilities": {"net": {"mode": "unrestricted"}, "fs": {}}}), "net"),
    ] {
        let (status, code, reason, text) = end("true", change);
        assert_eq!((status, code, reason.as_str()), (FinishStatus::Failed, None, "policy_denied"));
        assert!(text.starts_with("nexus: ") && text.contains(word), "{text}");
    }
    let (status, _, reason, text) = end("true", json!({"cwd": "missing"}));
    assert_eq!((status, reason.as_str()), (FinishStatus::Failed, "driver_failed"));
    assert!(text.contains("missing"), "{text}");
    running.stop();
}

fn a_directive_that_a_policy_of_the_territory_forbids_is_refused_at_its_claim(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let policy = "policy: nexus.policy/1\nid: site\nlevel: global\nlimits: {timeout: 30s, max_output: 100}\nnet: {allow: [a.test]}\n";
    let running = daemon_under(&memory, launcher, data, policy);
    for change in [
        json!({"timeout_seconds": 31}),
        json!({"capabilities": {"net": {"mode": "allowlist", "allow": ["b.test:443"]}, "fs": {}}}),
    ] {
        let seen = memory.ended(memory.create(FacilityId::new(), "echo ran", change));
        let end = seen.end();
        assert_eq!((end.status, end.reason.as_deref()), (FinishStatus::Failed, Some("policy_denied")));
        let text = seen.text(Stream::Stderr);
        assert!(text.contains("global policy site, policy.yaml:") && text.contains("(policy)"), "{text}");
        assert_eq!(seen.text(Stream::Stdout), "");
    }
    let seen = memory.ended(memory.create(FacilityId::new(), "seq 1 100000", json!({})));
    assert_eq!(seen.end().status, FinishStatus::Succeeded);
    assert!(seen.text(Stream::Stdout).len() < 1000, "a limit that the directive does not name is the policy's");
    running.stop();
}

fn a_canceled_directive_ends_and_its_facility_is_free(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let id = memory.create(facility, script, json!({}));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    memory.tell(id, Verdict::Cancel);
    let seen = memory.ended(id);
    assert_eq!((seen.end().status, seen.end().reason.as_deref()), (FinishStatus::Canceled, Some("canceled")));
    assert_eq!(seen.text(Stream::Stdout), "ready\nasked\n");
    let id = memory.create(facility, "echo free", json!({}));
    assert_eq!(memory.ended(id).end().status, FinishStatus::Succeeded);
    running.stop();
}

fn a_time_limit_ends_a_directive(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let id = memory.create(FacilityId::new(), "echo before; sleep 60", json!({"timeout_seconds": 1}));
    let seen = memory.ended(id);
    assert_eq!((seen.end().status, seen.end().exit_code), (FinishStatus::TimedOut, Some(124)));
    assert_eq!(seen.text(Stream::Stdout), "before\n");
    running.stop();
}

fn output_beyond_its_bound_keeps_both_ends(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let limits = json!({"limits": {"max_output_bytes": 2000, "max_diff_bytes": 500}});
    let id = memory.create(FacilityId::new(), "echo first; seq 100000; echo last; seq 5000 > numbers", limits);
    let seen = memory.ended(id);
    let text = seen.text(Stream::Stdout);
    assert!(text.starts_with("first\n1\n") && text.ends_with("last\n") && text.contains("truncated"), "{text}");
    assert!(text.len() < 2200 && seen.end().stdout_truncated && !seen.end().stderr_truncated);
    assert!(seen.end().diff_truncated && seen.diff().len() < 1000, "{}", seen.diff().len());
    running.stop();
}

fn no_more_directives_run_than_a_territory_has_room_for(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 3);
    let ids: Vec<_> = (0..12).map(|_| memory.create(FacilityId::new(), "sleep 0.1", json!({}))).collect();
    for id in ids {
        assert_eq!(memory.ended(id).end().status, FinishStatus::Succeeded);
    }
    assert!(memory.most_open() <= 3, "{}", memory.most_open());
    // Two directives of one facility never run at one time, and both come to their end.
    let facility = FacilityId::new();
    let script = "test ! -e busy && touch busy && sleep 0.3 && rm busy";
    let ids = [0; 2].map(|_| memory.create(facility, script, json!({})));
    for id in ids {
        assert_eq!(memory.ended(id).end().exit_code, Some(0));
    }
    running.stop();
}

fn a_lost_claim_is_killed_and_commits_nothing(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 30", json!({}));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    memory.tell(id, Verdict::Lost);
    let deadline = Instant::now() + Duration::from_secs(10);
    while running.running() > 0 {
        assert!(Instant::now() < deadline, "the claim goes on");
        std::thread::yield_now();
    }
    assert!(memory.seen(id).finished.is_empty(), "a daemon does not speak for a claim that it lost");
    assert!(!tree(data, facility).join("file").exists(), "nor does it commit for it");
    running.stop();
}

fn a_lease_without_renewal_ends_the_sandbox(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    // Two seconds are left after the margin.
    memory.set_ttl(7);
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 30", json!({}));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    memory.set_away(true);
    std::thread::sleep(Duration::from_secs(4));
    assert!(!tree(data, facility).join("file").exists(), "what a daemon without a lease did is not committed");
    memory.set_away(false);
    assert_eq!(memory.ended(id).end().reason.as_deref(), Some("lease_lost"));
    running.stop();
}

fn the_launcher_ends_a_lease_that_the_daemon_forgets(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.set_ttl(7);
    // Its heartbeats would end the claim, too: none comes in time, as with a daemon that is stopped.
    let running = daemon_with(&memory, launcher, data, Duration::from_secs(600));
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 30; echo late", json!({}));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    let clock = Instant::now();
    while running.running() > 0 {
        assert!(clock.elapsed() < Duration::from_secs(15), "the sandbox lives on");
        std::thread::yield_now();
    }
    assert!(!memory.seen(id).text(Stream::Stdout).contains("late"));
    assert!(!tree(data, facility).join("file").exists(), "what a daemon without a lease did is not committed");
    running.stop();
}

fn an_end_outlives_an_outage_that_is_longer_than_a_lease(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.set_ttl(17);
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    // The report of its end gets no answer, and then the control plane is away for longer than the lease.
    memory.lose_ends(true);
    let id = memory.create(facility, "echo once >> file", json!({}));
    memory.ended(id);
    memory.set_away(true);
    std::thread::sleep(Duration::from_secs(13));
    assert_eq!(running.running(), 1, "the report is still to be sent");
    let count = memory.seen(id).finished.len();
    memory.lose_ends(false);
    memory.set_away(false);
    let clock = Instant::now();
    while memory.seen(id).finished.len() == count {
        assert!(clock.elapsed() < Duration::from_secs(30), "the end is kept and not sent");
        std::thread::yield_now();
    }
    assert_eq!((memory.seen(id).starts, memory.seen(id).end().status), (1, FinishStatus::Succeeded));
    running.stop();
    assert!(noted(data).is_empty());
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "once\n");
}

fn a_lease_that_was_over_is_no_end_of_a_directive(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.set_ttl(7);
    // No heartbeat comes in time, as with a daemon that is stopped. The launcher kills the sandbox, and the daemon finds it dead.
    let running = daemon_with(&memory, launcher, data, Duration::from_secs(600));
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 30", json!({ "on_lease_loss": "requeue" }));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    let clock = Instant::now();
    while running.running() > 0 {
        assert!(clock.elapsed() < Duration::from_secs(15), "the claim goes on");
        std::thread::yield_now();
    }
    running.stop();
    assert!(memory.seen(id).finished.is_empty(), "the control plane decides whether it runs again");
    assert_eq!(memory.seen(id).settling, 0, "a directive whose commit was announced never runs again");
    assert!(noted(data).is_empty() && !tree(data, facility).join("file").exists());
}

fn a_directive_that_never_runs_again_is_reported_lost(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.set_ttl(7);
    // No heartbeat comes in time. This daemon alone knows that nothing was committed.
    let running = daemon_with(&memory, launcher, data, Duration::from_secs(600));
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 30", json!({}));
    let seen = memory.ended(id);
    let end = seen.end();
    assert_eq!((end.status, end.reason.as_deref()), (FinishStatus::Failed, Some("lease_lost")));
    assert_eq!((end.stdout_truncated, seen.text(Stream::Stdout)), (false, "ready\n".to_owned()));
    assert_eq!(seen.settling, 0);
    running.stop();
    assert!(noted(data).is_empty() && !tree(data, facility).join("file").exists());
}

fn a_launcher_that_dies_takes_no_later_directive_with_it(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let first = launcher.pid();
    for _ in 0..2 {
        let id = memory.create(FacilityId::new(), "echo there", json!({}));
        let seen = memory.ended(id);
        let end = seen.end();
        assert_eq!(
            (end.status, end.reason.as_deref()),
            (FinishStatus::Succeeded, Some("exit")),
            "{}",
            seen.text(Stream::Stderr)
        );
        let pid = rustix::process::Pid::from_raw(launcher.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Until then no process can see that it is dead.
        let stat = format!("/proc/{}/stat", launcher.pid());
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            std::thread::yield_now();
        }
    }
    let last = memory.create(FacilityId::new(), "true", json!({}));
    assert_eq!(memory.ended(last).end().status, FinishStatus::Succeeded);
    assert_ne!(launcher.pid(), first);
    running.stop();
}

fn a_directive_that_may_run_again_is_not_reported_lost(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let command = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let once = memory.create(FacilityId::new(), "echo ready; sleep 30", json!({}));
    let again = memory.create(FacilityId::new(), "echo ready; sleep 30", json!({ "on_lease_loss": "requeue" }));
    for id in [once, again] {
        memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    }
    running.stop();
    assert_eq!(memory.seen(once).end().reason.as_deref(), Some("lease_lost"));
    assert!(memory.seen(again).finished.is_empty(), "a shutdown is no end of it");
    assert!(noted(data).is_empty());
    // One that ends on its own at the signal has ended.
    let running = daemon(&memory, launcher, data, 2);
    let own = memory.create(FacilityId::new(), command, json!({ "on_lease_loss": "requeue" }));
    memory.until(own, "no output", |seen| !seen.chunks.is_empty());
    memory.tell(own, nexus_api::conduits::Verdict::Cancel);
    assert_eq!(memory.ended(own).end().status, FinishStatus::Canceled);
    running.stop();
}

fn a_claim_that_comes_too_late_is_not_started(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    // Nothing is left of it after the margin.
    memory.set_ttl(5);
    let running = daemon(&memory, launcher, data, 2);
    let late = memory.create(FacilityId::new(), "true", json!({}));
    let clock = Instant::now();
    while memory.seen(late).claims == 0 || running.running() > 0 {
        assert!(clock.elapsed() < Duration::from_secs(10), "the claim is not given up");
        std::thread::yield_now();
    }
    assert_eq!((memory.seen(late).starts, memory.seen(late).finished.len()), (0, 0));
    memory.set_ttl(60);
    let next = memory.create(FacilityId::new(), "true", json!({}));
    assert_eq!(memory.ended(next).end().status, FinishStatus::Succeeded);
    running.stop();
    assert!(noted(data).is_empty());
}

fn a_commit_asks_for_the_lease_that_it_needs(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    // Eleven seconds are left after the margin, of which a commit needs ten; no heartbeat renews them.
    memory.set_ttl(16);
    let running = daemon_with(&memory, launcher, data, Duration::from_secs(600));
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; sleep 3", json!({}));
    assert_eq!(memory.ended(id).end().status, FinishStatus::Succeeded);
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "x\n");
    running.stop();
}

fn a_result_without_an_answer_is_sent_again_by_the_next_daemon(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_ends(true);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo once >> file", json!({}));
    memory.ended(id);
    running.stop();
    let first = memory.seen(id);
    memory.lose_ends(false);
    let count = first.finished.len();
    let next = daemon(&memory, launcher, data, 2);
    let seen = memory.until(id, "no replay", |seen| seen.finished.len() > count);
    assert_eq!(seen.end(), first.end(), "the very same report");
    assert_eq!((seen.starts, seen.end().status), (1, FinishStatus::Succeeded));
    next.stop();
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "once\n");
    // A claim that a daemon died over is reported as lost, and does not run again.
    let cut_off = memory.create(facility, "echo never", json!({}));
    let note = json!({"version": 1, "directive": cut_off, "fence": 1, "token": "t"});
    std::fs::write(data.join(format!("claims/{cut_off}-1")), note.to_string()).unwrap();
    let memory_without_work = Arc::clone(&memory);
    let last = daemon(&memory_without_work, launcher, data, 2);
    let seen = memory.ended(cut_off);
    let lost = &seen.finished[0];
    assert_eq!((lost.status, lost.reason.as_deref()), (FinishStatus::Failed, Some("lease_lost")));
    last.stop();
}

fn an_end_with_a_receipt_and_without_a_note_is_no_loss(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_ends(true);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo one > file; exit 4", json!({}));
    let first = memory.ended(id).end().clone();
    running.stop();
    memory.lose_ends(false);
    // The daemon died after the receipt and before the note: the note has no result yet.
    let cut = Note { result: None, ..noted(data).remove(0) };
    Claims::open(&data.join("claims")).unwrap().write(&cut).unwrap();
    let count = memory.seen(id).finished.len();
    let next = daemon(&memory, launcher, data, 2);
    let seen = memory.until(id, "no report", |seen| seen.finished.len() > count);
    let end = seen.end();
    assert_eq!((end.status, end.exit_code, end.reason.as_deref()), (FinishStatus::Failed, Some(4), Some("exit")));
    assert_eq!((&end.receipt, seen.starts), (&first.receipt, 1));
    assert!(end.stdout_truncated && end.diff_truncated, "what the dead daemon had in memory is missing");
    assert_eq!(std::fs::read_to_string(tree(data, facility).join("file")).unwrap(), "one\n");
    next.stop();
    assert!(noted(data).is_empty());
    // A receipt of another run under the name of this one states nothing.
    let receipts = data.join("state/receipts");
    let run = cut.command.unwrap().to_string();
    let other = memory.create(facility, "true", json!({}));
    let last = daemon(&memory, launcher, data, 2);
    memory.ended(other);
    last.stop();
    let file = |run: &str| receipts.join(format!("{run}.json"));
    let is_other = |path: &PathBuf| path.extension().is_some_and(|end| end == "json") && *path != file(&run);
    let mut names = std::fs::read_dir(&receipts).unwrap().map(|entry| entry.unwrap().path());
    let foreign = names.find(is_other).unwrap();
    std::fs::copy(foreign, file(&run)).unwrap();
    Claims::open(&data.join("claims")).unwrap().write(&cut).unwrap();
    let count = memory.seen(id).finished.len();
    let last = daemon(&memory, launcher, data, 2);
    let seen = memory.until(id, "no report", |seen| seen.finished.len() > count);
    assert_eq!(seen.end().reason.as_deref(), Some("lease_lost"));
    last.stop();
}

fn kept_files_outlive_their_changes_and_a_restart(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    memory.ended(memory.create(facility, "echo old > old.log; echo gone > gone.log", json!({})));
    memory.lose_files(true);
    let script = "mkdir out; head -c 3000000 /dev/zero > out/big; ln -s /etc/passwd out/link; : > out/empty; rm gone.log; exit 3";
    let keeps = json!({"artifacts": {"collect": ["out/", "*.log"]}, "changes": "discard"});
    let id = memory.create(facility, script, keeps);
    let end = memory.ended(id).end().clone();
    let manifest = end.artifacts_manifest.clone().unwrap();
    let names: Vec<_> = manifest["artifacts"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["old.log", "out/big", "out/empty", "out/link"], "as the command left the workspace");
    assert_eq!(manifest["artifacts"][3]["target"], "/etc/passwd", "a link is named and not followed");
    // The next directive of the facility runs and changes what was kept, before it is uploaded.
    memory.ended(memory.create(facility, "echo new > old.log", json!({})));
    running.stop();
    assert!(!tree(data, facility).join("out").exists(), "the changes were thrown away");
    assert!(data.join(format!("spool/{id}-1/1")).exists(), "the copies wait for the next daemon");
    memory.lose_files(false);
    let next = daemon(&memory, launcher, data, 2);
    let has_all = |files: &std::collections::BTreeMap<String, (u64, String, Vec<u8>)>| {
        files.len() == 3 && files.values().all(|(size, _, bytes)| *size == bytes.len() as u64)
    };
    let seen = memory.until(id, "no upload", |seen| has_all(&seen.files));
    assert_eq!(seen.files["old.log"].2, b"old\n");
    assert_eq!(seen.files["out/big"].2, vec![0; 3_000_000]);
    assert_eq!(seen.finished.last().unwrap(), &end, "the very same report");
    next.stop();
    assert!(!data.join(format!("spool/{id}-1")).exists() && noted(data).is_empty());
    // Nothing changed, and nothing matches: the workspace alone is looked at.
    let last = daemon(&memory, launcher, data, 2);
    let id = memory.create(facility, "true", json!({"artifacts": {"collect": ["*.log"]}}));
    memory.until(id, "no upload", |seen| seen.files.get("old.log").is_some_and(|file| file.2 == b"new\n"));
    last.stop();
}

fn output_that_does_not_arrive_is_missing_by_the_report_and_sent_behind_it(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let id = memory.create(FacilityId::new(), "echo first; sleep 1; echo last; echo err >&2; exit 3", json!({}));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    // Only output is refused, again and again: it must not hold up the end.
    memory.refuse_chunks(true);
    let seen = memory.ended(id);
    let end = seen.end();
    assert_eq!((end.status, end.exit_code), (FinishStatus::Failed, Some(3)));
    assert_eq!((seen.text(Stream::Stdout).as_str(), seen.text(Stream::Stderr).as_str()), ("first\n", ""));
    assert!(end.stdout_truncated && end.stderr_truncated, "the reader is told that output is missing");
    memory.refuse_chunks(false);
    let all =
        |seen: &support::Seen| seen.text(Stream::Stdout).ends_with("last\n") && !seen.text(Stream::Stderr).is_empty();
    memory.until(id, "no late output", all);
    // What arrives in time is not called missing.
    let whole = memory.ended(memory.create(FacilityId::new(), "seq 1 1000; echo err >&2", json!({})));
    assert!(!whole.end().stdout_truncated && !whole.end().stderr_truncated);
    running.stop();
}

fn a_claim_called_lost_while_it_reports_is_reported(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_ends(true);
    let keeps = json!({"artifacts": {"collect": ["*.log"]}});
    let id = memory.create(FacilityId::new(), "echo kept > one.log", keeps);
    memory.ended(id);
    // The directive is over by a report whose answer was lost: heartbeats call the claim lost, and the next answer is lost, too.
    memory.tell(id, Verdict::Lost);
    let beats = memory.seen(id).beats;
    memory.until(id, "no heartbeat", |seen| seen.beats > beats + 2);
    let count = memory.seen(id).finished.len();
    memory.until(id, "no other report", |seen| seen.finished.len() > count);
    memory.lose_ends(false);
    memory.until(id, "no kept file", |seen| seen.files.get("one.log").is_some_and(|file| file.2 == b"kept\n"));
    running.stop();
    assert!(noted(data).is_empty());
}

fn a_commit_that_the_recovery_finished_is_reported(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_ends(true);
    // The commit takes a while, in which the note says how the command ended.
    let command = "i=0; while [ $i -lt 1500 ]; do : > f$i; i=$((i+1)); done; exit 4";
    let id = memory.create(FacilityId::new(), command, json!({ "on_lease_loss": "requeue" }));
    // From its start on no slot is made, which a second reader would disturb.
    memory.until(id, "no start", |seen| seen.starts > 0);
    let mut ended = None;
    while ended.is_none() && memory.seen(id).finished.is_empty() {
        let found = noted(data).into_iter().find(|note| note.directive == id && note.result.is_none());
        ended = ended.or(found.and_then(|note| note.ended));
    }
    assert_eq!(ended.map(|ended| ended.exit), Some(4), "the end of the command is noted before its commit");
    memory.ended(id);
    running.stop();
    memory.lose_ends(false);
    let mut note = noted(data).remove(0);
    let run = note.command.unwrap();
    // The daemon died in the middle of the commit: there is no receipt and no result, and the recovery finishes it.
    std::fs::remove_file(data.join(format!("state/receipts/{run}.json"))).unwrap();
    let zero = ended.map(|ended| Ended { exit: 0, ..ended });
    for (ended, left_out, expected) in [
        (ended, None, (Some(4), "exit")),
        (None, None, (None, "committed_at_recovery")),
        // What is there in part has not succeeded.
        (zero, Some("f7 changed outside"), (Some(125), "driver_failed")),
        (None, Some("f7 changed outside"), (Some(125), "driver_failed")),
    ] {
        (note.ended, note.result) = (ended, None);
        let claims = Claims::open(&data.join("claims")).unwrap();
        claims.write(&note).unwrap();
        memory.finish_commits(&[RunId::new(), run], left_out);
        let count = memory.seen(id).finished.len();
        let next = daemon(&memory, launcher, data, 2);
        let seen = memory.until(id, "no report", |seen| seen.finished.len() > count);
        let end = seen.end();
        assert_eq!(
            (end.status, end.exit_code, end.reason.as_deref()),
            (FinishStatus::Failed, expected.0, Some(expected.1))
        );
        assert!(end.diff_truncated && end.stdout_truncated, "what died with the daemon is named as missing");
        let said = seen.text(Stream::Stderr);
        assert_eq!(said.contains("not everything was committed: f7 changed outside"), left_out.is_some(), "{said}");
        next.stop();
        assert!(noted(data).is_empty());
    }
}

fn a_commit_that_cannot_be_finished_now_is_reported_when_it_is(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_ends(true);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo one > file", json!({}));
    memory.ended(id);
    running.stop();
    memory.lose_ends(false);
    let note = noted(data).remove(0);
    let run = note.command.unwrap();
    // The daemon died in the middle of the commit, in its facility, and the disk is full now.
    std::fs::remove_file(data.join(format!("state/receipts/{run}.json"))).unwrap();
    let ended = Some(Ended { exit: 0, reason: nexus_model::ExitReason::Exit });
    Claims::open(&data.join("claims")).unwrap().write(&Note { ended, result: None, ..note }).unwrap();
    let home = tree(data, facility).parent().unwrap().to_owned();
    let lock = std::fs::read_to_string(home.join("lock")).unwrap().replace("\"released\":true", "\"released\":false");
    assert!(lock.contains(&id.to_string()) && lock.contains("false"), "{lock}");
    std::fs::write(home.join("lock"), lock).unwrap();
    memory.keep_unfinished(&[run]);
    let count = memory.seen(id).finished.len();
    let next = daemon(&memory, launcher, data, 2);
    let elsewhere = memory.create(FacilityId::new(), "true", json!({}));
    assert_eq!(memory.ended(elsewhere).end().status, FinishStatus::Succeeded, "other work goes on");
    let waits = memory.create(facility, "cat file", json!({}));
    memory.until(waits, "no start", |seen| seen.starts > 0);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(memory.seen(id).finished.len(), count, "nobody knows its end");
    assert!(memory.seen(waits).finished.is_empty(), "nothing works on half a commit");
    memory.finish_commits(&[run], None);
    let seen = memory.until(id, "no report", |seen| seen.finished.len() > count);
    assert_eq!((seen.end().status, seen.end().exit_code), (FinishStatus::Succeeded, Some(0)));
    assert_eq!(memory.ended(waits).end().status, FinishStatus::Succeeded);
    next.stop();
    assert!(noted(data).is_empty());
}

fn a_commit_without_an_answer_is_no_end_of_a_directive_that_may_run_again(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.set_ttl(17);
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let id = memory.create(facility, "echo x > file; echo ready; sleep 2", json!({ "on_lease_loss": "requeue" }));
    memory.until(id, "no output", |seen| !seen.chunks.is_empty());
    // The command ends while the control plane is away, which is longer than the lease.
    memory.set_away(true);
    std::thread::sleep(Duration::from_secs(14));
    memory.set_away(false);
    let clock = Instant::now();
    while running.running() > 0 {
        assert!(clock.elapsed() < Duration::from_secs(30), "the claim goes on");
        std::thread::yield_now();
    }
    running.stop();
    // The control plane may have heard of the commit: a call without an answer may have arrived.
    let reasons: Vec<_> = memory.seen(id).finished.into_iter().map(|end| end.reason).collect();
    assert_eq!(reasons, [Some("not_committed".to_owned())]);
    assert!(noted(data).is_empty() && !tree(data, facility).join("file").exists());
}

fn changes_that_wait_are_named_in_the_output_of_their_directive(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    let command = "for name in .envrc .mcp.json .bashrc nexus.yaml file; do echo x > $name; done";
    let seen = memory.ended(memory.create(facility, command, json!({})));
    assert_eq!((seen.end().status, seen.end().exit_code), (FinishStatus::Succeeded, Some(0)));
    let said = seen.text(Stream::Stderr);
    assert!(said.contains("waiting for a decision: .bashrc (") && said.contains(" and 1 more"), "{said}");
    assert!(tree(data, facility).join("file").exists() && !tree(data, facility).join(".envrc").exists());
    // No commit was asked for.
    let seen = memory.ended(memory.create(facility, command, json!({"changes": "discard"})));
    assert_eq!(seen.text(Stream::Stderr), "");
    running.stop();
}

fn a_commit_whose_announcement_lost_its_answer_is_reported_as_not_made(launcher: &Arc<Launcher>, data: &Path) {
    for is_killed in [false, true] {
        let memory = Memory::new();
        memory.set_ttl(9);
        let mut running = daemon(&memory, launcher, data, 2);
        let facility = FacilityId::new();
        memory.lose_announcements(true);
        let id = memory.create(facility, "echo x > file", json!({ "on_lease_loss": "requeue" }));
        memory.until(id, "no announcement", |seen| seen.settling > 0);
        let note = noted(data).remove(0);
        assert!(note.is_announced && note.ended.is_none(), "noted before it is announced: {note:?}");
        // The lease of four seconds ends meanwhile.
        std::thread::sleep(Duration::from_secs(5));
        memory.lose_announcements(false);
        if is_killed {
            running.stop();
            // The note as a daemon leaves it that dies while it asks.
            Claims::open(&data.join("claims")).unwrap().write(&note).unwrap();
            memory.set_away(false);
            running = daemon(&memory, launcher, data, 2);
        }
        memory.set_away(false);
        let seen = memory.ended(id);
        assert_eq!((seen.end().status, seen.end().reason.as_deref()), (FinishStatus::Failed, Some("not_committed")));
        running.stop();
        assert!(noted(data).is_empty() && !tree(data, facility).join("file").exists());
    }
}

fn kept_files_of_an_earlier_daemon_hold_up_no_end(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    memory.lose_files(true);
    let keeps = json!({"artifacts": {"collect": ["*.log"]}});
    let slow = memory.create(FacilityId::new(), "echo kept > one.log", keeps);
    memory.ended(slow);
    memory.lose_ends(true);
    let other = memory.create(FacilityId::new(), "true", json!({}));
    memory.ended(other);
    running.stop();
    assert_eq!(noted(data).len(), 2);
    // The end of the second is behind the files of the first, which do not arrive.
    let (beats, count) = (memory.seen(other).beats, memory.seen(other).finished.len());
    let next = daemon(&memory, launcher, data, 2);
    memory.until(other, "no heartbeat for a note", |seen| seen.beats > beats);
    memory.until(other, "no report", |seen| seen.finished.len() > count);
    memory.lose_ends(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    while noted(data).len() > 1 {
        assert!(Instant::now() < deadline, "the end of the second is not acknowledged");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Nor do they hold up work.
    let third = memory.create(FacilityId::new(), "true", json!({}));
    assert_eq!(memory.ended(third).end().status, FinishStatus::Succeeded);
    assert!(memory.seen(slow).files.is_empty());
    memory.lose_files(false);
    memory.until(slow, "no kept file", |seen| seen.files.get("one.log").is_some_and(|file| file.2 == b"kept\n"));
    next.stop();
    assert!(noted(data).is_empty());
}

fn the_commit_of_a_repository_is_reported_before_and_after(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    let running = daemon(&memory, launcher, data, 2);
    let facility = FacilityId::new();
    assert!(memory.ended(memory.create(facility, "true", json!({}))).end().snapshot_after.is_none());
    let tree = tree(data, facility);
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&tree).env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
        command.args(["-c", "user.name=n", "-c", "user.email=n@example.test", "-c", "init.defaultBranch=main"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    let first = git(&["rev-parse", "HEAD"]);
    let script = "git -c safe.directory='*' -c user.name=n -c user.email=n@example.test commit -q --allow-empty -m two";
    let repo = json!({"id": facility, "repo_url": "https://example.test/x"});
    let seen = memory.ended(memory.create(facility, script, json!({ "facility": repo })));
    assert_eq!(seen.end().exit_code, Some(0), "{}", seen.text(Stream::Stderr));
    let second = git(&["rev-parse", "HEAD"]);
    assert_ne!(first, second);
    let head = |commit: &str| Some(json!({"head": {"commit": commit, "ref": "refs/heads/main"}}));
    assert_eq!((&seen.end().snapshot_before, &seen.end().snapshot_after), (&head(&first), &head(&second)));
    running.stop();
}

fn a_commit_is_announced_while_it_goes_on(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    // No heartbeat of the timer comes meanwhile.
    let running = daemon_with(&memory, launcher, data, Duration::from_secs(50));
    // A directive that does not run again asks for no answer before its commit; the commit of so many files takes a while.
    let command = "i=0; while [ $i -lt 1500 ]; do : > f$i; i=$((i+1)); done";
    let seen = memory.ended(memory.create(FacilityId::new(), command, json!({})));
    assert!(seen.settling == 0 && seen.settling_beats > 0, "{:?}", seen.end());
    // Without changes there is nothing to announce.
    let seen = memory.ended(memory.create(FacilityId::new(), "true", json!({})));
    assert_eq!((seen.settling, seen.settling_beats), (0, 0));
    running.stop();
}

fn a_kept_file_goes_over_a_slow_link_in_smaller_pieces(launcher: &Arc<Launcher>, data: &Path) {
    let memory = Memory::new();
    memory.carry_at_most(300_000);
    let running = daemon(&memory, launcher, data, 2);
    let keeps = json!({"artifacts": {"collect": ["big"]}});
    let id = memory.create(FacilityId::new(), "head -c 700000 /dev/zero > big", keeps);
    let seen = memory.until(id, "no upload", |seen| seen.files.get("big").is_some_and(|file| file.2.len() == 700_000));
    assert!(seen.pieces.iter().all(|bytes| *bytes <= 300_000), "{:?}", seen.pieces);
    running.stop();
}
