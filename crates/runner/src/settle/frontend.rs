//! The part of settling that the caller of the engine does.

use crate::host::Host;
use crate::notices::Notice;
use crate::request::ChangeMode;
use nexus_layer::{ChangeSet, Layer, Rules, Workspace};
use nexus_model::RunId;
use std::any::Any;
use std::path::Path;

/// The changes about which a person is asked.
pub struct Question<'a> {
    /// The layer that holds them.
    pub layer: &'a Layer,
    /// The directory that they are for.
    pub workspace: &'a Workspace,
    /// The names that are held back.
    pub rules: &'a Rules,
    /// All changes of the layer.
    pub changes: &'a ChangeSet,
    /// The changes are committed next, unless the user or the caller decides otherwise.
    pub will_commit: bool,
}

/// Talks to the user of a run. The command line, a supervisor and a service have one each.
pub trait Frontend {
    /// Returns the variables, the home and the identity of the caller. Nothing keeps them while the sandbox starts: its
    /// first process begins as a copy of this process's memory, and what it wipes is the environment alone.
    fn host(&self) -> Host;
    /// Takes a notice.
    fn tell(&self, notice: &Notice);
    /// Reports whether the caller wants the run to end before it has started.
    fn is_ended(&self) -> bool;
    /// Asks the user what becomes of the changes. Called only for [`ChangeMode::Ask`].
    fn decide(&self, question: &Question<'_>) -> Result<ChangeMode, String>;
    /// Reports whether [`Frontend::inspect`] wants to see the changes.
    fn inspects(&self) -> bool {
        false
    }
    /// Gets the changes of a run that has ended, before anything is decided about them. After an error they are not
    /// committed: they wait. Called only when there are changes and [`Frontend::inspects`] says so.
    fn inspect(&self, _question: &Question<'_>) -> Result<(), String> {
        Ok(())
    }
    /// Called before the changes are settled, which may take as long as the layer is large. The caller may show progress until
    /// the result is dropped, and may end the process meanwhile: the next command parks the changes of a layer on a disk, or removes them when `discards` is set.
    fn watch_end(&self, run: RunId, layer: &Path, discards: bool) -> Option<Box<dyn Any>>;
}
