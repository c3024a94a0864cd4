//! Compares entries of the workspace with what the plan recorded, before a call and after it.

use super::Apply;
use super::stop::{Done, Stop};
use crate::beneath::{Workspace, is_gone, split};
use crate::changes::Outside;
use crate::commit::displaced::{Quiet, quiet_inside};
use crate::commit::seen::Seen;
use crate::commit::writers::{Writers, writers};
use crate::meta::{EntryType, Meta, stat};
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    /// Whether an entry is still as it was planned for.
    pub(super) fn is_untouched(&self, old: &Seen, now: &Meta) -> bool {
        let own = self.own.get(&now.id).copied();
        if own.is_none() && self.again && self.shared.contains(&old.id) {
            // The interrupted pass may have changed the number of its names, and with it the ctime.
            return old.is_same_version(now);
        }
        old.is_untouched(now, own)
    }

    pub(super) fn remember(&mut self, meta: &Meta) {
        if meta.links > 1 || self.shared.contains(&meta.id) {
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
        {
            self.parents.last = None;
            return Err(Stop::keep(Outside::Replaced));
        }
        Ok(())
    }

    /// A lease on a file of the workspace that goes away, unless somebody writes to it.
    pub(super) fn lease(&mut self, parent: &[u8], name: &[u8]) -> Result<Option<Writers>, Stop> {
        let dir = self.parents.get(parent)?;
        match writers(self.base.leases(), dir, name) {
            Writers::Some => Err(Stop::keep(Outside::Open)),
            Writers::Unknown => {
                self.unwatched += u64::from(self.base.leases().is_some());
                Ok(None)
            }
            held @ Writers::None(_) => Ok(Some(held)),
        }
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
                let known = |meta: &Meta| {
                    self.worked.contains(&meta.id)
                        || self.own.get(&meta.id) == Some(&meta.ctime)
                        || (self.again && self.shared.contains(&meta.id))
                        || meta.id == old.id
                };
                quiet_inside(tree, path, self.base.leases(), &|meta| meta.ctime > self.started && !known(meta))
            }
            EntryType::File if !leased => {
                let (parent, name) = split(path);
                let dir = tree.dir(parent)?;
                Ok(match writers(self.base.leases(), dir.as_fd(), name) {
                    Writers::Some => Quiet::Written,
                    Writers::None(_) | Writers::Unknown => Quiet::Yes,
                })
            }
            _ => Ok(Quiet::Yes),
        }
    }
}
