//! Runs that were cut short: they have half of what they wanted to write, and a person has to look at it.

use crate::args::Changes;
use nexus_model::ExitReason;

/// Returns what becomes of the changes of a run that ended for this reason. `by_nexus` reports that nexus itself cut
/// it short.
pub fn wish(asked: Changes, by_nexus: bool, reason: ExitReason) -> Changes {
    let is_cut_short =
        by_nexus || matches!(reason, ExitReason::Oom | ExitReason::GuestLost | ExitReason::ProtectionLost);
    if is_cut_short { Changes::Review } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_changes_are_not_committed_unseen() {
        for asked in [Changes::Commit, Changes::Ask, Changes::Review] {
            for reason in [ExitReason::Oom, ExitReason::GuestLost, ExitReason::ProtectionLost] {
                assert_eq!(wish(asked, false, reason), Changes::Review, "{reason:?}");
            }
            assert_eq!(wish(asked, true, ExitReason::Exit), Changes::Review);
            assert_eq!(wish(asked, false, ExitReason::Exit), asked);
        }
    }
}
