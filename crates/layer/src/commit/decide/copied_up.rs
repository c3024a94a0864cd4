//! Triggers the copy-up of entries that a commit is about to displace, if the workspace itself lies on an overlay (in a
//! container, for instance).
//!
//! Such an overlay copies an entry up at its first change, also at a rename, and the entry then has another time of birth,
//! another ctime and perhaps another inode. The commit would mistake that for a change by another process. It
//! therefore sets each entry's unchanged mtime, which makes the overlay copy it up, before it records the entry's identity.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, pin, proc_path, split};
use crate::commit::decide::immovable::acted_in;
use crate::decide::plan::{CommitPlan, State};
use crate::disk::copy::times;
use crate::entries::tree::{CommittedEntry, Found, LayerTree, Lower, Node};
use crate::journal::file::{OURS, read, write};
use crate::meta::{EntryType, Meta, stat};
use crate::store::layer::Layer;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, CWD};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd as _;

/// The `f_type` of statfs(2).
const OVERLAY: u64 = 0x794c_7630;

impl Layer {
    /// Copies up what the steps of a plan displace and the directories in which they act, and puts what they are then into
    /// the tree. Returns the entries with the times that they got: none of these is a change from outside.
    pub(crate) fn copy_up(
        &self,
        workspace: &Workspace,
        tree: &mut LayerTree,
        plan: &CommitPlan,
    ) -> Result<Vec<CommittedEntry>, IoFailure> {
        // No layer lies on an overlay.
        if tree.same_mount {
            return Ok(Vec::new());
        }
        let filesystem = rustix::fs::fstatfs(workspace.fd()).doing("look at the file system of", b"")?;
        if filesystem.f_type as u64 != OVERLAY {
            return Ok(Vec::new());
        }
        let directories = with_ancestors(acted_in(tree, plan).into_keys());
        let states = plan.states.as_deref().unwrap_or_default();
        let displaced = |(node, state): &(&Node, &State)| {
            let file = node.covers.as_ref().filter(|found| found.meta.kind != EntryType::Directory);
            (**state == State::Commit && !node.claimed).then_some(file).flatten().map(|found| found.at.0.to_vec())
        };
        let files: Vec<Vec<u8>> = tree.nodes.iter().zip(states).filter_map(|both| displaced(&both)).collect();
        let mut before = Vec::new();
        // From the top on: each copies up all that it is in.
        for path in directories.iter().chain(&files) {
            before.extend(touch(workspace, path)?.map(|meta| (path, meta)));
        }
        // An entry that is copied up changes the directory that it is in.
        let mut copied = Vec::new();
        let mut all: HashMap<&[u8], Meta> = HashMap::new();
        for (path, before) in before {
            let now = workspace.stat(path).doing("look at", path)?;
            if let Some(now) = now.filter(|now| is_same(&before, now)) {
                copied.push(CommittedEntry::new(&ByteText(path.clone()), &now));
                all.insert(path, now);
            }
        }
        for node in &mut tree.nodes {
            if let Some(found) = &mut node.covers {
                renew(found, &all);
            }
            if matches!(node.rare.lower, Lower::Merged(_) | Lower::Moved(_))
                && let Lower::Merged(found) | Lower::Moved(found) = &mut node.rare.lower
            {
                renew(found, &all);
            }
        }
        if !copied.is_empty() {
            // Also when the commit is not carried out in the end.
            let earlier = read::<Vec<CommittedEntry>>(&self.root, OURS)?.into_iter().flatten();
            write(
                &self.root,
                OURS,
                &CommittedEntry::sorted(earlier.chain(copied.iter().cloned()).collect()),
                &self.faults,
            )?;
        }
        Ok(copied)
    }
}

/// Adds the directories that these directories are in, down to the workspace's own.
fn with_ancestors(directories: impl Iterator<Item = Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::from([Vec::new()]);
    for path in directories {
        let mut at = path.as_slice();
        while !at.is_empty() && all.insert(at.to_vec()) {
            at = split(at).0;
        }
    }
    all
}

/// Sets the time that an entry has, and returns its attributes before that. One that is gone is left to the steps.
fn touch(workspace: &Workspace, path: &[u8]) -> Result<Option<Meta>, IoFailure> {
    let (parent, name) = split(path);
    let inspect = || {
        let dir = workspace.dir(parent)?;
        let entry = if path.is_empty() { workspace.dir(b"")? } else { pin(dir.as_fd(), name)? };
        Ok::<_, std::io::Error>((dir, stat(entry.as_fd(), b"")?, entry))
    };
    let (dir, before, entry) = match inspect() {
        Err(error) if is_gone(&error) => return Ok(None),
        other => other.doing("look at", path)?,
    };
    let set = match before.kind {
        // A link cannot be reached by way of /proc.
        EntryType::Symlink => rustix::fs::utimensat(dir, name, &times(&before), AtFlags::SYMLINK_NOFOLLOW),
        _ => rustix::fs::utimensat(CWD, proc_path(entry.as_fd()), &times(&before), AtFlags::empty()),
    };
    set.doing("copy up in the overlay", path)?;
    Ok(Some(before))
}

/// Takes the attributes of an entry that is as it was.
fn renew(found: &mut Found, all: &HashMap<&[u8], Meta>) {
    if let Some(now) = all.get(&*found.at.0).filter(|now| is_same(&found.meta, now)) {
        found.meta = now.clone();
    }
}

/// Compares what a copy in the overlay keeps.
fn is_same(before: &Meta, now: &Meta) -> bool {
    let of = |meta: &Meta| (meta.kind, meta.mode, meta.uid, meta.gid, meta.mtime);
    of(before) == of(now) && (now.kind == EntryType::Directory || before.size == now.size)
}
