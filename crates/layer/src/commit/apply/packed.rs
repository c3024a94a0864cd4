//! Keeps back a ref if another process changed its value in `packed-refs` since the run began, and a `packed-refs` that would restore
//! a ref which another process deleted.
//!
//! A loose ref file overrides the value in `packed-refs`. A run that commits to a packed branch creates a loose file at a path that
//! was free, so comparing that path alone cannot detect a change by another process:
//!
//! ```text
//!  packed-refs changed since the start, and has the ref ──▶ is the packed value the one that the run began with?
//!       ├─ the workspace's log of the ref ends with it, and the log of the run goes on from there ──▶ comes
//!       ├─ the log of the ref has it as the first one of the run, and the new commit has it among its ancestors ──▶ comes
//!       ├─ there is no such log, and the commits of the run were made on it ──▶ comes
//!       └─ else ──▶ the unit is kept back: another process moved the ref, and nothing would show it any more
//! ```
//! That the new commit has the packed one among its ancestors is not enough: the user may have set a branch back. Nor is it needed
//! where the log keeps the packed one: a commit that was amended, or an older stash.

use super::Apply;
use super::files::read;
use crate::beneath::{is_beneath, join, split};
use crate::entries::changes::Outside;
use crate::entries::protected::Class;
use crate::git::git_rules::Version;
use crate::git::shallow::words;
use crate::journal::step::{Put, Step};
use crate::journal::units::{Cause, Member};
use crate::meta::EntryType;
use nexus_git::commits::{Form, common, place};
use nexus_git::git_dir::PACKED;
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::built::is_built_on;
use nexus_git::packs::history::History;
use nexus_git::paths::git_dir_of_object;
use nexus_git::reads::Reads;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

/// Says why a ref is kept back.
const PACKED_MEANWHILE: &str = "packed-refs has another value of it since the run began";

