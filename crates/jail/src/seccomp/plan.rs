//! From the rules of a profile to ranges of call numbers with equal outcome.
//!
//! Pure bookkeeping: who wins when rules overlap is settled here, so that the
//! code generator only writes down a list of checks in order.

use super::outcome::{Outcome, simplified};
use super::profile::{Action, SeccompProfile};
use super::table;

/// Ranges of call numbers. Each begins at its number and reaches to the next;
/// the first begins at 0, the last has no end. Neighbours differ.
pub(super) struct Plan {
    pub ranges: Vec<(u32, usize)>,
    pub outcomes: Vec<Outcome>,
}

pub(super) fn plan(profile: &SeccompProfile) -> Plan {
    let last = table::all().map(|call| call.1).max().unwrap_or(0);
    let default = profile.default_action;
    let unknown = Outcome { checks: Vec::new(), otherwise: answer_to_unknown(default) };
    let mut by_number = vec![unknown; last as usize + 2];
    for (_, number) in table::all() {
        by_number[number as usize].otherwise = default;
    }
    for rule in &profile.rules {
        // A name without a number belongs to another architecture: nothing to do.
        for number in rule.names.iter().filter_map(|name| table::number(name)) {
            by_number[number as usize].checks.push((rule.conditions.clone(), rule.action));
        }
    }
    let mut plan = Plan { ranges: Vec::new(), outcomes: Vec::new() };
    for (number, outcome) in by_number.into_iter().enumerate() {
        let outcome = simplified(settled(outcome));
        let known = plan.outcomes.iter().position(|other| *other == outcome);
        let id = known.unwrap_or_else(|| {
            plan.outcomes.push(outcome);
            plan.outcomes.len() - 1
        });
        if plan.ranges.last().is_none_or(|range| range.1 != id) {
            plan.ranges.push((number as u32, id));
        }
    }
    plan
}

/// Returns the answer to calls younger than the table, which the author of the profile cannot have known. Programs try
/// them and fall back when they get ENOSYS, whereas EPERM looks like a fault (glibc and clone3 on old container
/// engines), so a profile that refuses by errno answers ENOSYS here. Nothing is opened by it.
fn answer_to_unknown(default: Action) -> Action {
    match default {
        Action::Errno(_) => Action::Errno(libc::ENOSYS as u16),
        Action::Allow | Action::Log | Action::KillProcess => default,
    }
}

/// Brings the checks into the order in which the first match is the most
/// severe, and drops what can never be reached.
fn settled(mut outcome: Outcome) -> Outcome {
    // The sort is stable: of two errnos the first in the file stays first.
    outcome.checks.sort_by_key(|check| std::cmp::Reverse(check.1.severity()));
    if let Some(end) = outcome.checks.iter().position(|check| check.0.is_empty()) {
        outcome.otherwise = outcome.checks[end].1;
        outcome.checks.truncate(end);
    }
    outcome
}
