//! Keeps back refs whose objects are missing in the workspace, even after the commit of these refs was decided.
//!
//! A commit does not copy objects that the workspace already has. If `git prune` or `git gc` removes some of them after the decision,
//! or before a killed commit is recovered, the run's refs would name missing objects. The same happens if the user accepts a ref but
//! not its objects, and rejecting the rest then deletes those objects:
//!
//! ```text
//!  first member of a git unit, and after the last step:
//!   each new ref: tree, files and parents of what the commit brought; each new file of an index
//!       ├─ all there ──▶ the unit comes, or stays
//!       ├─ one is missing ──▶ the unit is kept back, or goes back, and the layer keeps its own copies of objects: the next
//!       │                     accept brings both
//!       └─ not known ──▶ the same where the layer alone has one of them, or has a copy of an object that the workspace lost
//! ```
//! A step may bring a directory with many of these files ([`super::files`]). Nothing is known of a repository that borrows objects
//! from outside of the workspace or fetches them, of too many new ones, and of files that are not read (tables of refs): there each
//! object counts that waits in the layer, also in the repositories of the workspace that it borrows from. Where it is not clear which
//! these are, all repositories count.
//!
//! A repository that is new and borrows objects is looked at once it is there as a whole: what it borrows may come in the same commit.
//! That the user accepts a git directory as a whole makes no difference: its refs would lead to nothing all the same.

use super::Apply;
use super::waiting::OfLayer;
use crate::beneath::{IoFailure, Workspace, is_beneath, join, split};
use crate::entries::changes::Outside;
use crate::git::nested::has_objects;
use crate::git::shallow::words;
use crate::journal::file::KeptBack;
use crate::journal::step::Step;
use crate::journal::units::{Cause, Member, State};
use crate::read::git_dirs;
use nexus_git::index::ids::new_ids;
use nexus_git::index::lengths::lengths_by as id_lengths;
use nexus_git::packs::history::{History, Missing, Reach};
use nexus_git::paths::{Naming, naming};
use nexus_git::small::read_small;
use nexus_model::ByteText;
use std::collections::HashSet;
use std::os::fd::AsFd as _;

/// Says why a ref is kept back.
const GONE: &str = "git objects that it leads to are gone from the workspace";
const HAS_COPIES: &str =
    "git objects that it leads to are gone from the workspace, and the run has copies of its own: accept them with it";
const WAITS: &str = "git objects of the run wait, and the workspace has not all that it leads to: accept them with it";
const WAITS_ELSEWHERE: &str = "git objects of the run wait in another repository of the workspace, from which it borrows what it leads \
                               to: accept them with it";

const LENDER_WAITS: &str = "the file that says where its git objects lie (objects/info/alternates) waits or was rejected: name the repository and \
     accept it with --protected";

/// Reports whether an object is new. It gets whether the object is in the layer, and its path or that of the index of its pack.
type IsNew<'a> = dyn Fn(bool, &[u8]) -> bool + 'a;

/// The time at which the members of a git unit are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Before the first of them comes.
    First,
    /// When all steps were carried out.
    Last,
}

/// A file that a step brings, and that leads to objects.
struct NamingFile {
    number: usize,
    naming: Naming,
    /// Its text, and that of the file in whose place it comes; `None` where it is not read.
    texts: Option<(Vec<u8>, Vec<u8>)>,
}

