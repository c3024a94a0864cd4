//! Keeps what is known of files as they were when a run began in the directory of its layer.

use super::Layer;
use crate::bases::{BaseNote, BaseSurvey};
use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::journal;
use crate::meta::EntryType;
use crate::tree::{LayerTree, Role};
use nexus_model::ByteText;
use std::collections::HashSet;

/// The file of a layer's directory with the notes.
const BASES: &str = "bases.json";

impl Layer {
    /// Begins a look at the files that git had when the run began. `None` where git had none.
    pub fn survey_bases(&self, workspace: &Workspace) -> Option<BaseSurvey> {
        let index = self.index_at_start.as_ref()?;
        // Without a survey there is no merge, and the run goes on.
        BaseSurvey::new(index, workspace, self.started).ok()
    }

    /// Takes a look that was made while the command was at work.
    pub fn set_bases(&mut self, survey: BaseSurvey) {
        self.bases = Some(survey);
    }

    /// Notes what the files were that a layer changed, unless the notes are there. Only a layer of this run can know it.
    pub(super) fn write_bases(&self, workspace: &Workspace, tree: &LayerTree) -> Result<(), IoFailure> {
        let changed = |role, kind| role == Role::Entry && kind == EntryType::File;
        let nodes = tree.nodes.iter().filter(|node| changed(node.role, node.meta.kind) && node.group().is_none());
        let paths: HashSet<&[u8]> = nodes.filter(|node| node.covers.is_some()).map(|node| &*node.path.0).collect();
        if paths.is_empty() || self.root.stat(BASES.as_bytes()).doing("look at", BASES.as_bytes())?.is_some() {
            return Ok(());
        }
        let own = if self.bases.is_none() { self.survey_bases(workspace) } else { None };
        let Some(survey) = self.bases.as_ref().or(own.as_ref()) else { return Ok(()) };
        let notes = survey.notes(&paths);
        if notes.is_empty() { Ok(()) } else { journal::write(&self.root, BASES, &notes, &self.faults) }
    }

    /// Returns what a file was when the run began, as far as it was noted. Notes that cannot be read are none.
    pub(crate) fn base_of(&self, path: &ByteText) -> Option<BaseNote> {
        let notes: Vec<BaseNote> = journal::read(&self.root, BASES).ok().flatten()?;
        notes.into_iter().find(|note| note.path == *path)
    }
}
