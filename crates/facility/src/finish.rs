//! Tidies up after a commit: what was committed leaves the layer; what is parked stays, readable as a layer.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, names, split, unlink_if_there};
use crate::copy::make_whiteout;
use crate::faults::{Faults, Step};
use crate::journal::{DONE, Journal, PARKED, Parked, sync_folder, write};
use crate::meta::{EntryType, FsTime, stat, stat_if_there};
use crate::plan::Keep;
use crate::remove::{readable_by_force, remove_tree};
use crate::xattr;
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// The folders of all layers, one of them, and the workspace.
pub(crate) struct Folders<'a> {
    pub(crate) layers: &'a Workspace,
    pub(crate) root: &'a Workspace,
    pub(crate) base: &'a Workspace,
    pub(crate) run: &'a str,
}

/// Runs after the journal is marked done; may run again.
pub(crate) fn finish(folders: &Folders<'_>, journal: &Journal, faults: &Faults) -> Result<(), IoFailure> {
    faults.check(Step::Finish).doing("finish", b"")?;
    if journal.keep.is_empty() {
        return remove_layer(folders.layers, folders.root, folders.run, faults);
    }
    let upper = Workspace::from_fd(folders.root.readable_dir(b"upper").doing("open", b"upper")?);
    prune(&upper, folders.base, &journal.keep, faults)?;
    faults.action();
    remove_tree(folders.root, b"work").doing("remove", b"work")?;
    let mut ours: Vec<(ByteText, FsTime)> = journal.ours.clone();
    for path in &journal.rewritten {
        if let Some(meta) = folders.base.stat(&path.0).doing("look at", &path.0)? {
            ours.retain(|(other, _)| other != path);
            ours.push((path.clone(), meta.ctime));
        }
    }
    let changes = crate::changes::ChangeSet { changes: journal.parked.clone() };
    let parked = Parked { version: Journal::version(), mode: journal.mode, started: journal.started, ours, changes };
    faults.action();
    write(folders.root, PARKED, &parked)?;
    sync_folder(folders.root)?;
    faults.action();
    unlink_if_there(folders.root.fd(), DONE.as_bytes()).doing("remove", DONE.as_bytes())?;
    sync_folder(folders.root)
}

/// Removes a layer. The note that it is parked goes first: what is left after a crash must not look like a review.
pub(crate) fn remove_layer(layers: &Workspace, root: &Workspace, run: &str, faults: &Faults) -> Result<(), IoFailure> {
    faults.check(Step::Discard).doing("remove", b"")?;
    unlink_if_there(root.fd(), PARKED.as_bytes()).doing("remove", PARKED.as_bytes())?;
    for folder in [&b"upper"[..], b"work"] {
        faults.action();
        remove_tree(root, folder).doing("remove", folder)?;
    }
    faults.action();
    remove_tree(layers, run.as_bytes()).doing("remove", run.as_bytes())
}

/// Removes everything from the upper directory but `keep` and the directories on the way to it.
fn prune(upper: &Workspace, base: &Workspace, keep: &[Keep], faults: &Faults) -> Result<(), IoFailure> {
    let kept: HashMap<&[u8], &Keep> = keep.iter().map(|one| (one.path.0.as_slice(), one)).collect();
    let mut on_the_way: HashSet<&[u8]> = HashSet::new();
    for one in keep {
        let mut path = split(&one.path.0).0;
        while !path.is_empty() && on_the_way.insert(path) {
            path = split(path).0;
        }
    }
    let mut stack: Vec<Vec<u8>> = vec![Vec::new()];
    let mut entered = Vec::new();
    while let Some(path) = stack.pop() {
        let dir = readable_by_force(upper, &path).doing("open", &path)?;
        for name in names(dir.as_fd()).doing("list", &path)? {
            let entry = crate::beneath::join(&path, &name);
            let kept = kept.get(entry.as_slice());
            if kept.is_some_and(|one| one.subtree) {
                continue;
            }
            if kept.is_none() && !on_the_way.contains(entry.as_slice()) {
                faults.action();
                remove_tree(upper, &entry).doing("remove", &entry)?;
                continue;
            }
            let meta = stat(dir.as_fd(), &name).doing("look at", &entry)?;
            if meta.kind == EntryType::Directory {
                entered.push((entry.clone(), kept.copied()));
                stack.push(entry);
            }
        }
    }
    for one in keep.iter().filter(|one| one.whiteout) {
        let (parent, name) = split(&one.path.0);
        let dir = upper.dir(parent).doing("open", parent)?;
        if stat_if_there(dir.as_fd(), name).doing("look at", &one.path.0)?.is_none() {
            faults.action();
            make_whiteout(dir.as_fd(), name).doing("mark as gone", &one.path.0)?;
        }
    }
    for (path, kept) in entered.iter().rev() {
        settle(upper, base, path, *kept)?;
    }
    Ok(())
}

/// A directory on the way now continues the one in the workspace: it hides nothing and comes from nowhere, and its
/// mode is the committed one, or its own if that is still to be decided.
fn settle(upper: &Workspace, base: &Workspace, path: &[u8], kept: Option<&Keep>) -> Result<(), IoFailure> {
    let dir = upper.dir_by_force(path).doing("open", path)?;
    for name in xattr::list(dir.as_fd(), b"").doing("list the attributes of", path)? {
        if name.ends_with(b".overlay.opaque") || name.ends_with(b".overlay.redirect") {
            xattr::remove(dir.as_fd(), b"", &name).doing("clean", path)?;
        }
    }
    let mode = if let Some(kept) = kept {
        // Its mode is a part of what waits; the journal has it as it was before anybody opened the directory up.
        kept.mode
    } else {
        let found = base.stat(path).doing("look at", path)?;
        found.filter(|meta| meta.kind == EntryType::Directory).map(|meta| meta.mode)
    };
    mode.map_or(Ok(()), |mode| chmod(dir.as_fd(), mode).doing("set the mode of", path))
}