impl Apply<'_> {
    /// Breaks the git units whose objects went while their steps were carried out.
    pub(super) fn find_lost_objects(&mut self) -> Result<(), IoFailure> {
        let whole = self.units.all().iter().filter(|unit| unit.state == State::Whole);
        let with_git = whole.filter_map(|unit| Some((unit.git_dir.clone()?, unit.members.clone())));
        for (git_dir, members) in with_git.collect::<Vec<_>>() {
            if let Some(cause) = self.lost_objects(&git_dir, &members, Look::Last)? {
                self.units.set(cause.number, State::Broken(cause));
            }
        }
        Ok(())
    }

    /// Returns the first step of a git unit that leads to an object which is not there.
    pub(super) fn lost_objects(
        &mut self,
        git_dir: &[u8],
        members: &[Member],
        when: Look,
    ) -> Result<Option<Cause>, IoFailure> {
        let is_new_borrower = self.is_new_borrower(git_dir);
        // It may come before what it borrows does.
        if is_new_borrower && when == Look::First && members.iter().any(|(_, step)| brings_around(step, git_dir)) {
            return Ok(None);
        }
        let files = self.naming_files(git_dir, members);
        // A repository that was only made has no objects, and git wants those that its names and its index name.
        let is_one = || -> Result<bool, IoFailure> {
            Ok(is_new_borrower || has_objects(self.base, git_dir)? || git_dirs::is_one(self.base, git_dir)?)
        };
        if files.is_empty() || !is_one()? {
            return Ok(None);
        }
        let own = HashSet::from([join(git_dir, b"objects")]);
        let mut history = History::of(&[(self.base, git_dir)], id_lengths, true).ok().flatten();
        let directories = history.as_ref().map_or_else(|| own.clone(), History::directories);
        let brought = self.brought_objects(&directories)?;
        // An earlier accept may have brought some of the objects of the run without those that they need.
        let is_partial =
            !self.journal.header.keep.is_empty() && !self.objects_of_layer(&directories)?.waiting.is_empty();
        let is_new =
            |_: bool, path: &[u8]| is_at_or_below(path, &brought) || (is_partial && self.is_later_than_start(path));
        let shallow = self.base.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"shallow"));
        let shallow = shallow.ok().flatten().unwrap_or_default();
        let ends: HashSet<&[u8]> = words(&shallow).collect();
        let lender_waits = is_new_borrower && when == Look::Last && self.lender_waits(git_dir);
        let (mut unknown, mut missing) = (Vec::new(), None);
        for file in &files {
            // What a new repository borrows is not known. One whose file of lenders waits has its own objects alone.
            let known = history.as_mut().filter(|_| !is_new_borrower || lender_waits);
            match known.map_or(Reach::Unknown, |history| file.reach(history, &ends, &is_new)) {
                Reach::Whole => {}
                Reach::Unknown => unknown.push(file),
                Reach::Broken => missing = missing.or(Some(file.number)),
            }
        }
        if missing.is_none() && unknown.is_empty() {
            return Ok(None);
        }
        let is_without_lender = lender_waits && missing.is_some();
        let mut both = History::of(&[(self.base, git_dir), (self.upper, git_dir)], id_lengths, true).ok().flatten();
        let is_unclear = |history: &Option<History<'_>>| history.as_ref().is_none_or(History::is_unclear);
        let mut directories = both.as_ref().map_or_else(|| own.clone(), History::directories);
        // Objects may wait in directories that are too many to be found.
        let mut are_too_many = false;
        if is_unclear(&both) || is_unclear(&history) {
            let all = self.directories_with_objects();
            let trees = [self.base, self.upper];
            let is_added = |all: &Vec<Vec<u8>>| both.as_mut().is_some_and(|both| both.add(&trees, all).is_ok());
            let is_whole = all.as_ref().is_some_and(is_added);
            are_too_many = all.is_none();
            directories.extend(all.unwrap_or_default());
            both = both.filter(|_| is_whole);
        }
        let of_layer = self.objects_of_layer(&directories)?;
        let is_any_gone = |paths: &[Vec<u8>]| self.is_any_gone(paths, history.as_ref());
        let waits = are_too_many || is_any_gone(&of_layer.waiting);
        let is_lost = is_any_gone(&of_layer.copies);
        if missing.is_none() && is_lost {
            missing = unknown.iter().find(|file| file.naming.is_strict()).map(|file| file.number);
        }
        if missing.is_none() && (is_lost || waits) {
            let brought = self.brought_objects(&directories)?;
            let is_new =
                |_: bool, path: &[u8]| is_at_or_below(path, &brought) || (is_partial && self.is_later_than_start(path));
            let mut reach = |file: &NamingFile| {
                both.as_mut().map_or(Reach::Unknown, |both| file.reach_in_layer(both, &ends, &is_new))
            };
            missing = unknown.iter().find(|file| reach(file) != Reach::Whole).map(|file| file.number);
        }
        let Some(number) = missing else { return Ok(None) };
        let detail = match (waits, of_layer.copies.is_empty()) {
            (true, _) if is_any_gone(&self.objects_of_layer(&own)?.waiting) => WAITS,
            (true, _) => WAITS_ELSEWHERE,
            (false, _) if is_without_lender => LENDER_WAITS,
            (false, true) => GONE,
            (false, false) => HAS_COPIES,
        };
        let OfLayer { copies, .. } = of_layer;
        self.keep_copies(copies);
        Ok(Some(Cause { number, outside: Outside::Blocked, detail: Some(detail) }))
    }

    /// Reports whether the layer makes a repository that borrows objects.
    pub(super) fn is_new_borrower(&self, git_dir: &[u8]) -> bool {
        self.journal.header.borrowers.iter().any(|one| one.0 == git_dir)
    }

    /// Reports whether the file by which a repository of the layer borrows objects has not come with it. It waits by its name, and a
    /// repository without it would lead to nothing.
    fn lender_waits(&self, git_dir: &[u8]) -> bool {
        let file = join(git_dir, b"objects/info/alternates");
        let is_in = |tree: &Workspace| matches!(tree.stat(&file), Ok(Some(_)));
        is_in(self.upper) && !is_in(self.base)
    }

    /// Reads the files that the steps of a git unit bring, as far as they lead to objects.
    fn naming_files(&self, git_dir: &[u8], members: &[Member]) -> Vec<NamingFile> {
        let mut found = Vec::new();
        for (number, step) in members {
            let Step::Put(put) = step else { continue };
            let Ok(files) = self.files_of(put, git_dir) else {
                found.push(NamingFile { number: *number, naming: Naming::Tables, texts: None });
                continue;
            };
            for file in files {
                let Some(naming) = naming(&file) else { continue };
                let text = if naming == Naming::Tables { None } else { self.text_at(put, &file) };
                let texts = text.map(|text| (text, if naming.replaces() { self.present(put) } else { Vec::new() }));
                found.push(NamingFile { number: *number, naming, texts });
            }
        }
        found
    }

    /// Reports whether an object of the workspace, or the index of its pack, was written since the layer was made.
    fn is_later_than_start(&self, path: &[u8]) -> bool {
        self.base.stat(path).is_ok_and(|meta| meta.is_some_and(|meta| meta.ctime > self.started))
    }

    /// Reports whether the workspace has one of these objects or packs no more, or not yet. What cannot be read counts as gone.
    fn is_any_gone(&self, paths: &[Vec<u8>], history: Option<&History<'_>>) -> bool {
        let is_there = |path: &Vec<u8>| match self.base.stat(path) {
            Ok(Some(_)) => true,
            Ok(None) if is_beside_pack(path) => true,
            Ok(None) => history.is_some_and(|history| history.has_file_of(path)),
            Err(_) => false,
        };
        !paths.iter().all(is_there)
    }

    fn keep_copies(&mut self, copies: Vec<Vec<u8>>) {
        let kept = |path| KeptBack { path, conflict: None, in_layer: true, subtree: false, arrived: true };
        self.kept.extend(copies.into_iter().map(|path| kept(ByteText(path))));
    }
}

