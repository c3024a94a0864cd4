//! Gives the errors of detached sandboxes their advice.

use crate::failure::Failure;
use nexus_runner::session::link::TalkError;
use nexus_runner::session::silent::Silent;
use nexus_runner::session::store::StoreError;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let hint = match &error {
            StoreError::Unusable { .. } => "make room there, or set NEXUS_STATE_DIR to another directory".to_owned(),
            StoreError::OpenToOthers { .. } => "chmod 700 it, or set NEXUS_STATE_DIR to another directory".to_owned(),
            StoreError::Ambiguous { .. } => "write more of the id; nexus ps --all shows them".to_owned(),
            StoreError::Unknown { .. } => "nexus ps --all shows those that there are".to_owned(),
            StoreError::NameTaken { name, .. } => format!("take another, or nexus rm {name} first"),
            StoreError::Busy { .. } => {
                "Look for a nexus that is stopped (ps -o pid,stat,args -C nexus: T), continue it with kill -CONT, and try again."
                    .to_owned()
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<TalkError> for Failure {
    fn from(error: TalkError) -> Self {
        let hint = match error {
            TalkError::Store(error) => return error.into(),
            TalkError::Lost { id } => format!("nexus rm {id} clears up"),
            TalkError::Removed { .. } => "nexus ps --all shows those that there are".to_owned(),
            TalkError::Output { .. } => "Look at where the output goes: is the disk full?".to_owned(),
            TalkError::Broken { .. } => "nexus ps --all shows how it is".to_owned(),
            TalkError::Silent(Silent { id, pid, is_stopped: true, .. }) => {
                format!("kill -CONT {pid} lets it go on, and nexus stop {id} ends the sandbox")
            }
            TalkError::Silent(Silent { pid, .. }) => format!(
                "It may be busy with the changes of the run: try it again later. If it never answers, kill -KILL {pid} ends \
                 it with everything inside, and its changes wait: nexus changes list"
            ),
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
