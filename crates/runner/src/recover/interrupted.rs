//! Commits that were decided and not finished, and what is said of them.

use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use std::path::{Path, PathBuf};

/// A commit that was decided and not finished, and whose `nexus` is gone.
#[derive(Debug, Clone)]
pub struct Interrupted {
    /// The id of the run.
    pub run: String,
    /// The directory that the commit is for, where that is known.
    pub directory: Option<(PathBuf, DirectoryId)>,
    /// The way in which the commit can end.
    pub ending: Direction,
}

/// The way in which an interrupted commit can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A command finishes the commit or takes it back.
    Open,
    /// A reject or an error has started to take the commit back, so that nothing can finish it.
    Back,
    /// All of the commit was applied, so that nothing can take it back.
    Forward,
}

impl Interrupted {
    /// An interrupted commit of a layer of `places`.
    pub fn new(places: &StateDir, run: String, directory: Option<(PathBuf, DirectoryId)>) -> Self {
        let ending = match () {
            () if nexus_layer::is_being_taken_back(&places.layers, &run) => Direction::Back,
            () if nexus_layer::is_applied(&places.layers, &run) => Direction::Forward,
            () => Direction::Open,
        };
        Self { run, directory, ending }
    }

    /// Describes the interrupted commit and what the user can do.
    pub fn text(&self) -> String {
        let Self { run, directory, ending } = self;
        let place =
            directory.as_ref().map_or("an unknown directory".to_owned(), |(path, _)| path.display().to_string());
        match ending {
            Direction::Back => format!(
                "The commit of the run {run} into {place} was interrupted while it was being taken back. \
                 nexus changes recover --run {run} and nexus changes reject --run {run} both go on with that."
            ),
            Direction::Forward => format!(
                "The commit of the run {run} into {place} was interrupted after all of it was applied. \
                 nexus changes recover --run {run} finishes it; it can no longer be taken back."
            ),
            Direction::Open => format!(
                "The commit of the run {run} into {place} was interrupted. \
                 nexus changes recover --run {run} finishes it, and nexus changes reject --run {run} takes it back."
            ),
        }
    }

    /// Reports whether the commit is for this directory, or for one above or below it.
    pub fn touches(&self, here: &Path, id: DirectoryId) -> bool {
        self.directory.as_ref().is_some_and(|(there, there_id)| *there_id == id || overlap(there, here))
    }
}

/// Reports whether one path lies in the other.
pub fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
