use super::*;
use crate::exit::ExitReason;
use proptest::prelude::*;

/// Events without fences: the test adds the present one or an old one.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Approve,
    Reject,
    ApprovalExpired,
    ApprovalVoid,
    PolicyDenied,
    QueueTimeout,
    Claim,
    Returned,
    Started,
    Settling,
    Finished(FinishStatus),
    LeaseLost(bool, bool),
    NotCommitted(bool),
    Overrun,
    Cancel(bool),
    CancelUnconfirmed,
}

fn kinds() -> impl Strategy<Value = Kind> {
    let statuses = [FinishStatus::Succeeded, FinishStatus::Failed, FinishStatus::Canceled, FinishStatus::TimedOut];
    prop_oneof![
        1 => Just(Kind::Approve),
        1 => Just(Kind::Reject),
        1 => Just(Kind::ApprovalExpired),
        1 => Just(Kind::ApprovalVoid),
        1 => Just(Kind::PolicyDenied),
        1 => Just(Kind::QueueTimeout),
        4 => Just(Kind::Claim),
        2 => Just(Kind::Returned),
        4 => Just(Kind::Started),
        1 => Just(Kind::Settling),
        1 => prop::sample::select(statuses.to_vec()).prop_map(Kind::Finished),
        3 => any::<(bool, bool)>().prop_map(|(restarts, commits)| Kind::LeaseLost(restarts, commits)),
        1 => any::<bool>().prop_map(Kind::NotCommitted),
        1 => Just(Kind::Overrun),
        1 => any::<bool>().prop_map(Kind::Cancel),
        1 => Just(Kind::CancelUnconfirmed),
    ]
}

fn event(kind: Kind, fence: Fence, next: Fence) -> Event {
    match kind {
        Kind::Approve => Event::Approve,
        Kind::Reject => Event::Reject,
        Kind::ApprovalExpired => Event::ApprovalExpired,
        Kind::ApprovalVoid => Event::ApprovalVoid,
        Kind::PolicyDenied => Event::PolicyDenied,
        Kind::QueueTimeout => Event::QueueTimeout,
        Kind::Claim => Event::Claim { fence: next },
        Kind::Returned => Event::Returned { fence },
        Kind::Started => Event::Started { fence },
        Kind::Settling => Event::Settling { fence },
        Kind::Finished(status) => Event::Finished { fence, status },
        Kind::LeaseLost(may_restart, commits) => Event::LeaseLost { fence, may_restart, commits },
        Kind::NotCommitted(may_restart) => Event::NotCommitted { fence, may_restart },
        Kind::Overrun => Event::Overrun { fence, next },
        Kind::Cancel(confirms) => Event::Cancel { confirms, next },
        Kind::CancelUnconfirmed => Event::CancelUnconfirmed { fence },
    }
}

fn starts() -> impl Strategy<Value = Directive> {
    let initial =
        prop::sample::select(vec![Initial::Queued, Initial::Queued, Initial::AwaitingApproval, Initial::Forbidden]);
    let loss = prop::sample::select(vec![OnLeaseLoss::Fail, OnLeaseLoss::Requeue]);
    (initial, loss).prop_map(|(initial, loss)| Directive::new(initial, loss))
}