/// Reports whether a step brings a whole directory that a git directory lies in, or is.
pub(super) fn brings_around(step: &Step, git_dir: &[u8]) -> bool {
    matches!(step, Step::Put(put) if put.whole && is_beneath(git_dir, &put.path.0))
}

impl NamingFile {
    /// Reports whether all is there that the file leads to.
    fn reach(&self, history: &mut History<'_>, ends: &HashSet<&[u8]>, is_new: &IsNew<'_>) -> Reach {
        if self.naming.is_strict() { self.search(history, ends, is_new, Missing::Nowhere) } else { Reach::Unknown }
    }

    /// Reports whether the layer alone has something that the file leads to. `both` has the objects of the workspace and of the layer.
    fn reach_in_layer(&self, both: &mut History<'_>, ends: &HashSet<&[u8]>, is_new: &IsNew<'_>) -> Reach {
        self.search(both, ends, is_new, Missing::InLayer)
    }

    fn search(&self, history: &mut History<'_>, ends: &HashSet<&[u8]>, is_new: &IsNew<'_>, missing: Missing) -> Reach {
        let Some((text, present)) = &self.texts else { return Reach::Unknown };
        match self.naming {
            Naming::Refs | Naming::Work => history.needs(&words(text).collect::<Vec<_>>(), ends, is_new, missing),
            Naming::Log => history.needs(&logged(text, present), ends, is_new, missing),
            Naming::Index | Naming::SharedIndex => {
                history.has_each(&new_ids(text, present, history.id_length()), missing)
            }
            Naming::Tables => Reach::Unknown,
        }
    }
}

/// Returns the ids to which the new entries of a log lead: it may alone name older stashes.
fn logged<'a>(text: &'a [u8], present: &[u8]) -> Vec<&'a [u8]> {
    let known: HashSet<&[u8]> = present.split(|byte| *byte == b'\n').collect();
    let new = text.split(|byte| *byte == b'\n').filter(|line| !known.contains(line));
    let ids = new.filter_map(|line| words(line).nth(1));
    ids.filter(|id| id.iter().any(|byte| *byte != b'0')).collect()
}

/// Reports whether a path or a directory above it is among some.
fn is_at_or_below(path: &[u8], paths: &HashSet<Vec<u8>>) -> bool {
    let mut at = path;
    while !at.is_empty() && !paths.contains(at) {
        at = split(at).0;
    }
    !at.is_empty()
}

/// Reports whether a path is that of a file beside a pack, which has no objects of its own.
fn is_beside_pack(path: &[u8]) -> bool {
    split(path).1.starts_with(b"pack-") && !path.ends_with(b".pack")
}
