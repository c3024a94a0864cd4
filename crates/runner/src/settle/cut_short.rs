//! Runs that were cut short: they have half of what they wanted to write, and a person has to look at it.

use crate::request::ChangeMode;
use nexus_model::ExitReason;

/// Returns what becomes of the changes of a run that ended for this reason. `by_nexus` reports that nexus itself cut
/// it short.
pub fn wanted(asked: ChangeMode, by_nexus: bool, reason: ExitReason) -> ChangeMode {
    let is_cut_short =
        by_nexus || matches!(reason, ExitReason::Oom | ExitReason::GuestLost | ExitReason::ProtectionLost);
    if is_cut_short { ChangeMode::Review } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_changes_are_not_committed_unseen() {
        for asked in [ChangeMode::Commit, ChangeMode::Ask, ChangeMode::Review] {
            for reason in [ExitReason::Oom, ExitReason::GuestLost, ExitReason::ProtectionLost] {
                assert_eq!(wanted(asked, false, reason), ChangeMode::Review, "{reason:?}");
            }
            assert_eq!(wanted(asked, true, ExitReason::Exit), ChangeMode::Review);
            assert_eq!(wanted(asked, false, ExitReason::Exit), asked);
        }
    }
}
