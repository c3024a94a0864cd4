//! Keeps back the steps that refer to objects of a git directory, once one of its objects was kept back.

use super::Apply;
use crate::beneath::split;
use crate::journal::step::{Origin, Step};
use crate::meta::stat_if_there;
use nexus_git::paths::{git_dir_of_names, git_dir_of_object};
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Notes the git directory of an object that is kept back.
    pub(super) fn note_object(&mut self, step: &Step) {
        let brings = matches!(step, Step::Put(_));
        let git_dir = step.path().filter(|_| brings).and_then(|path| git_dir_of_object(&path.0));
        self.without_objects.extend(git_dir.map(<[u8]>::to_vec));
    }

    /// Reports whether a step that was not carried out yet names objects of a git directory of which one was kept back.
    pub(super) fn misses_objects(&self, step: &Step) -> bool {
        if self.without_objects.is_empty() || !matches!(step, Step::Put(_) | Step::Take { .. }) {
            return false;
        }
        let git_dir = step.path().and_then(|path| git_dir_of_names(&path.0));
        git_dir.is_some_and(|git_dir| self.without_objects.contains(git_dir)) && !(self.again && self.is_done(step))
    }

    /// Reports whether an earlier pass carried out a step. What cannot be looked at was not carried out.
    pub(super) fn is_done(&self, step: &Step) -> bool {
        let Step::Put(put) = step else { return self.is_carried_out(step) };
        let (tree, path) = match &put.from {
            Origin::Layer => (Some(self.upper), put.path.0.clone()),
            Origin::Slot(slot) => (self.slots, slot.to_string().into_bytes()),
        };
        let (Some(tree), Some(new)) = (tree, put.new) else { return false };
        let (parent, name) = split(&path);
        let dir = tree.dir_by_force_if_there(parent);
        let source = dir.and_then(|dir| dir.map_or(Ok(None), |dir| stat_if_there(dir.as_fd(), name)));
        source.is_ok_and(|source| source.is_none_or(|source| source.id != new.id))
    }
}
