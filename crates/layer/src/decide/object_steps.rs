//! Decides which steps of a commit bring objects of git, and which steps need them. Pure.
//!
//! A ref without the objects that it leads to is a damaged repository. The objects come first, therefore, and where one of them is
//! kept back, what names objects in the same git directory is kept back with it:
//!
//! ```text
//!  objects/9f ──▶ kept back (another process made it)     refs, HEAD, logs, index ──▶ kept back
//! ```

use crate::beneath::split;
use crate::databases::companions::{databases_of, is_beside};
use crate::decide::plan::State;
use crate::entries::tree::{LayerTree, Role};
use crate::fold::fold;
use nexus_git::paths::{git_dir_of_names, git_dir_of_object, is_index};
use std::collections::HashSet;

/// The turn in which the step of an entry comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Objects that are committed, and the directories above them.
    Objects,
    /// An index, and the directories above it. Where the refs are still old, it shows the work of the run as staged; the other
    /// way round, the next commit of the user would take that work back.
    Index,
    /// A database and what lies beside it: nothing else comes between the two.
    Database,
    /// Every other entry.
    Rest,
    /// `HEAD`, after the branch that it names.
    Head,
    /// A ref that goes away, after what names its commit in its place.
    OldRef,
}

impl Turn {
    pub(crate) const ALL: [Self; 6] =
        [Self::Objects, Self::Index, Self::Database, Self::Rest, Self::Head, Self::OldRef];
}

/// Returns the order of the files of databases: one database after the other, a directory before what is in it. A log that goes away
/// comes before its database: where that one is still old, rows are missing; the other way round, SQLite applies the log to the new
/// database.
pub(crate) fn order_of_database(path: &[u8], role: Role) -> (&[u8], u8) {
    match databases_of(path).next() {
        Some(database) if role == Role::Entry => (database, 2),
        Some(database) => (database, 0),
        None => (path, 1),
    }
}

/// Returns the turn of each entry of a layer.
pub(crate) fn turns(tree: &LayerTree, states: &[State]) -> Vec<Turn> {
    let mut turns = vec![Turn::OldRef; tree.nodes.len()];
    let commits = |at: &usize| states[*at] == State::Commit;
    let logs = (1..tree.nodes.len()).filter(commits).filter(|at| is_beside(&tree.nodes[*at].path.0));
    let databases: HashSet<&[u8]> = logs.flat_map(|at| databases_of(&tree.nodes[at].path.0)).collect();
    for at in (1..tree.nodes.len()).rev() {
        let node = &tree.nodes[at];
        if states[at] == State::Commit {
            let path = &node.path.0;
            let own = if git_dir_of_object(path).is_some() {
                Turn::Objects
            } else if node.role != Role::Entry && git_dir_of_names(path).is_some() {
                Turn::OldRef
            } else if is_index(path) {
                Turn::Index
            } else if fold(split(path).1).as_ref() == b"head" {
                Turn::Head
            } else if is_beside(path) || databases.contains(&**path) {
                Turn::Database
            } else {
                Turn::Rest
            };
            turns[at] = turns[at].min(own);
        }
        turns[node.parent] = turns[node.parent].min(turns[at]);
    }
    turns
}
