//! Compares entries of the workspace with the plan's record of them, before and after each system call that moves them.

use super::Apply;
use super::stop::{Done, Stop};
use crate::beneath::{Workspace, is_gone, split};
use crate::entries::changes::Outside;
use crate::faults::Comparison;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Put, Slot, Step};
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use crate::places::quiet::{Quiet, quiet_inside};
use crate::places::side::Side;
use crate::places::writers::{Compared, Writers, compare, writers};
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Reports whether an entry is still as it was planned for.
    pub(super) fn is_untouched(&self, old: &Seen, now: &Meta) -> bool {
        let own = self.own.get(&now.id).copied();
        if own.is_none() && self.moved.contains(&old.id) {
            // The interrupted pass changed the number of its names, or moved one, and set its ctime.
            return old.is_same_version(now);
        }
        old.is_untouched(now, own)
    }

    /// Reports whether an entry, at whatever path, is as an earlier commit of this layer left it.
    pub(super) fn is_as_left(&self, meta: &Meta) -> bool {
        let all = self.ours.get(&meta.id).into_iter().flatten();
        all.into_iter().any(|at| self.journal.header.ours[*at].is(meta))
    }

    pub(super) fn remember(&mut self, meta: &Meta) {
        if meta.links > 1 || self.shared.contains_key(&meta.id) {
            self.own.insert(meta.id, meta.ctime);
        }
    }

    /// Notes when a directory left the workspace: its move set its ctime.
    pub(super) fn left(&mut self, path: &[u8], old: &Seen, out: &Meta) {
        if old.kind == EntryType::Directory {
            self.left_at.push((ByteText(path.to_vec()), out.ctime));
        }
    }

    /// Opens the directory of a path, if it is still the one that was planned for.
    pub(super) fn enter(&mut self, parent: &[u8]) -> Done {
        let dir = match self.parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Err(Stop::keep(Outside::Vanished)),
            Err(error) => return Err(Stop::blocked(error)),
        };
        if let Some(wanted) = self.parent_ids.get(parent)
            && stat(dir, b"")?.id != *wanted
            && self.faults.compares(Comparison::Parent)
        {
            self.parents.last = None;
            return Err(Stop::keep(Outside::Replaced));
        }
        Ok(())
    }

    /// Takes a lease on a file of the workspace that goes away, unless a process writes to it.
    pub(super) fn lease(&mut self, parent: &[u8], name: &[u8]) -> Result<Option<Writers>, Stop> {
        let dir = self.parents.get(parent)?;
        match writers(self.base.leases(), dir, name)? {
            Writers::Some => Err(Stop::keep(Outside::Open)),
            Writers::Unknown => {
                self.unwatched += u64::from(self.base.leases().is_some());
                Ok(None)
            }
            held @ Writers::None(_) => Ok(Some(held)),
        }
    }

    /// Reports whether a file with several names has the content that the plan saw, and an interrupted pass moved one
    /// of the names.
    fn is_moved_only(&self, meta: &Meta) -> bool {
        self.moved.contains(&meta.id)
            && self.shared.get(&meta.id).is_some_and(|old| old.is_same_version(meta) && old.mode == meta.mode)
    }

    /// Finds the files with several names that an interrupted pass moved or linked. One that cannot be found counts as
    /// unmoved: it is kept back if its ctime changed.
    pub(super) fn find_moved(&mut self) -> io::Result<()> {
        for (at, step) in self.journal.steps.each().enumerate() {
            let moved = match step? {
                Step::Hold { old, slot, .. } | Step::Take { old, slot, .. } => {
                    self.is_in_slot(slot, &old).then_some(old.id)
                }
                Step::Put(put) => {
                    let old =
                        put.old.filter(|old| self.shared.contains_key(&old.id) && self.is_displaced(at, &put, old));
                    // What was held has its new name.
                    let new = put.new.filter(|new| {
                        let now = || self.base.stat(&put.path.0).ok().flatten();
                        self.shared.contains_key(&new.id) && now().is_some_and(|now| now.id == new.id)
                    });
                    self.moved.extend(new.map(|new| new.id));
                    old.map(|old| old.id)
                }
                Step::Strip { .. } | Step::SetDir(_) => None,
            };
            self.moved.extend(moved);
        }
        Ok(())
    }

    pub(super) fn is_in_slot(&self, slot: Slot, old: &Seen) -> bool {
        let found = self.slots.and_then(|slots| stat_if_there(slots.fd(), slot.to_string().as_bytes()).ok().flatten());
        found.is_some_and(|meta| meta.id == old.id)
    }

    /// Reports whether the old version of a step lies at its source, or on the side.
    pub(super) fn is_displaced(&self, at: usize, put: &Put, old: &Seen) -> bool {
        let is_old = |meta: Option<Meta>| meta.is_some_and(|meta| meta.id == old.id);
        let on_side = Side::of(&put.from, at, self.root, self.slots)
            .and_then(|side| stat_if_there(side.spot().dir, side.spot().name).ok().flatten());
        let at_source = match &put.from {
            Origin::Slot(slot) => self.is_in_slot(*slot, old),
            Origin::Layer => is_old(self.upper.stat(&put.path.0).ok().flatten()),
        };
        at_source || is_old(on_side)
    }

    /// Reports whether another process may have moved a name into `dir` since the plan. `top` is the displaced directory that it lies in, or
    /// is. A directory in which no step acts says so by its own ctime.
    fn took_a_name(&self, top: &Seen, dir: &Meta) -> bool {
        if dir.id == top.id {
            return dir.mtime != top.mtime && !self.traces.is_ours((dir.id, dir.dev), dir.mtime, Some(top.mtime));
        }
        self.worked.contains(&dir.id) && !self.traces.is_of_steps_alone((dir.id, dir.dev), dir.mtime)
    }

    /// Looks at what came out of the workspace.
    pub(super) fn is_quiet(
        &self,
        old: &Seen,
        tree: &Workspace,
        path: &[u8],
        out: &Meta,
        leased: bool,
    ) -> io::Result<Quiet> {
        if !old.is_same_version(out) {
            return Ok(Quiet::No);
        }
        match old.kind {
            EntryType::Directory => {
                let known = |dir: &Meta, meta: &Meta| {
                    let is_stamped_by_steps = self.own.get(&meta.id) == Some(&meta.ctime) || self.is_moved_only(meta);
                    self.worked.contains(&meta.id)
                        || self.is_as_left(meta)
                        || meta.id == old.id
                        // The stamps of a file are those of all its names, of which one may have come into the directory just now.
                        || (is_stamped_by_steps && !(meta.kind != EntryType::Directory && self.took_a_name(old, dir)))
                };
                quiet_inside(
                    tree,
                    path,
                    self.base.leases(),
                    &|dir, _, meta| meta.ctime > self.started && !known(dir, meta),
                    &|_| (),
                )
            }
            EntryType::File if !leased => {
                let (parent, name) = split(path);
                let dir = tree.dir(parent)?;
                Ok(match compare(self.base.leases(), dir.as_fd(), name, old)? {
                    Compared::Same => Quiet::Yes,
                    Compared::Changed => Quiet::No,
                    Compared::Written => Quiet::Written,
                })
            }
            _ => Ok(Quiet::Yes),
        }
    }
}
