//! Databases of SQLite with the log beside them.
//!
//! `NAME-wal` and `NAME-journal` hold pages of `NAME` (<https://www.sqlite.org/fileformat.html>, 3 and 4). SQLite applies
//! them to whatever database lies beside them, so that a new `NAME` beside an old log is damaged at the next open.
//!
//! | the log in the workspace | the layer has | |
//! |---|---|---|
//! | changed since the start | `NAME` | conflict at the log |
//! | as at the start, or none, and `NAME` changed since | the log | conflict at `NAME` |
//! | as at the start, or none | `NAME` and the log | both come, or none |
//! | as at the start, or none | `NAME` or the log alone | comes: the run saw the other one as it is |
//!
//! Files that only have such names, and none of whose versions begins like one of SQLite ([`crate::databases::sqlite_files`]), come alone.
//!
//! Of a layer of which only a part was saved, it is not known whether the other one was changed or deleted: no log comes, and
//! no file that has one in the workspace or in the layer.

use crate::beneath::{Doing as _, IoFailure, is_gone, is_other_mount, split};
use crate::databases::companions::{LOGS, is_log, may_be_database};
use crate::databases::sqlite_files::is_database;
use crate::entries::tree::{Found, LayerTree, Node, Role, SharedPath, Verdict};
use crate::entries::verdict::{IN_HALVES, is_nothing};
use crate::git::halves;
use crate::meta::{EntryType, Meta, stat_if_there};
use crate::read::walk::{LastDir, Walk};
use nexus_model::ByteText;
use std::collections::HashMap;

/// Says why a database waits of which only a part may have been saved.
const OF_PART: &str = "only a part of the run's changes was saved, perhaps without what became of the file -wal or -journal beside this database";
/// Says why a log waits whose database may not have been saved.
const LOG_OF_PART: &str =
    "only a part of the run's changes was saved, perhaps without the database that this file belongs to";

/// Notes in [`LayerTree::locks`] the logs that another process wrote, and parks what a commit would bring of a database
/// without its log.
pub(crate) fn hold_back(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut dirs = LastDir::new(walk.base);
    let mut found = Vec::new();
    let trees = [walk.base, walk.upper];
    for (at, node) in tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| covers_file(node)) {
        for end in LOGS {
            let log = [&*node.path.0, end].concat();
            if is_fresh(tree, &mut dirs, &log)? && is_database(&trees, &node.path.0) {
                found.push((at, ByteText(log)));
            }
        }
    }
    // The other way round: a log of the run beside a database that another process wrote.
    for (at, node) in tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| is_log_of_run(tree, node)) {
        for database in LOGS.iter().filter_map(|end| node.path.0.strip_suffix(*end)) {
            if is_fresh(tree, &mut dirs, database)? && is_database(&trees, database) {
                found.push((at, ByteText(database.to_vec())));
            }
        }
    }
    tree.locks.extend(found);
    if walk.is_part {
        hold_part(tree, &mut dirs)?;
    }
    for at in halves(walk, tree) {
        let verdict = &mut tree.nodes[at].rare.verdict;
        if !matches!(verdict, Some(Verdict::Park(_))) {
            *verdict = Some(Verdict::Park(IN_HALVES.to_owned()));
        }
    }
    Ok(())
}

