//! The answers that a territory accepts, and the time for which it asks. The test plays the control plane.

use super::*;
use crate::lease;
use nexus_api::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, EventsRequest, FinishedAnswer, FinishedRequest,
    HeartbeatAnswer, HeartbeatRequest, LogChunkRequest, PollAnswer, PollRequest, StartedAnswer, StartedRequest,
    TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use nexus_model::directive::Fence;
use nexus_model::ids::{DirectiveId, TerritoryId};
use nexus_model::subject::ConnectionSubject;
use nexus_policy::net::{Ingress, MonotonicMs, Policy, PolicyInput, Target, check_name};

/// A control plane that gives one answer to each call about a connection.
struct Plane {
    calls: Mutex<Vec<ConnectionRequest>>,
    answer: Box<PlaneAnswer>,
}

type PlaneAnswer = dyn Fn(&ConnectionRequest) -> Result<ConnectionAnswer, SourceError> + Send + Sync;

fn other<T>() -> Result<T, SourceError> {
    Err(SourceError::NoAnswer { why: "the test asks about connections alone".to_owned() })
}

impl WorkSource for Plane {
    fn poll(&self, _: &PollRequest) -> Result<PollAnswer, SourceError> {
        other()
    }
    fn beat(&self, _: &TerritoryHeartbeatRequest) -> Result<TerritoryHeartbeatAnswer, SourceError> {
        other()
    }
    fn started(&self, _: DirectiveId, _: &str, _: &StartedRequest) -> Result<StartedAnswer, SourceError> {
        other()
    }
    fn heartbeat(&self, _: DirectiveId, _: &str, _: &HeartbeatRequest) -> Result<HeartbeatAnswer, SourceError> {
        other()
    }
    fn log_chunk(&self, _: DirectiveId, _: &str, _: &LogChunkRequest) -> Result<(), SourceError> {
        other()
    }
    fn finished(&self, _: DirectiveId, _: &str, _: &FinishedRequest) -> Result<FinishedAnswer, SourceError> {
        other()
    }
    fn events(&self, _: DirectiveId, _: &str, _: &EventsRequest) -> Result<(), SourceError> {
        other()
    }
    fn connection(
        &self,
        _: DirectiveId,
        _: &str,
        request: &ConnectionRequest,
    ) -> Result<ConnectionAnswer, SourceError> {
        self.calls.lock().unwrap().push(request.clone());
        (self.answer)(request)
    }
    fn artifact(&self, _: DirectiveId, _: &str, _: &ArtifactRequest) -> Result<ArtifactAnswer, SourceError> {
        other()
    }
    fn artifact_chunk(
        &self,
        _: DirectiveId,
        _: &str,
        _: &str,
        _: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, SourceError> {
        other()
    }
    fn stop_polls(&self) {}
}

fn claim() -> Arc<ActiveClaim> {
    let until = lease::boot_time() + Duration::from_secs(60);
    Arc::new(ActiveClaim::new(DirectiveId::new(), Fence(7), "t".to_owned(), 60, until).unwrap())
}

fn asking(
    live: &Arc<ActiveClaim>,
    waits: Duration,
    answer: impl Fn(&ConnectionRequest) -> Result<ConnectionAnswer, SourceError> + Send + Sync + 'static,
) -> (Asking, Arc<Plane>) {
    let plane = Arc::new(Plane { calls: Mutex::default(), answer: Box::new(answer) });
    let source = Arc::clone(&plane) as Arc<dyn WorkSource>;
    (Asking { live: Arc::clone(live), source, spec: Digest::of(b"spec"), quorum: 1, waits }, plane)
}

/// A yes about exactly this connection.
fn yes(live: &ActiveClaim, request: &ConnectionRequest) -> ConnectionAnswer {
    let connection = ConnectionSubject {
        directive_id: live.directive,
        fence: live.fence,
        territory_id: TerritoryId::new(),
        destination: request.destination.clone(),
        program: request.program.clone(),
        spec: Digest::of(b"spec"),
    };
    ConnectionAnswer {
        ok: true,
        directive_id: live.directive,
        approval_id: Some(ApprovalId::new()),
        subject: connection.digest(),
        connection: Some(connection),
        state: ApprovalState::Granted,
        allowed: true,
        approved_by: vec!["k1".to_owned()],
    }
}

fn attempt(target: &str) -> Attempt {
    Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program: None }
}