/// Edges of the drawing in the header of the module.
fn is_drawn(from: State, to: State) -> bool {
    use State::{AwaitingApproval, Canceled, Failed, Leased, Queued, Rejected, Running, Succeeded, TimedOut};
    match from {
        AwaitingApproval => matches!(to, Queued | Rejected | Canceled),
        Queued => matches!(to, Leased | Canceled | Failed | Rejected),
        Leased => matches!(to, Running | Queued | Succeeded | Failed | Canceled | TimedOut),
        Running => matches!(to, Queued | Succeeded | Failed | Canceled | TimedOut),
        Succeeded | Failed | Canceled | TimedOut | Rejected => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_events_keep_every_rule_of_a_directive(
        first in starts(),
        events in prop::collection::vec((kinds(), 0_u64..4), 1..60),
    ) {
        let mut now = first;
        for (kind, behind) in events {
            let named = Fence(now.fence.0.saturating_sub(behind));
            let stale = named != now.fence;
            let next = now.fence.next(1).unwrap();
            let event = event(kind, named, next);
            let result = step(&now, &event);
            if now.state.is_terminal() {
                let tells = matches!(kind, Kind::Finished(_) | Kind::NotCommitted(_)) && !stale;
                let is_assumed = matches!(now.reason, Some(EndReason::CommitUnknown | EndReason::Unconfirmed));
                if tells && is_assumed {
                    let expected = match (kind, now.reason) {
                        (Kind::Finished(_), _) => EndReason::Reported,
                        (_, Some(EndReason::Unconfirmed)) => EndReason::CanceledBeforeStart,
                        _ => EndReason::LeaseLost,
                    };
                    prop_assert!(matches!(result, Ok(Step::Changed(after)) if after.reason == Some(expected)));
                } else {
                    prop_assert!(result.is_err(), "a terminal state changed: {now:?} {event:?}");
                }
            }
            if stale && matches!(kind, Kind::Started | Kind::Settling | Kind::Finished(_) | Kind::LeaseLost(..) | Kind::NotCommitted(_) | Kind::Returned) {
                prop_assert!(result.is_err(), "an old fence was accepted: {now:?} {event:?}");
            }
            let Ok(Step::Changed(after)) = result else { continue };
            prop_assert!(after != now);
            let is_told = now.state.is_terminal() && after.state.is_terminal();
            prop_assert!(
                after.state == now.state || is_told || is_drawn(now.state, after.state),
                "{now:?} {event:?} {after:?}"
            );
            // What is over has no later claim: the report that corrects an end is of the only claim that can have one.
            prop_assert!(!now.state.is_terminal() || (after.fence, after.attempt) == (now.fence, now.attempt));
            prop_assert!(after.fence >= now.fence, "a fence went back");
            prop_assert!(after.attempt >= now.attempt && after.starts >= now.starts);
            prop_assert!(after.starts <= MAX_STARTS + 1 && after.starts <= after.attempt);
            if matches!(kind, Kind::Claim) {
                prop_assert!(after.fence > now.fence, "a claim without a new fence");
            }
            prop_assert_eq!(after.reason.is_some(), after.state.is_terminal());
            if after.state == State::Queued {
                let commits = !matches!(kind, Kind::LeaseLost(_, false) | Kind::NotCommitted(_));
                prop_assert!(!(now.settling && commits), "queued again while the changes were committed");
                prop_assert!(!now.cancel_requested, "queued again after a cancel");
            }
            now = after;
        }
    }

    #[test]
    fn the_same_event_twice_changes_nothing_the_second_time(first in starts(), kinds in prop::collection::vec(kinds(), 1..30)) {
        let mut now = first;
        for kind in kinds {
            let event = event(kind, now.fence, now.fence.next(0).unwrap());
            let Ok(Step::Changed(after)) = step(&now, &event) else { continue };
            if !matches!(kind, Kind::Cancel(_)) {
                prop_assert!(!matches!(step(&after, &event), Ok(Step::Changed(_))), "{now:?} {event:?} {after:?}");
            }
            now = after;
        }
    }
}

fn walk(mut now: Directive, events: &[Event]) -> Directive {
    for event in events {
        match step(&now, event).unwrap() {
            Step::Changed(after) => now = after,
            Step::Duplicate => {}
        }
    }
    now
}

fn running(loss: OnLeaseLoss) -> Directive {
    let queued = Directive::new(Initial::Queued, loss);
    walk(queued, &[Event::Claim { fence: Fence(1) }, Event::Started { fence: Fence(1) }])
}

#[test]
fn a_finished_lease_passes_through_running() {
    let leased = walk(Directive::new(Initial::Queued, OnLeaseLoss::Fail), &[Event::Claim { fence: Fence(9) }]);
    let end = walk(leased, &[Event::Finished { fence: Fence(9), status: FinishStatus::Succeeded }]);
    assert_eq!((end.state, end.starts), (State::Succeeded, 1));
}

#[test]
fn a_lost_lease_fails_or_queues_as_the_directive_says() {
    let lost = Event::LeaseLost { fence: Fence(1), may_restart: true, commits: true };
    assert_eq!(walk(running(OnLeaseLoss::Fail), &[lost]).reason, Some(EndReason::CommitUnknown));
    assert_eq!(walk(running(OnLeaseLoss::Requeue), &[lost]).state, State::Queued);
    let settling = walk(running(OnLeaseLoss::Requeue), &[Event::Settling { fence: Fence(1) }]);
    assert_eq!(walk(settling, &[lost]).reason, Some(EndReason::CommitUnknown), "its changes may be committed already");
    let last = Event::LeaseLost { fence: Fence(1), may_restart: false, commits: true };
    let over = walk(running(OnLeaseLoss::Requeue), &[last]);
    assert_eq!((over.state, over.reason), (State::Failed, Some(EndReason::LeaseLost)), "it asks before it commits");
    // Without a commit nothing of it is unknown, and it runs again only where that was asked for.
    for (on_loss, state) in [(OnLeaseLoss::Fail, State::Failed), (OnLeaseLoss::Requeue, State::Queued)] {
        let discarded = Event::LeaseLost { fence: Fence(1), may_restart: true, commits: false };
        let over = walk(running(on_loss), &[discarded]);
        let reason = (state == State::Failed).then_some(EndReason::LeaseLost);
        assert_eq!((over.state, over.reason), (state, reason));
    }
}

#[test]
fn an_end_that_the_server_assumed_gives_way_once_to_the_report_of_its_claim() {
    let canceled = [Event::Cancel { confirms: true, next: Fence(2) }, Event::CancelUnconfirmed { fence: Fence(1) }];
    let lost = Event::LeaseLost { fence: Fence(1), may_restart: true, commits: true };
    let told = |fence| Event::Finished { fence, status: FinishStatus::Succeeded };
    for assumed in [walk(running(OnLeaseLoss::Fail), &[lost]), walk(running(OnLeaseLoss::Fail), &canceled)] {
        assert!(assumed.state.is_terminal() && assumed.is_assumed(), "{assumed:?}");
        let stale = Refusal::StaleFence { given: Fence(2), present: Fence(1) };
        assert_eq!(step(&assumed, &told(Fence(2))), Err(stale));
        for event in [lost, Event::Started { fence: Fence(1) }, Event::Settling { fence: Fence(1) }, canceled[0]] {
            assert_eq!(step(&assumed, &event), Err(Refusal::Over { state: assumed.state }));
        }
        let end = walk(assumed, &[told(Fence(1))]);
        assert_eq!((end.state, end.reason), (State::Succeeded, Some(EndReason::Reported)));
        let again = Event::Finished { fence: Fence(1), status: FinishStatus::Failed };
        assert_eq!(step(&end, &again), Err(Refusal::Over { state: State::Succeeded }));
    }
    // The server knows these.
    let overrun = walk(running(OnLeaseLoss::Fail), &[Event::Overrun { fence: Fence(1), next: Fence(2) }]);
    let never = Event::LeaseLost { fence: Fence(1), may_restart: false, commits: true };
    for known in [overrun, walk(running(OnLeaseLoss::Requeue), &[never])] {
        assert_eq!(step(&known, &told(known.fence)), Err(Refusal::Over { state: known.state }));
    }
}

#[test]
fn a_holder_that_committed_nothing_says_so_and_the_directive_runs_again_while_it_has_no_end() {
    let fence = Fence(1);
    let (told, settling) = (Event::NotCommitted { fence, may_restart: true }, Event::Settling { fence });
    let announced = walk(running(OnLeaseLoss::Requeue), &[settling]);
    let again = walk(announced, &[told]);
    assert_eq!((again.state, again.settling), (State::Queued, false));
    assert_eq!(step(&again, &told), Err(Refusal::WrongState { state: State::Queued }));
    let never = walk(announced, &[Event::NotCommitted { fence, may_restart: false }]);
    assert_eq!((never.state, never.reason), (State::Failed, Some(EndReason::LeaseLost)));
    assert_eq!(walk(running(OnLeaseLoss::Fail), &[told]).reason, Some(EndReason::LeaseLost));
    // A user may have read this end and run the work again.
    let unknown = walk(announced, &[Event::LeaseLost { fence, may_restart: true, commits: true }]);
    assert_eq!(unknown.reason, Some(EndReason::CommitUnknown));
    let known = walk(unknown, &[told]);
    assert_eq!((known.state, known.reason), (State::Failed, Some(EndReason::LeaseLost)));
    assert_eq!(step(&known, &told), Err(Refusal::Over { state: State::Failed }));
    let canceled = walk(announced, &[Event::Cancel { confirms: true, next: Fence(2) }]);
    for canceled in [canceled, walk(canceled, &[Event::CancelUnconfirmed { fence }])] {
        let end = walk(canceled, &[told]);
        assert_eq!((end.state, end.reason), (State::Canceled, Some(EndReason::CanceledBeforeStart)));
    }
}

#[test]
fn a_policy_ends_a_directive_that_no_territory_holds() {
    for initial in [Initial::Queued, Initial::AwaitingApproval] {
        let end = walk(Directive::new(initial, OnLeaseLoss::Fail), &[Event::PolicyDenied]);
        assert_eq!((end.state, end.reason), (State::Rejected, Some(EndReason::PolicyDenied)));
    }
    let held = running(OnLeaseLoss::Fail);
    assert_eq!(step(&held, &Event::PolicyDenied), Err(Refusal::WrongState { state: State::Running }));
}

#[test]
fn a_directive_that_kills_each_daemon_ends() {
    let mut now = Directive::new(Initial::Queued, OnLeaseLoss::Requeue);
    for number in 1..=3 {
        let fence = Fence(number);
        assert_eq!(now.state, State::Queued);
        now = walk(
            now,
            &[
                Event::Claim { fence },
                Event::Started { fence },
                Event::LeaseLost { fence, may_restart: true, commits: true },
            ],
        );
    }
    assert_eq!((now.state, now.reason), (State::Failed, Some(EndReason::LeaseLost)));
}

#[test]
fn a_cancel_ends_a_waiting_directive_and_marks_a_running_one() {
    let cancel = |fence| Event::Cancel { confirms: true, next: Fence(fence) };
    let queued = Directive::new(Initial::Queued, OnLeaseLoss::Fail);
    assert_eq!(walk(queued, &[cancel(1)]).state, State::Canceled);
    let leased = walk(queued, &[Event::Claim { fence: Fence(1) }]);
    let ended = walk(leased, &[cancel(2)]);
    assert_eq!((ended.state, ended.fence), (State::Canceled, Fence(2)), "a later start of the claim is stale");
    let foreign = walk(leased, &[Event::Cancel { confirms: false, next: Fence(2) }]);
    assert!(foreign.state == State::Leased && foreign.cancel_requested);
    let marked = walk(running(OnLeaseLoss::Fail), &[cancel(2)]);
    assert!(marked.state == State::Running && marked.cancel_requested && marked.fence == Fence(1));
    let silent = walk(marked, &[Event::CancelUnconfirmed { fence: Fence(1) }]);
    assert_eq!((silent.state, silent.reason), (State::Canceled, Some(EndReason::Unconfirmed)));
}

#[test]
fn a_report_after_a_cancel_is_stored_as_reported() {
    let marked = walk(running(OnLeaseLoss::Fail), &[Event::Cancel { confirms: true, next: Fence(2) }]);
    let end = walk(marked, &[Event::Finished { fence: Fence(1), status: FinishStatus::Succeeded }]);
    assert_eq!(end.state, State::Succeeded);
}

#[test]
fn a_fence_of_a_restored_store_is_above_every_old_one() {
    assert_eq!(Fence(7).next(0), Some(Fence(8)));
    assert_eq!(Fence(7).next(3), Some(Fence(3 << 32)));
    assert_eq!(Fence((3 << 32) + 5).next(3), Some(Fence((3 << 32) + 6)));
    assert_eq!(Fence(0).next(1 << 21), None, "a reader of floating point numbers would read another number");
    assert_eq!(Fence((1 << 53) - 1).next(0), None);
}

#[test]
fn every_state_reads_back_in_text_and_in_json() {
    for state in State::ALL {
        assert_eq!(state.name().parse(), Ok(*state));
        assert_eq!(serde_json::to_string(state).unwrap(), format!("{:?}", state.name()));
    }
    assert!("ended".parse::<State>().is_err());
}

#[test]
fn an_exit_reason_has_its_status() {
    assert_eq!(FinishStatus::from(ExitReason::Timeout), FinishStatus::TimedOut);
    assert_eq!(FinishStatus::from(ExitReason::Canceled), FinishStatus::Canceled);
    assert_eq!(FinishStatus::from(ExitReason::Oom), FinishStatus::Failed);
}
