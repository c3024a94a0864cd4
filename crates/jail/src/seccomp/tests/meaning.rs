//! The meaning of a profile, written down a second time and as plainly as can
//! be: go through all rules, keep the most severe one that matches. It shares
//! nothing with the compiler but the types and the table.

use super::interpret::SeccompData;
use crate::seccomp::compile::{ARCHITECTURE, X32_BIT};
use crate::seccomp::{Action, Condition, SeccompProfile, Test, table};

/// Returns the action that the profile names for a call.
pub fn meaning(profile: &SeccompProfile, data: &SeccompData) -> Action {
    if data.architecture != ARCHITECTURE || data.number >= X32_BIT {
        return Action::KillProcess;
    }
    let Some(name) = table::name(data.number) else {
        return match profile.default_action() {
            Action::Errno(_) => Action::Errno(38),
            other => other,
        };
    };
    let mut best: Option<Action> = None;
    for rule in profile.rules() {
        let named = rule.names.iter().any(|other| other == name);
        if named && rule.conditions.iter().all(|condition| holds(*condition, data)) {
            best = match best {
                Some(found) if rank(found) >= rank(rule.action) => Some(found),
                _ => Some(rule.action),
            };
        }
    }
    best.unwrap_or(profile.default_action())
}

fn rank(action: Action) -> u8 {
    match action {
        Action::KillProcess => 4,
        Action::Errno(_) => 3,
        Action::Log => 2,
        Action::Allow => 1,
    }
}

fn holds(condition: Condition, data: &SeccompData) -> bool {
    let argument = data.arguments[usize::from(condition.argument)];
    match condition.test {
        Test::Eq(value) => argument == value,
        Test::Ne(value) => argument != value,
        Test::Lt(value) => argument < value,
        Test::Le(value) => argument <= value,
        Test::Gt(value) => argument > value,
        Test::Ge(value) => argument >= value,
        Test::MaskedEq { mask, value } => argument & mask == value,
    }
}