/// Lets no accept bring a log, or a file that has one, from a part of a layer.
fn hold_part(tree: &mut LayerTree, dirs: &mut LastDir<'_>) -> Result<(), IoFailure> {
    let is_file = |node: &Node| node.role == Role::Entry && node.meta.kind == EntryType::File && !node.rare.unseen;
    let files: Vec<usize> = (1..tree.nodes.len()).filter(|at| is_file(&tree.nodes[*at])).collect();
    let mut found = Vec::new();
    for at in &files {
        let path = &tree.nodes[*at].path.0;
        if is_log(path) {
            found.push((*at, LOG_OF_PART));
            continue;
        }
        for end in LOGS {
            if file_of_workspace(dirs, &[path, end].concat())?.is_some() {
                found.push((*at, OF_PART));
            }
        }
    }
    let by_path: HashMap<&[u8], usize> = files.iter().map(|at| (&*tree.nodes[*at].path.0, *at)).collect();
    for path in files.iter().map(|at| &*tree.nodes[*at].path.0) {
        let bases = LOGS.iter().filter_map(|end| path.strip_suffix(*end));
        found.extend(bases.filter_map(|base| by_path.get(base)).map(|at| (*at, OF_PART)));
    }
    for (at, why) in found {
        tree.nodes[at].rare.never.get_or_insert(why);
    }
    Ok(())
}

fn is_log_of_run(tree: &LayerTree, node: &Node) -> bool {
    is_log(&node.path.0) && node.role == Role::Entry && node.meta.kind == EntryType::File && !is_nothing(tree, node)
}

/// Reports whether an entry takes the place of a file that may be a database, or is one.
fn covers_file(node: &Node) -> bool {
    let fits = |size| may_be_database(size) || may_be_database(node.meta.size);
    let covers = node.covers.as_ref().is_some_and(|found| found.meta.kind == EntryType::File && fits(found.meta.size));
    covers && !LOGS.iter().any(|end| node.path.0.ends_with(end))
}

/// Reports whether a log or a database in the workspace has content and changed since the layer was made.
fn is_fresh(tree: &LayerTree, dirs: &mut LastDir<'_>, log: &[u8]) -> Result<bool, IoFailure> {
    let meta = file_of_workspace(dirs, log)?.filter(|meta| meta.size > 0);
    let log = |meta| Found { at: SharedPath::from(log.to_vec()), meta };
    Ok(meta.is_some_and(|meta| tree.is_fresh(&log(meta))))
}

/// Returns the attributes of a file of the workspace, if there is one.
fn file_of_workspace(dirs: &mut LastDir<'_>, path: &[u8]) -> Result<Option<Meta>, IoFailure> {
    let (parent, name) = split(path);
    let meta = match dirs.get(parent) {
        Ok(dir) => match stat_if_there(dir, name) {
            // No log has a name that is too long for the file system.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()) => None,
            other => other.doing("look at", path)?,
        },
        // A commit finds what another process mounted there.
        Err(error) if is_gone(&error) || is_other_mount(&error) => None,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => None,
        Err(error) => return Err(error).doing("open", parent),
    };
    Ok(meta.filter(|meta| meta.kind == EntryType::File))
}

/// Returns the databases and logs of which the user chose one without the other.
fn halves(walk: &Walk<'_>, tree: &LayerTree) -> Vec<usize> {
    let logs: Vec<usize> =
        (1..tree.nodes.len()).filter(|at| LOGS.iter().any(|end| tree.nodes[*at].path.0.ends_with(end))).collect();
    if logs.is_empty() {
        return Vec::new();
    }
    let by_path: HashMap<&[u8], usize> =
        tree.nodes.iter().enumerate().skip(1).map(|(at, node)| (&*node.path.0, at)).collect();
    let mut found = Vec::new();
    for log in logs {
        let path = &*tree.nodes[log].path.0;
        let bases = LOGS.iter().filter_map(|end| path.strip_suffix(*end));
        for database in bases.filter_map(|base| by_path.get(base).copied()) {
            let comes = |at: usize| !is_nothing(tree, &tree.nodes[at]);
            let is_brought = |at: usize| halves::would_commit(walk.rules, &tree.nodes[at]);
            let is_half = comes(log) && comes(database) && is_brought(log) != is_brought(database);
            if is_half && is_database(&[walk.base, walk.upper], &tree.nodes[database].path.0) {
                found.extend([log, database].into_iter().filter(|at| is_brought(*at)));
            }
        }
    }
    found
}
