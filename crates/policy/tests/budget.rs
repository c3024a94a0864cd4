#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Budgets: the last unit that fits passes, the next one does not, and nothing wraps round.

use nexus_policy::net::{Budget, Charge, DenyCode, Usage};

#[test]
fn the_last_unit_passes_and_the_next_one_is_refused() {
    let budget = Budget {
        connections: Some(2),
        requests: Some(1),
        bytes_up: Some(10),
        bytes_down: Some(5),
        ..Budget::default()
    };
    let mut spent = Usage::default();
    for charge in
        [Charge::Connection, Charge::Connection, Charge::Request, Charge::Up(4), Charge::Up(6), Charge::Down(5)]
    {
        spent = budget.charge(spent, charge).unwrap();
    }
    for charge in [Charge::Connection, Charge::Request, Charge::Up(1), Charge::Down(1)] {
        let denial = budget.charge(spent, charge).unwrap_err();
        assert_eq!((denial.code, denial.http_status()), (DenyCode::LimitExceeded, 429), "{charge:?}");
    }
    assert_eq!((budget.room_up(spent), budget.room_down(spent)), (0, 0));
    assert_eq!(budget.charge(spent, Charge::Up(0)), Ok(spent));
}

#[test]
fn connections_at_one_time_come_back_and_connections_ever_do_not() {
    let budget = Budget { connections: Some(3), open_connections: Some(1), ..Budget::default() };
    let mut spent = budget.charge(Usage::default(), Charge::Connection).unwrap();
    budget.charge(spent, Charge::Connection).unwrap_err();
    for _ in 0..2 {
        spent = budget.charge(spent, Charge::Closed).unwrap();
        spent = budget.charge(spent, Charge::Connection).unwrap();
    }
    spent = budget.charge(spent, Charge::Closed).unwrap();
    budget.charge(spent, Charge::Connection).unwrap_err();
    // A close without an opening does not make room for more.
    spent = budget.charge(budget.charge(spent, Charge::Closed).unwrap(), Charge::Closed).unwrap();
    assert_eq!(spent.open_connections, 0);
}

#[test]
fn both_directions_share_a_total_and_counters_do_not_wrap() {
    let budget = Budget { bytes_total: Some(10), ..Budget::default() };
    let spent = budget.charge(Usage::default(), Charge::Up(7)).unwrap();
    assert_eq!((budget.room_up(spent), budget.room_down(spent)), (3, 3));
    budget.charge(spent, Charge::Down(4)).unwrap_err();
    assert_eq!(budget.charge(spent, Charge::Down(3)).unwrap().total(), 10);
    let full = Usage { bytes_up: u64::MAX, ..Usage::default() };
    Budget::default().charge(full, Charge::Up(1)).unwrap_err();
}

#[test]
fn of_two_budgets_the_smaller_bounds_hold() {
    let one = Budget { connections: Some(2), requests: Some(9), ..Budget::default() };
    let other = Budget { connections: Some(3), bytes_up: Some(1), ..Budget::default() };
    let both = Budget { connections: Some(2), requests: Some(9), bytes_up: Some(1), ..Budget::default() };
    assert_eq!((one.min(other), other.min(one)), (both, both));
}