impl Apply<'_> {
    /// Returns the first step of a git unit that would hide a value which another process packed.
    pub(super) fn hides_packed(&mut self, git_dir: &[u8], members: &[Member]) -> Option<Cause> {
        let path = join(git_dir, b"packed-refs");
        let is_member = members.iter().any(|(_, step)| step.path().is_some_and(|member| member.0 == path));
        let new_refs: Vec<_> =
            members.iter().filter_map(|(number, step)| Some((*number, refs_at_free_name(step)?))).collect();
        let meta = self.base.stat(&path).ok().flatten()?;
        if is_member || new_refs.is_empty() || !self.journal.header.is_fresh(self.started, &path, &meta) {
            return None;
        }
        let dir = self.base.dir(git_dir).ok()?;
        let cause = |number| Cause { number, outside: Outside::Changed, detail: Some(PACKED_MEANWHILE) };
        let Ok(Version::Bytes(text)) =
            Version::read(dir.as_fd(), b"packed-refs", &Class::GitState(PACKED), &Reads::default())
        else {
            // A value that cannot be read may be any.
            return new_refs.first().map(|(number, _)| cause(*number));
        };
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            Some((&line[at + 1..], &line[..at]))
        });
        let packed: HashMap<&[u8], &[u8]> = lines.collect();
        for (number, put) in new_refs {
            // What cannot be listed may be any ref.
            let Ok(files) = self.files_of(put, git_dir) else { return Some(cause(number)) };
            for file in files {
                let Some(name) = place(&file).map(|place| place.inside) else { continue };
                let Some(old) = packed.get(name) else { continue };
                let text = self.text_at(put, &file).unwrap_or_default();
                let Some(new) = words(&text).next().filter(|_| !text.starts_with(b"ref:")) else {
                    return Some(cause(number));
                };
                if new != *old && !self.moves_on(git_dir, members, name, (old, new)) {
                    return Some(cause(number));
                }
            }
        }
        None
    }

    /// Reports whether a run began with the `old` value of a ref and moved it on to the `new` one.
    fn moves_on(&self, git_dir: &[u8], members: &[Member], name: &[u8], (old, new): (&[u8], &[u8])) -> bool {
        if self.goes_on_from(members, &join(&join(git_dir, b"logs"), name), old) {
            return true;
        }
        if let Some(began) = self.first_of_run(members, &join(&join(git_dir, b"logs"), name)) {
            let history = History::of(&[(self.base, git_dir)], id_lengths, false);
            return began == old && history.ok().flatten().is_some_and(|mut history| history.leads_to(new, old));
        }
        // Without a log (`core.logAllRefUpdates`) the objects of the run have to do.
        let steps = self.journal.steps.each().filter_map(Result::ok);
        let paths = steps.filter_map(|step| if let Step::Put(put) = step { Some(put.path.0) } else { None });
        let brought: HashSet<Vec<u8>> = paths.filter(|path| git_dir_of_object(path) == Some(git_dir)).collect();
        let is_new = |path: &[u8]| {
            let ups = std::iter::successors(Some(path), |path| Some(split(path).0).filter(|path| !path.is_empty()));
            ups.into_iter().any(|at| brought.contains(at))
        };
        is_built_on((self.base, git_dir), id_lengths, (new, old), &is_new)
    }

    /// Reports whether the log of a ref in the workspace ends with this value of the ref, and the one of the run adds entries to it.
    fn goes_on_from(&self, members: &[Member], log: &[u8], value: &[u8]) -> bool {
        let text = brings(members, log).filter(|put| put.old.is_some()).and_then(|put| self.text_at(put, log));
        let present = read(self.base, log).unwrap_or_default();
        let last = present.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
        last.and_then(|line| words(line).nth(1)) == Some(value)
            && text.is_some_and(|text| text.len() > present.len() && text.starts_with(&present))
    }

    /// Returns the value that a ref had before the first new entry of its log.
    fn first_of_run(&self, members: &[Member], log: &[u8]) -> Option<Vec<u8>> {
        let put = brings(members, log)?;
        let text = self.text_at(put, log)?;
        let present = if put.old.is_some() { read(self.base, log).unwrap_or_default() } else { Vec::new() };
        let known: HashSet<&[u8]> = present.split(|byte| *byte == b'\n').collect();
        let first = text.split(|byte| *byte == b'\n').find(|line| !known.contains(line))?;
        words(first).next().map(<[u8]>::to_vec)
    }
}

impl Apply<'_> {
    /// Returns the first step that takes the file of a ref away which another process deleted already, where the `packed-refs` of the
    /// same unit would bring the ref back.
    pub(super) fn deleted_meanwhile(&self, members: &[Member]) -> Option<Cause> {
        let packs = |step: &Step| matches!(step, Step::Put(put) if place(&put.path.0).is_some_and(|place| place.form == Form::Packed));
        if !members.iter().any(|(_, step)| packs(step)) {
            return None;
        }
        members.iter().find_map(|(number, step)| {
            let Step::Take { at, old, slot, renamed: false, .. } = step else { return None };
            let is_ref = place(&at.0).is_some_and(|place| place.form == Form::Ref) && old.kind == EntryType::File;
            let is_deleted = is_ref && matches!(self.base.stat(&at.0), Ok(None)) && !self.is_in_slot(*slot, old);
            is_deleted.then(|| Cause::new(*number, Outside::Vanished))
        })
    }
}

/// Returns the step that brings a log.
fn brings<'b>(members: &'b [Member], log: &[u8]) -> Option<&'b Put> {
    members.iter().find_map(|(_, step)| match step {
        Step::Put(put) if put.path.0 == log || (put.whole && is_beneath(log, &put.path.0)) => Some(put),
        _ => None,
    })
}

/// Returns a step that brings a ref, or a directory of refs, where nothing stood.
fn refs_at_free_name(step: &Step) -> Option<&Put> {
    let Step::Put(put) = step else { return None };
    let place = place(&put.path.0).filter(|place| place.form == Form::Ref && put.old.is_none())?;
    // The refs of a further working tree alone are never packed.
    (common(place.git_dir) == place.git_dir).then_some(put)
}
