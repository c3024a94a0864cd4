//! The claims that this daemon works on.

use crate::lease;
use crate::run::control::Control;
pub use nexus_api::conduits::REPORTING;
use nexus_api::conduits::{DirectiveBeat, Progress, SETTLING};
use nexus_model::RunId;
use nexus_model::directive::Fence;
use nexus_model::ids::DirectiveId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One claim, shared by its worker, its sender and the heartbeats.
#[derive(Debug)]
pub struct ActiveClaim {
    /// Directive of the claim.
    pub directive: DirectiveId,
    /// Number of the claim.
    pub fence: Fence,
    /// Seconds that a renewal gives.
    pub ttl_seconds: u32,
    /// Ends the command.
    pub control: Control,
    /// Number of the last chunk that was sent, over both streams; -1 before the first.
    pub last_seq: AtomicI64,
    /// The control plane asked for the end.
    pub is_canceled: AtomicBool,
    /// The claim is over for this daemon: nothing of it may be committed or reported.
    pub is_lost: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    token: String,
    until: Duration,
    run: Option<RunId>,
    phase: &'static str,
    has_started: bool,
    /// The lease was over while a command could still run: the launcher has killed what lived then, whatever a later answer renews.
    has_lapsed: bool,
    /// The lease allowed the commit of the changes: from here on its end takes nothing back.
    is_committed: bool,
    /// No answer allowed the commit of a directive that may run again: what it did is not its end.
    is_unanswered: bool,
    /// The control plane may have heard of a commit, which then has to happen, or be taken back by a report.
    may_be_announced: bool,
    /// The directive never runs again: the end of this claim is its end, also when it is reported late.
    is_last: bool,
}

impl ActiveClaim {
    /// Makes a claim whose lease ends at `until`, by CLOCK_BOOTTIME.
    pub fn new(
        directive: DirectiveId,
        fence: Fence,
        token: String,
        ttl_seconds: u32,
        until: Duration,
    ) -> std::io::Result<Self> {
        Ok(Self {
            directive,
            fence,
            ttl_seconds,
            control: Control::new()?,
            last_seq: AtomicI64::new(-1),
            is_canceled: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            state: Mutex::new(State {
                token,
                until,
                run: None,
                phase: "claimed",
                has_started: false,
                has_lapsed: false,
                is_committed: false,
                is_unanswered: false,
                may_be_announced: false,
                is_last: false,
            }),
        })
    }

    /// Returns the name of the claim, as files of it have it.
    #[must_use]
    pub fn claim(&self) -> String {
        format!("{}-{}", self.directive, self.fence)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token for calls about the directive.
    pub fn token(&self) -> String {
        self.state().token.clone()
    }

    /// Returns the end of the lease.
    pub fn until(&self) -> Duration {
        self.state().until
    }

    /// Returns the rest of the lease.
    pub fn left(&self) -> Duration {
        self.until().saturating_sub(lease::boot_time())
    }

    /// Renews the lease by a request that left at `sent`. Returns the run whose sandbox has to know it.
    pub fn renew(&self, sent: Duration, token: Option<String>) -> (Option<RunId>, Duration) {
        let mut state = self.state();
        state.note_lapse();
        state.until = state.until.max(lease::end(sent, self.ttl_seconds));
        if let Some(token) = token {
            state.token = token;
        }
        (state.run, state.until)
    }

    /// Notes whether the lease is over now, and reports whether it was at some time while a command could still run. A later renewal changes nothing of that.
    pub fn check_lapse(&self) -> bool {
        let mut state = self.state();
        state.note_lapse();
        state.has_lapsed
    }

    /// Reports whether the lease is over now, and work that needs it is not done.
    pub fn is_over(&self) -> bool {
        self.state().is_over()
    }

    /// Notes that the lease allowed the commit.
    pub fn allow_commit(&self) {
        self.state().is_committed = true;
    }

    /// Notes that the commit was asked for until the end of the lease, and no answer came.
    pub fn note_unanswered(&self) {
        self.state().is_unanswered = true;
    }

    /// Reports whether the commit was refused because no answer came.
    pub fn was_unanswered(&self) -> bool {
        self.state().is_unanswered
    }

    /// Notes that a call which announces the commit may have arrived.
    pub fn note_announced(&self) {
        self.state().may_be_announced = true;
    }

    /// Reports whether the control plane may wait for the end of a commit that does not happen.
    pub fn announced_in_vain(&self) -> bool {
        let state = self.state();
        state.may_be_announced && !state.is_committed
    }

    /// Notes that the directive has no later claim once this one has started.
    pub fn mark_last(&self) {
        self.state().is_last = true;
    }

    /// Reports whether the control plane takes the end and the output of this claim also after its lease.
    pub fn accepts_late_report(&self) -> bool {
        let state = self.state();
        state.is_last || state.is_committed || state.phase == REPORTING
    }

    /// Reports whether the lease allowed the commit.
    pub fn commits_changes(&self) -> bool {
        self.state().is_committed
    }

    /// Names the run that is about to start. Returns the end of its lease.
    pub fn begin(&self, run: RunId) -> Duration {
        let mut state = self.state();
        state.run = Some(run);
        state.until
    }

    /// Notes that the start was acknowledged: from here on heartbeats speak of it.
    pub fn note_started(&self) {
        self.state().has_started = true;
    }

    /// Names what the worker does.
    pub fn enter(&self, phase: &'static str) {
        self.state().phase = phase;
    }

    /// Reports whether only its report is still to be acknowledged.
    pub fn is_reporting(&self) -> bool {
        self.state().phase == REPORTING
    }

    /// Gives the claim up: its command is killed, and nothing more is reported.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        self.control.kill();
    }

