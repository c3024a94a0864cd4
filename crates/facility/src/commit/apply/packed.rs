//! Keeps back a ref of which another process wrote a value into `packed-refs` since the run began, and a `packed-refs` that would bring
//! a ref back which another process deleted.
//!
//! A file of its own hides the value that `packed-refs` has of a ref. A run that commits to a packed branch brings such a file to a
//! free name, so that the comparison of that path says nothing:
//!
//! ```text
//!  packed-refs changed since the start, and has the ref ──▶ does the new commit have the packed one among its ancestors?
//!       ├─ yes ──▶ comes
//!       └─ no ──▶ the unit is kept back: the commits of the other process would lose their name
//! ```

use super::Apply;
use crate::beneath::join;
use crate::changes::Outside;
use crate::commit::ops::{Op, Put};
use crate::commit::units::{Cause, Member};
use crate::facts::Version;
use crate::git_index::id_lengths;
use crate::git_names::PACKED;
use crate::git_packs::history::History;
use crate::meta::EntryType;
use crate::protected::Class;
use crate::reads::Reads;
use crate::shallow::words;
use crate::waiting_refs::commits::{Form, common, place};
use std::collections::HashMap;
use std::os::fd::AsFd as _;

/// Says why a ref is kept back.
const PACKED_MEANWHILE: &str = "packed-refs has another value of it since the run began";

impl Apply<'_> {
    /// Returns the first step of a git unit that would hide a value which another process packed.
    pub(super) fn hides_packed(&mut self, git_dir: &[u8], members: &[Member]) -> Option<Cause> {
        let path = join(git_dir, b"packed-refs");
        let is_member = members.iter().any(|(_, op)| op.path().is_some_and(|member| member.0 == path));
        let new_refs: Vec<_> = members.iter().filter(|(_, op)| ref_at_free_name(op).is_some()).collect();
        let meta = self.base.stat(&path).ok().flatten()?;
        if is_member || new_refs.is_empty() || !self.journal.header.is_fresh(self.started, &path, &meta) {
            return None;
        }
        let dir = self.base.dir(git_dir).ok()?;
        let cause = |step| Cause { step, outside: Outside::Changed, detail: Some(PACKED_MEANWHILE) };
        let Ok(Version::Bytes(text)) =
            Version::read(dir.as_fd(), b"packed-refs", &Class::GitState(PACKED), &Reads::default())
        else {
            // A value that cannot be read may be any.
            return new_refs.first().map(|(step, _)| cause(*step));
        };
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            Some((&line[at + 1..], &line[..at]))
        });
        let packed: HashMap<&[u8], &[u8]> = lines.collect();
        for (step, op) in new_refs {
            let Some((name, put)) = ref_at_free_name(op) else { continue };
            let Some(old) = packed.get(name) else { continue };
            let text = self.text_of(put);
            let Some(new) = words(&text).next().filter(|_| !text.starts_with(b"ref:")) else {
                return Some(cause(*step));
            };
            let history = History::of(&[(self.base, git_dir)], id_lengths, false);
            let leads = new == *old || history.ok().flatten().is_some_and(|mut history| history.leads_to(new, old));
            if !leads {
                return Some(cause(*step));
            }
        }
        None
    }
}

impl Apply<'_> {
    /// Returns the first step that takes the file of a ref away which another process deleted already, where the `packed-refs` of the
    /// same unit would bring the ref back.
    pub(super) fn deleted_meanwhile(&self, members: &[Member]) -> Option<Cause> {
        let packs =
            |op: &Op| matches!(op, Op::Put(put) if place(&put.path.0).is_some_and(|place| place.form == Form::Packed));
        if !members.iter().any(|(_, op)| packs(op)) {
            return None;
        }
        members.iter().find_map(|(step, op)| {
            let Op::Take { at, old, slot, renamed: false, .. } = op else { return None };
            let is_ref = place(&at.0).is_some_and(|place| place.form == Form::Ref) && old.kind == EntryType::File;
            let is_deleted = is_ref && matches!(self.base.stat(&at.0), Ok(None)) && !self.is_in_slot(*slot, old);
            is_deleted.then(|| Cause::new(*step, Outside::Vanished))
        })
    }
}

/// Returns the name of the ref that a step brings where no file stood, with the step.
fn ref_at_free_name(op: &Op) -> Option<(&[u8], &Put)> {
    let Op::Put(put) = op else { return None };
    let place = place(&put.path.0).filter(|place| place.form == Form::Ref && put.old.is_none())?;
    // The refs of a further working tree alone are never packed.
    (common(place.git_dir) == place.git_dir).then_some((place.inside, put))
}
