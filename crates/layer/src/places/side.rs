//! The side name of an entry while an exchange is made of three renames.

use crate::beneath::Workspace;
use crate::journal::step::Origin;
use crate::moves::rename_calls::Spot;
use std::os::fd::BorrowedFd;

/// The place of an entry while an exchange is made of three renames. It lies in the layer's directory or in the staging
/// directory, where neither the run nor the user has a name.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    dir: BorrowedFd<'a>,
    name: Vec<u8>,
}

/// The first part of the name of a [`Side`].
pub(crate) const SIDE: &str = "side-";

impl<'a> Side<'a> {
    /// Returns the place for the step number `at`, which brings its entry from `from`.
    pub(crate) fn of(from: &Origin, at: usize, root: &'a Workspace, slots: Option<&'a Workspace>) -> Option<Self> {
        let (tree, number) = match from {
            Origin::Layer => (root, at),
            Origin::Slot(slot) => (slots?, *slot),
        };
        Some(Self { dir: tree.fd(), name: format!("{SIDE}{number}").into_bytes() })
    }

    /// Returns a further place for the same step.
    pub(crate) fn second(mut self) -> Self {
        self.name.extend_from_slice(b"-2");
        self
    }

    pub(crate) fn spot(&self) -> Spot<'_> {
        Spot { dir: self.dir, name: &self.name }
    }
}
