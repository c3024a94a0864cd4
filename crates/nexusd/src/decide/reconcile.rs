//! Decides what to do about the claims of a daemon that died, before any work is asked for.
//!
//! ```text
//!  its commit cannot be finished now ─▶ not asked about here: `daemon::unfinished` tries it again, and reports then
//!  note on the disk ─┬─ with a result   ─▶ Replay: the very same report is sent again; the recovery gives a claim a result whose
//!                    │                     commit it finished
//!                    └─ without one     ─▶ its sandbox is there ─▶ Wait: no work is asked for beside it
//!                                       └─ it is gone, with a receipt ─▶ Ended: the daemon died between the end and its note
//!                                       └─ it is gone, without one ─┬─ fails on loss, or its commit was allowed and did not begin
//!                                                                   │                  ─▶ Lost: reported as failed (lease_lost)
//!                                                                   └─ requeues on loss ─┬─ its commit was announced, and no answer
//!                                                                      allowed it ─▶ NotCommitted: reported, so that it runs again
//!                                                                                        └─ Expires: nothing is reported, and the control
//!                                                                                           plane queues it again
//! ```

use crate::claims::Note;
use nexus_driver::Found;
use nexus_model::RunId;
use nexus_runner::recover::signed::SignedEnd;

/// Action about one claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send the result again.
    Replay(Note),
    /// Report the end that the receipt of its command states.
    Ended(Note, SignedEnd),
    /// Report that the lease was lost.
    Lost(Note),
    /// Report that nothing is committed, though a commit was announced.
    NotCommitted(Note),
    /// Report nothing: at the end of the lease the control plane decides whether the directive runs again.
    Expires(Note),
    /// A sandbox of it is not gone.
    Wait {
        /// The claim of the sandbox.
        note: Note,
        /// Description of what is there, for a person.
        what: String,
    },
}

/// Decides about every claim. `found` is the inventory of the driver after the recovery, and `signed` reads the receipt of a run.
#[must_use]
pub fn reconcile(notes: Vec<Note>, found: &[Found], signed: impl Fn(RunId) -> Option<SignedEnd>) -> Vec<Action> {
    let decide = |note: Note| {
        if note.result.is_some() {
            return Action::Replay(note);
        }
        let there = found.iter().find(|one| note.runs.iter().any(|run| one.is_of(*run)));
        match there {
            Some(one) => Action::Wait { what: one.what.clone(), note },
            None => match note.command.and_then(&signed) {
                // It was killed after the receipt of a commit that no answer allowed.
                Some(end) if end.unsettled && is_announced_in_vain(&note) => Action::NotCommitted(note),
                Some(end) => Action::Ended(note, end),
                // The end is noted when the commit is allowed, and the recovery finished none: nothing is committed, and it runs never again.
                None if is_announced_in_vain(&note) => Action::NotCommitted(note),
                None if note.requeues && note.ended.is_none() => Action::Expires(note),
                None => Action::Lost(note),
            },
        }
    };
    notes.into_iter().map(decide).collect()
}

/// Reports whether the commit was announced and never allowed, and the directive may run again.
fn is_announced_in_vain(note: &Note) -> bool {
    note.requeues && note.is_announced && note.ended.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Runs;
    use nexus_model::ExitReason;
    use nexus_model::directive::Fence;
    use nexus_model::ids::DirectiveId;
    use std::path::PathBuf;

    #[test]
    fn a_result_is_replayed_and_a_cut_off_claim_is_lost_once_it_is_gone() {
        let claim = |runs: Runs, result| Note { result, ..Note::new(DirectiveId::new(), Fence(1), "t", runs) };
        let none = |_| None;
        let result = serde_json::from_str(r#"{"status": "succeeded"}"#).unwrap();
        let runs = Runs::choose(true);
        let notes = vec![claim(runs, Some(result)), claim(runs, None), claim(Runs::choose(false), None)];
        for run in [runs.command, runs.clone.unwrap()] {
            let there = Found { what: "process nx-1 7".to_owned(), run: run.to_string() };
            let actions = reconcile(notes.clone(), std::slice::from_ref(&there), none);
            assert!(matches!(&actions[..], [Action::Replay(_), Action::Wait { .. }, Action::Lost(_)]), "{actions:?}");
        }
        let actions = reconcile(notes, &[], none);
        assert!(matches!(&actions[..], [Action::Replay(_), Action::Lost(_), Action::Lost(_)]), "{actions:?}");
        // A report would end a directive that its user wants to run again.
        let again = Note { requeues: true, ..claim(runs, None) };
        assert!(matches!(&reconcile(vec![again.clone()], &[], none)[..], [Action::Expires(_)]));
        let asked = reconcile(vec![Note { is_announced: true, ..again.clone() }], &[], none);
        assert!(
            matches!(&asked[..], [Action::NotCommitted(_)]),
            "the control plane may wait for its commit: {asked:?}"
        );
        let ended = Some(crate::claims::Ended { exit: 0, reason: ExitReason::Exit });
        let announced = reconcile(vec![Note { is_announced: true, ended, ..again }], &[], none);
        assert!(matches!(&announced[..], [Action::Lost(_)]), "its commit was allowed and did not begin: {announced:?}");
    }

    #[test]
    fn a_claim_whose_command_has_a_receipt_has_ended() {
        let runs = Runs::choose(true);
        let note = Note::new(DirectiveId::new(), Fence(1), "t", runs);
        let path = PathBuf::from("/receipts/x");
        let end = SignedEnd { exit: 3, reason: ExitReason::Exit, unsettled: false, duration_ms: 7, path };
        let of = |signed: RunId| {
            let end = end.clone();
            reconcile(vec![note.clone()], &[], move |run| (run == signed).then(|| end.clone()))
        };
        assert_eq!(of(runs.command), [Action::Ended(note.clone(), end.clone())]);
        assert_eq!(of(runs.clone.unwrap()), [Action::Lost(note.clone())]);
        // No answer allowed its commit, and it may run again.
        let asked = Note { requeues: true, is_announced: true, ..note.clone() };
        for unsettled in [true, false] {
            let end = SignedEnd { unsettled, ..end.clone() };
            let actions = reconcile(vec![asked.clone()], &[], |_| Some(end.clone()));
            assert_eq!(matches!(&actions[..], [Action::NotCommitted(_)]), unsettled, "{actions:?}");
        }
        // What is still there may go on: its receipt is not read yet.
        let there = Found { what: "process nx-1 7".to_owned(), run: runs.command.to_string() };
        let actions = reconcile(vec![note], &[there], |_| Some(end.clone()));
        assert!(matches!(&actions[..], [Action::Wait { .. }]), "{actions:?}");
    }
}
