//! Tells what an interrupted pass did with the entries that it had moved or linked to slots.

use super::Apply;
use super::renamed::Brought;
use crate::beneath::is_no_way;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Slot, Step};
use crate::meta::Meta;
use std::collections::HashSet;
use std::io;

impl Apply<'_> {
    /// Reports whether an earlier pass brought the entry that `slot` was made for to its new place. What lies in the
    /// slot then, `found`, was displaced there by an exchange: no other process put it there, and the step that made the
    /// exchange looks at it again.
    pub(super) fn was_brought(&mut self, slot: Slot, entry: &Seen, found: Option<&Meta>) -> io::Result<bool> {
        if !self.again {
            return Ok(false);
        }
        let Some((path, displaced)) = self.brought()?.get(&slot).cloned() else { return Ok(false) };
        if found.is_some_and(|found| displaced == Some(found.id)) {
            return Ok(true);
        }
        // Any other error stops the pass: a guess would move an entry to a wrong name.
        match self.base.stat(&path.0) {
            Ok(now) => Ok(now.is_some_and(|now| now.id == entry.id)),
            Err(error) if is_no_way(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the steps that bring held files and renamed directories to their places, once.
    fn brought(&mut self) -> io::Result<&Brought> {
        if self.brought.is_none() {
            let (mut filled, mut brought) = (HashSet::new(), Brought::new());
            for step in self.journal.steps.each() {
                match step? {
                    Step::Hold { slot, .. } | Step::Take { slot, renamed: true, .. } => {
                        filled.insert(slot);
                    }
                    Step::Put(put) => {
                        if let Origin::Slot(slot) = put.from
                            && filled.contains(&slot)
                        {
                            brought.insert(slot, (put.path, put.old.map(|old| old.id)));
                        }
                    }
                    Step::Take { .. } | Step::Strip { .. } | Step::SetDir(_) => {}
                }
            }
            self.brought = Some(brought);
        }
        self.brought.as_ref().ok_or_else(|| io::Error::other("the steps were not read"))
    }
}
