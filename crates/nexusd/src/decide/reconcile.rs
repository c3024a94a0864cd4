//! Decides what to do about the claims of a daemon that died, before any work is asked for.
//!
//! ```text
//!  note on the disk ─┬─ with a result   ─▶ Replay: the very same report is sent again
//!                    └─ without one     ─▶ its sandbox is gone ─▶ Lost: reported as failed (lease_lost), never run again
//!                                       └─ its sandbox is there ─▶ Wait: no work is asked for beside it
//! ```

use crate::claims::Note;
use nexus_driver::Found;

/// Action about one claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send the result again.
    Replay(Note),
    /// Report that the lease was lost.
    Lost(Note),
    /// A sandbox of it is not gone.
    Wait {
        /// The claim of the sandbox.
        note: Note,
        /// Description of what is there, for a person.
        what: String,
    },
}

/// Decides about every claim. `found` is the inventory of the driver after the recovery.
#[must_use]
pub fn reconcile(notes: Vec<Note>, found: &[Found]) -> Vec<Action> {
    let decide = |note: Note| {
        if note.result.is_some() {
            return Action::Replay(note);
        }
        let there = found.iter().find(|one| note.runs.iter().any(|run| one.is_of(*run)));
        match there {
            Some(one) => Action::Wait { what: one.what.clone(), note },
            None => Action::Lost(note),
        }
    };
    notes.into_iter().map(decide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::RunId;
    use nexus_model::directive::Fence;
    use nexus_model::ids::DirectiveId;

    #[test]
    fn a_result_is_replayed_and_a_cut_off_claim_is_lost_once_it_is_gone() {
        let run = RunId::new();
        let claim = |runs: Vec<RunId>, result| Note { runs, result, ..Note::new(DirectiveId::new(), Fence(1), "t") };
        let result = serde_json::from_str(r#"{"status": "succeeded"}"#).unwrap();
        let notes = vec![claim(vec![run], Some(result)), claim(vec![run], None), claim(vec![], None)];
        let there = Found { what: "process nx-1 7".to_owned(), run: run.to_string() };
        let actions = reconcile(notes.clone(), std::slice::from_ref(&there));
        assert!(matches!(&actions[..], [Action::Replay(_), Action::Wait { .. }, Action::Lost(_)]), "{actions:?}");
        let actions = reconcile(notes, &[]);
        assert!(matches!(&actions[..], [Action::Replay(_), Action::Lost(_), Action::Lost(_)]), "{actions:?}");
    }
}
