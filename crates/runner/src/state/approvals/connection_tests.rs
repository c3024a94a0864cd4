//! Approvals of connections: bounds that hold whatever comes between.

use super::{ApprovalError, Approvals, Subject, Terms};
use crate::state::directory::StateDir;
use nexus_model::approval::{Actor, ApprovalEvent, ApprovalKind, ApprovalRefusal, ApprovalState};
use nexus_model::{ByteText, RunId};
use std::time::Duration;

fn scene() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let places = StateDir::below(std::fs::canonicalize(dir.path()).unwrap());
    (dir, places)
}

fn actor(credential: &str) -> Actor {
    Actor { user: "u".to_owned(), credential: credential.to_owned() }
}

fn to(run: RunId, target: &str) -> Subject {
    Subject::of_connection(run, target, &[ByteText(b"curl".to_vec())], &ByteText(b"/w".to_vec()))
}

/// Asks at 1000: the connection waits until 1100, and uses are taken until 2000.
fn asked(places: &StateDir, subject: &Subject, max_uses: u32) -> RunId {
    let terms = Terms { life: Duration::from_secs(1), waits: Some(Duration::from_millis(100)), max_uses };
    let stored = Approvals::open(places).unwrap().request(subject, actor("a"), Vec::new(), terms, 1000).unwrap();
    assert_eq!(stored.approval.kind, ApprovalKind::Egress);
    stored.id
}

fn answer(places: &StateDir, id: RunId, uses: u32, now: u64) -> Result<ApprovalState, ApprovalError> {
    let yes = ApprovalEvent::Approve { by: actor("b"), max_uses: Some(uses), expires_at: None };
    Approvals::open(places)?.answer(id, &yes, now).map(|stored| stored.approval.state)
}

#[test]
fn an_answer_that_comes_after_its_connection_has_waited_opens_nothing() {
    let (_dir, places) = scene();
    let subject = to(RunId::new(), "a.test:443");
    let id = asked(&places, &subject, 5);
    assert_eq!(answer(&places, id, 1, 1100).unwrap_err().code(), "approval_over");
    let approvals = Approvals::open(&places).unwrap();
    assert_eq!(approvals.inspect(id, 1100).unwrap().approval.state, ApprovalState::Expired);
    assert!(approvals.take_from(id, &subject, "1", 1100).is_err());
    drop(approvals);
    // In time, its uses are there after the time for which the connection would have waited, and not after their own.
    let id = asked(&places, &to(RunId::new(), "a.test:443"), 5);
    assert_eq!(answer(&places, id, 5, 1099).unwrap(), ApprovalState::Granted);
    let approvals = Approvals::open(&places).unwrap();
    assert_eq!(approvals.inspect(id, 1500).unwrap().approval.state, ApprovalState::Granted);
    assert_eq!(approvals.inspect(id, 2000).unwrap().approval.state, ApprovalState::Expired);
}

#[test]
fn an_answer_about_a_connection_is_for_its_host_port_program_and_run() {
    let (_dir, places) = scene();
    let run = RunId::new();
    let id = asked(&places, &to(run, "a.test:443"), 9);
    answer(&places, id, 9, 1001).unwrap();
    let approvals = Approvals::open(&places).unwrap();
    for other in [
        to(run, "b.test:443"),
        to(run, "a.test:80"),
        to(run, "a.test:443@/usr/bin/curl"),
        to(RunId::new(), "a.test:443"),
    ] {
        let refused = approvals.take_from(id, &other, "1", 1002).unwrap_err();
        assert!(matches!(refused, ApprovalError::Refused(ApprovalRefusal::OtherSubject)), "{refused}");
        assert_eq!(approvals.take(&other, "1", 1002).unwrap(), None);
    }
    assert_eq!(approvals.take_from(id, &to(run, "a.test:443"), "1", 1002).unwrap().approval.uses_left(), 8);
}

#[test]
fn uses_of_connections_are_exact_while_many_are_taken_and_a_crash_gives_none_back() {
    let (_dir, places) = scene();
    let subject = to(RunId::new(), "a.test:443");
    let id = asked(&places, &subject, 100);
    answer(&places, id, 5, 1001).unwrap();
    let taken: usize = std::thread::scope(|scope| {
        let take = |name: usize| {
            let (places, subject) = (&places, &subject);
            move || Approvals::open(places).unwrap().take_from(id, subject, &name.to_string(), 1002).is_ok()
        };
        let running: Vec<_> = (0..12).map(|name| scope.spawn(take(name))).collect();
        running.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
    });
    assert_eq!(taken, 5);
    // As after a crash: the next process finds what was taken, and none is left.
    let after = Approvals::open(&places).unwrap().inspect(id, 1003).unwrap().approval;
    assert_eq!((after.state, after.uses.len()), (ApprovalState::Used, 5));
}

#[test]
fn a_request_that_was_withdrawn_is_not_answered() {
    let (_dir, places) = scene();
    let subject = to(RunId::new(), "a.test:443");
    let id = asked(&places, &subject, 5);
    Approvals::open(&places).unwrap().answer(id, &ApprovalEvent::Withdraw, 1001).unwrap();
    assert_eq!(answer(&places, id, 1, 1002).unwrap_err().code(), "approval_over");
    // The same destination is asked about again.
    assert_ne!(asked(&places, &subject, 5), id);
}
