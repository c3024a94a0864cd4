//! Stores the merge bases of workspace files, as of the start of a run, in the directory of the layer.

use super::Layer;
use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::entries::tree::{LayerTree, Role};
use crate::git::bases::{BaseNote, BaseSurvey};
use crate::journal::file;
use crate::meta::{EntryType, FsTime, Meta};
use nexus_model::ByteText;
use std::collections::HashSet;

/// The file of a layer's directory with the notes.
const BASES: &str = "bases.json";

/// Reports whether the run may have read what another process wrote to a file after the start: its own version is younger. What
/// git had is then no base, or an edit that its author took back would come again. Pure.
fn may_have_read(started: FsTime, version: &Meta, now: &Meta) -> bool {
    now.ctime > started && version.id.born.is_none_or(|born| born >= now.ctime)
}

impl Layer {
    /// Begins a look at the files that git had when the run began. `None` where git had none.
    pub fn survey_bases(&self, workspace: &Workspace) -> Option<BaseSurvey> {
        let index = self.index_at_start.as_ref()?;
        // Without a survey there is no merge, and the run goes on.
        BaseSurvey::new(index, workspace, self.started).ok()
    }

    /// Stores the results of a survey that was made while the command ran.
    pub fn set_bases(&mut self, survey: BaseSurvey) {
        self.bases = Some(survey);
    }

    /// Notes what the files were that a layer changed, unless the notes are there. Only a layer of this run can know it.
    pub(super) fn write_bases(&self, workspace: &Workspace, tree: &LayerTree) -> Result<(), IoFailure> {
        let changed = |role, kind| role == Role::Entry && kind == EntryType::File;
        let nodes = tree.nodes.iter().filter(|node| changed(node.role, node.meta.kind) && node.group().is_none());
        let covered = nodes.filter_map(|node| Some((node, node.covers.as_deref()?)));
        let known = covered.filter(|(node, found)| !may_have_read(self.started, &node.meta, &found.meta));
        let paths: HashSet<&[u8]> = known.map(|(_, found)| &*found.at.0).collect();
        if paths.is_empty() || self.root.stat(BASES.as_bytes()).doing("look at", BASES.as_bytes())?.is_some() {
            return Ok(());
        }
        let own = if self.bases.is_none() { self.survey_bases(workspace) } else { None };
        let Some(survey) = self.bases.as_ref().or(own.as_ref()) else { return Ok(()) };
        let notes = survey.notes(&paths);
        if notes.is_empty() { Ok(()) } else { file::write(&self.root, BASES, &notes, &self.faults) }
    }

    /// Returns what a file was when the run began, as far as it was noted. Notes that cannot be read are none.
    pub(crate) fn base_of(&self, path: &ByteText) -> Option<BaseNote> {
        let notes: Vec<BaseNote> = file::read(&self.root, BASES).ok().flatten()?;
        notes.into_iter().find(|note| note.path == *path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::FileId;

    #[test]
    fn a_version_that_is_younger_than_an_edit_may_hold_it() {
        let time = |sec| FsTime { sec, nsec: 0 };
        let meta = |ctime, born: Option<i64>| Meta {
            kind: EntryType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: time(1),
            ctime: time(ctime),
            links: 1,
            id: FileId { ino: 7, born: born.map(time) },
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        };
        for (edit, version, wanted) in [
            (9, Some(12), false),
            (11, Some(12), true),
            (12, Some(12), true),
            (13, Some(12), false),
            (9, None, false),
            (13, None, true),
        ] {
            let found = may_have_read(time(10), &meta(20, version), &meta(edit, None));
            assert_eq!(found, wanted, "{edit} {version:?}");
        }
    }
}
