use super::*;
use crate::decide::OVERRUN_MS;
use crate::store::rows::work::RUNNING;
use crate::store::types::Counters;
use nexus_model::directive::Fence;
use nexus_model::ids::AccountId;

fn work(phase: i64) -> Work {
    Work {
        id: [1; 16],
        account: AccountId::new(),
        facility: [2; 16],
        pin: None,
        class: 1,
        phase,
        version: 1,
        attempt: 1,
        starts: u32::from(phase > LEASED),
        fence: Fence(1),
        holder: Some([3; 16]),
        confirms: true,
        cancel_at: None,
        started_at: None,
        started: None,
        deadline: Some(1_000_000),
        timeout_ms: 1,
        log_limit: 1,
        requeue: false,
        asks: false,
        denied: false,
        counters: [Counters::default(); 2],
    }
}

#[test]
fn time_takes_back_only_what_has_passed() {
    let at = |work: &Work, lease, visible, now| verdict(work, Some(lease), visible, 0, now);
    let leased = work(LEASED);
    assert_eq!(at(&leased, 60_000, Some(8_000), 7_999), None);
    assert_eq!(at(&leased, 60_000, Some(8_000), 8_000), Some(Event::Returned { fence: Fence(1) }));
    assert_eq!(at(&leased, 60_000, None, 8_000), None, "an independent daemon keeps its claim for the whole lease");
    let running = work(RUNNING);
    assert_eq!(at(&running, 60_000, None, 64_999), None);
    assert_eq!(
        at(&running, 60_000, None, 65_000),
        Some(Event::LeaseLost { fence: Fence(1), may_restart: true, commits: true })
    );
    let asked = Work { cancel_at: Some(1_000), ..running.clone() };
    assert_eq!(at(&asked, 200_000, None, 100_000), None, "the daemon still reports");
    assert!(matches!(at(&asked, 60_000, None, 65_000), Some(Event::CancelUnconfirmed { .. })));
    assert!(matches!(at(&running, 2_000_000, None, 1_000_000 + OVERRUN_MS), Some(Event::Overrun { .. })));
    assert_eq!(at(&running, 2_000_000, None, 999_999 + OVERRUN_MS), None);
    // No daemon could report while the control plane was away for longer than all limits of the directive.
    let lost = Some(Event::LeaseLost { fence: Fence(1), may_restart: true, commits: true });
    assert_eq!(at(&running, 60_000, None, 9_000_000), lost);
}
