//! Reads the policy documents that hold for a sandbox that runs.
//!
//! ```text
//!  the record: path, device and inode of the workspace, "had a document" ─▶ the directory at the path is opened
//!     ├─ none, or another one ──────────────────────▶ refused
//!     ├─ the same, its document is gone ────────────▶ refused
//!     └─ the same ─▶ its document as it is now, with those of the machine and the user
//! ```
//!
//! The sandbox may be asked from anywhere, and goes on in its directory when that moves. Another directory at the path,
//! or none, would take the document away from it.

use crate::failure::Failure;
use crate::profiles::caller;
use nexus_policy::document::PolicySet;
use nexus_profiles::policies::{HeldWorkspace, WORKSPACE_NAME, has_workspace_document, load_held};
use nexus_runner::session::store::SessionInfo;

/// The code of a sandbox whose workspace, or the document in it, is not where it was.
const CODE: &str = "workspace_moved";

/// Returns the documents for a command of `nexus exec` in the sandbox.
pub fn that_hold_for(about: &SessionInfo) -> Result<PolicySet, Failure> {
    let (id, path) = (&about.id, about.workspace.as_path());
    let moved = |why: String| {
        let hint = "Move it back, or start another sandbox with nexus run --detach.";
        Failure::refused(CODE, format!("{why}, and its policy document holds for this command"), hint)
    };
    let held = HeldWorkspace::open(path).map_err(|error| {
        moved(format!("The workspace of the sandbox {id} is not found at {} any more ({error})", path.display()))
    })?;
    // A sandbox of a version that did not record it is known by the path alone.
    let Some(start) = about.workspace_at_start else { return Ok(load_held(&caller(), &held)?) };
    if held.id != start.id {
        return Err(moved(format!(
            "{} is another directory than the one that the sandbox {id} works on",
            path.display()
        )));
    }
    let documents = load_held(&caller(), &held)?;
    if start.has_document && !has_workspace_document(&documents) {
        let message = format!(
            "The sandbox {id} was started under the policy document {}, and that is gone",
            path.join(WORKSPACE_NAME).display()
        );
        let hint = "Put it back, or start another sandbox with nexus run --detach.";
        return Err(Failure::refused(CODE, message, hint));
    }
    Ok(documents)
}