    /// Reports whether the claim is over for this daemon.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Returns the heartbeat of the claim; `None` before its start.
    fn beat(&self) -> Option<DirectiveBeat> {
        let state = self.state();
        state.has_started.then(|| DirectiveBeat {
            directive_id: self.directive,
            fence: self.fence,
            last_output_seq: Some(self.last_seq.load(Ordering::SeqCst)).filter(|seq| *seq >= 0),
            progress: Some(Progress { phase: Some(state.phase.to_owned()), ..Progress::default() }),
        })
    }

    /// Returns what the heartbeat says that comes before a commit.
    pub fn settling() -> Progress {
        Progress { phase: Some(SETTLING.to_owned()), ..Progress::default() }
    }
}

impl State {
    /// Looks whether the lease is over. The report of an end needs no lease.
    fn is_over(&self) -> bool {
        self.until <= lease::boot_time() && self.phase != REPORTING && !self.is_committed
    }

    /// Remembers that the lease is over.
    fn note_lapse(&mut self) {
        self.has_lapsed |= self.is_over();
    }
}

/// All claims of this daemon.
#[derive(Debug, Default)]
pub struct Table {
    claims: Mutex<BTreeMap<DirectiveId, Arc<ActiveClaim>>>,
    changed: Condvar,
}

impl Table {
    fn claims(&self) -> MutexGuard<'_, BTreeMap<DirectiveId, Arc<ActiveClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a claim. `false` when the daemon works on an earlier claim of the directive, which has to end first.
    pub fn insert(&self, live: &Arc<ActiveClaim>) -> bool {
        let mut claims = self.claims();
        if claims.contains_key(&live.directive) {
            return false;
        }
        claims.insert(live.directive, Arc::clone(live));
        true
    }

    /// Removes a claim.
    pub fn remove(&self, directive: DirectiveId) {
        self.claims().remove(&directive);
        self.changed.notify_all();
    }

    /// Returns a claim.
    pub fn get(&self, directive: DirectiveId) -> Option<Arc<ActiveClaim>> {
        self.claims().get(&directive).cloned()
    }

    /// Returns all claims.
    pub fn all(&self) -> Vec<Arc<ActiveClaim>> {
        self.claims().values().cloned().collect()
    }

    /// Returns the number of claims.
    pub fn len(&self) -> usize {
        self.claims().len()
    }

    /// Returns the heartbeats of all claims that were started.
    pub fn beats(&self) -> Vec<DirectiveBeat> {
        self.claims().values().filter_map(|live| live.beat()).collect()
    }

    /// Waits until there are fewer than `most` claims, at most for that long. Returns whether there are.
    pub fn wait_below(&self, most: usize, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut claims = self.claims();
        while claims.len() >= most {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            claims = self.changed.wait_timeout(claims, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Wakes what waits for room.
    pub fn wake(&self) {
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim whose lease ends so long from now.
    fn claim(rest: Duration) -> (ActiveClaim, Duration) {
        let now = lease::boot_time();
        (ActiveClaim::new(DirectiveId::new(), Fence(1), "a".into(), 60, now + rest).unwrap(), now)
    }

    #[test]
    fn a_lease_that_was_over_stays_known_when_it_is_renewed() {
        let (live, now) = claim(Duration::ZERO);
        assert!(live.is_over());
        live.renew(now, Some("b".into()));
        assert!(live.check_lapse() && !live.is_over());
        live.enter(REPORTING);
        assert!(live.check_lapse(), "it stays so");
        // What was committed or has ended in time is reported, however long the control plane is away.
        for is_committed in [true, false] {
            let (live, now) = claim(Duration::from_millis(20));
            if is_committed {
                live.allow_commit();
            } else {
                live.enter(REPORTING);
            }
            while !live.left().is_zero() {
                std::thread::yield_now();
            }
            assert!(!live.check_lapse() && !live.is_over());
            assert!(live.renew(now, None).1 > now + Duration::from_secs(50));
        }
    }

    #[test]
    fn a_renewal_never_shortens_a_lease_and_a_second_claim_waits() {
        let (live, now) = claim(Duration::from_secs(100));
        let (live, run) = (Arc::new(live), RunId::new());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(live.begin(run), after(100));
        assert_eq!(live.renew(after(10), None), (Some(run), after(100)));
        assert_eq!(live.renew(after(90), Some("b".into())).1, after(145));
        assert_eq!(live.token(), "b");
        let table = Table::default();
        assert!(table.insert(&live) && !table.insert(&live));
        assert!(table.beats().is_empty(), "before its start the claim has no heartbeat");
        live.note_started();
        assert_eq!(table.beats().len(), 1);
        assert!(!table.wait_below(1, Duration::ZERO));
        table.remove(live.directive);
        assert!(table.wait_below(1, Duration::ZERO));
    }
}