fn no(state: ApprovalState, live: &ActiveClaim, request: &ConnectionRequest) -> ConnectionAnswer {
    ConnectionAnswer { state, allowed: false, ..yes(live, request) }
}

/// Asks about these destinations at one time, and returns which were allowed.
fn asked(questions: &mut Connections, targets: &[&str]) -> Vec<bool> {
    let approver = questions.start().unwrap();
    let nothing = Policy::build(PolicyInput::default()).unwrap();
    let denial = check_name(&nothing, &attempt("a.test:443"), MonotonicMs::default()).unwrap_err();
    let attempts: Vec<Attempt> = targets.iter().map(|target| attempt(target)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waits: Vec<_> = attempts.iter().map(|attempt| approver.ask(attempt, &denial)).collect();
    waits.into_iter().map(|wait| matches!(runtime.block_on(wait), Answer::Once(_))).collect()
}

#[test]
fn a_territory_takes_an_answer_about_exactly_its_connection_alone() {
    let live = claim();
    let (asking, _) = asking(&live, Duration::from_secs(60), |_| other());
    let place = Place { destination: "a.test:443".to_owned(), program: None };
    let request = ConnectionRequest {
        destination: "a.test:443".to_owned(),
        program: None,
        use_name: "c1".to_owned(),
        wait_seconds: 60,
        gone: false,
    };
    let right = yes(&live, &request);
    assert_eq!(asking.approval_in(&place, &right), right.approval_id);
    let changes: [fn(&mut ConnectionSubject); 5] = [
        |about| about.directive_id = DirectiveId::new(),
        |about| about.fence = Fence(8),
        |about| about.destination = "b.test:443".to_owned(),
        |about| about.program = Some("/bin/sh".to_owned()),
        |about| about.spec = Digest::of(b"other"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut wrong = right.clone();
        let about = wrong.connection.as_mut().unwrap();
        change(about);
        wrong.subject = about.digest();
        assert_eq!(asking.approval_in(&place, &wrong), None, "{number}");
    }
    for wrong in [
        ConnectionAnswer { subject: Some(Digest::of(b"a")), ..right.clone() },
        ConnectionAnswer { subject: None, ..right.clone() },
        ConnectionAnswer { connection: None, ..right.clone() },
        ConnectionAnswer { approval_id: None, ..right.clone() },
        ConnectionAnswer { allowed: false, ..right.clone() },
        ConnectionAnswer { approved_by: Vec::new(), ..right.clone() },
    ] {
        assert_eq!(asking.approval_in(&place, &wrong), None, "{wrong:?}");
    }
    let two = Asking { quorum: 2, ..asking };
    assert_eq!(two.approval_in(&place, &right), None);
    let twice = ConnectionAnswer { approved_by: vec!["k1".to_owned(); 2], ..right.clone() };
    assert_eq!(two.approval_in(&place, &twice), None, "one key is one user");
    let both = ConnectionAnswer { approved_by: vec!["k1".to_owned(), "k2".to_owned()], ..right.clone() };
    assert_eq!(two.approval_in(&place, &both), right.approval_id);
}

#[test]
fn each_connection_has_a_use_of_its_own_and_the_receipt_counts_them() {
    let live = claim();
    let ours = Arc::clone(&live);
    let approval = ApprovalId::new();
    let (asking, plane) = asking(&live, Duration::from_secs(60), move |request| {
        Ok(ConnectionAnswer { approval_id: Some(approval), ..yes(&ours, request) })
    });
    let mut questions = Connections::new(asking);
    assert_eq!(
        asked(&mut questions, &["a.test:443", "a.test:443", "b.test:443", "1.2.3.4:443"]),
        [true, true, true, false]
    );
    let names: BTreeSet<String> = plane.calls.lock().unwrap().iter().map(|call| call.use_name.clone()).collect();
    assert_eq!(names.len(), 3, "an address is not asked about");
    let kept = Box::new(questions).end().unwrap();
    let seen: Vec<_> = kept.iter().map(|one| (one.to.as_str(), one.connections)).collect();
    assert_eq!(seen, [("a.test:443", Some(2)), ("b.test:443", Some(1))]);
    assert!(kept.iter().all(|one| one.by == "key k1" && one.approval == Some(RunId::from_bytes(*approval.as_bytes()))));
}

#[test]
fn what_goes_wrong_is_a_no_and_a_control_plane_that_is_away_is_asked_again() {
    let live = claim();
    for state in [ApprovalState::Denied, ApprovalState::Expired, ApprovalState::Withdrawn, ApprovalState::Granted] {
        let ours = Arc::clone(&live);
        let (asking, plane) = asking(&live, Duration::from_secs(60), move |request| Ok(no(state, &ours, request)));
        let mut questions = Connections::new(asking);
        assert_eq!(asked(&mut questions, &["a.test:443"]), [false], "{state:?}");
        assert_eq!(plane.calls.lock().unwrap().len(), 1);
    }
    let (refuses, _) = asking(&live, Duration::from_secs(60), |_| {
        Err(SourceError::Refused { status: 404, retry_after: None, why: "an older server".to_owned() })
    });
    assert_eq!(asked(&mut Connections::new(refuses), &["a.test:443"]), [false]);
    // Away for a second, and then there.
    let (ours, tries) = (Arc::clone(&live), std::sync::atomic::AtomicU32::new(0));
    let (returns, _) = asking(&live, Duration::from_secs(60), move |request| {
        if tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2 { other() } else { Ok(yes(&ours, request)) }
    });
    assert_eq!(asked(&mut Connections::new(returns), &["a.test:443"]), [true]);
    // Away for as long as the connection waits.
    let clock = Instant::now();
    let (away, plane) = asking(&live, Duration::from_secs(2), |_| other());
    assert_eq!(asked(&mut Connections::new(away), &["a.test:443"]), [false]);
    assert!((2..10).contains(&clock.elapsed().as_secs()), "{:?}", clock.elapsed());
    assert!(plane.calls.lock().unwrap().len() > 2);
}

#[test]
fn a_control_plane_that_does_not_answer_a_call_holds_up_no_connection_and_no_end() {
    let live = claim();
    let (asking, _) = asking(&live, Duration::from_secs(1), |_| {
        std::thread::sleep(Duration::from_secs(20));
        other()
    });
    let mut questions = Connections::new(asking);
    let clock = Instant::now();
    assert_eq!(asked(&mut questions, &["a.test:443", "b.test:443"]), [false, false]);
    assert!(Box::new(questions).end().unwrap().is_empty());
    assert!(clock.elapsed() < Duration::from_secs(10), "{:?}", clock.elapsed());
}

#[test]
fn the_end_of_a_claim_ends_every_wait() {
    for end in [ActiveClaim::lose as fn(&ActiveClaim), |live: &ActiveClaim| live.control.cancel()] {
        let live = claim();
        let ours = Arc::clone(&live);
        let (asking, _) =
            asking(&live, Duration::from_secs(600), move |request| Ok(no(ApprovalState::Pending, &ours, request)));
        let ending = Arc::clone(&live);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            end(&ending);
        });
        let clock = Instant::now();
        let mut questions = Connections::new(asking);
        assert_eq!(asked(&mut questions, &["a.test:443"]), [false]);
        assert!(clock.elapsed() < Duration::from_secs(10), "{:?}", clock.elapsed());
        assert!(Box::new(questions).end().unwrap().is_empty());
    }
}
