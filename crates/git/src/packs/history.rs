//! Follows commits through the objects of a repository, those of the workspace and those of a layer.
//!
//! | question | follows | ends |
//! |---|---|---|
//! | is a history whole? | parents | at the commits that `shallow` names |
//! | is a commit an ancestor? | parents | at that commit |
//! | does a commit of a layer have all that it needs? | trees, files and parents of new objects | at objects that are not new |

use super::index_file::OpenFiles;
use super::problem::{Bound, Problem};
use super::reader::{Id, Links, Place, Reader};
use nexus_beneath::{IoFailure, Workspace, split};
use std::collections::{HashSet, VecDeque};

/// Commits that are followed.
const MAX_COMMITS: usize = 1 << 20;
/// New objects of one repository that are read for [`History::needs`], and objects that are searched for.
const MAX_NEW: usize = 20_000;
const MAX_SEARCHED: usize = 200_000;

/// The end of a history.
#[derive(Debug, PartialEq, Eq)]
pub enum Reach {
    /// Each commit has its parents, up to those without any.
    Whole,
    /// An object is missing.
    Broken,
    /// The objects cannot be read, or are too many.
    Unknown,
}

/// The objects that count as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Those that are in no store. Also what is malformed is missing.
    Nowhere,
    /// Those that the workspace does not have, and the layer has.
    InLayer,
}

/// The objects of a repository that commits are read from.
pub struct History<'a>(Reader<'a>);

impl<'a> History<'a> {
    /// Opens the objects of a repository of the workspace and what a layer adds. `trees` are its git directories in the
    /// workspace and in the layer. `None` where its object format is unknown.
    pub fn of(
        trees: &[(&'a Workspace, &[u8])],
        id_lengths: fn(&[u8]) -> Vec<usize>,
        with_trees: bool,
    ) -> Result<Option<Self>, IoFailure> {
        Ok(Reader::of(trees, id_lengths, with_trees)?.map(Self))
    }

    /// Follows the history of objects, whose ids are hexadecimal, up to those in `ends`, whose parents do not count. An
    /// object that is not there counts only as a parent.
    pub fn reach(&mut self, starts: &[&[u8]], ends: &HashSet<&[u8]>) -> Reach {
        reach(&self.follow(starts, ends))
    }

    fn follow(&mut self, starts: &[&[u8]], ends: &HashSet<&[u8]>) -> Result<bool, Problem> {
        let mut left: Vec<Id> = starts.iter().filter_map(|text| self.0.id(text)).collect();
        let ends: HashSet<Id> = ends.iter().filter_map(|text| self.0.id(text)).collect();
        let first: HashSet<Id> = left.iter().cloned().collect();
        let mut seen = first.clone();
        while let Some(id) = left.pop() {
            if ends.contains(&id) {
                continue;
            }
            let Some(place) = self.0.places(&id)?.first().copied() else {
                if first.contains(&id) {
                    continue;
                }
                return Ok(false);
            };
            let further = match self.0.links(place, &id)? {
                Links::Commit(_, parents) => parents,
                Links::Tag(object) => vec![object],
                Links::Tree(_) | Links::Blob => Vec::new(),
            };
            left.extend(further.into_iter().filter(|id| seen.insert(id.clone())));
            if seen.len() > MAX_COMMITS {
                return Err(Problem::Exceeds(Bound::Objects));
            }
        }
        Ok(true)
    }

    /// Reports whether a commit has another one among its ancestors. Both ids are hexadecimal. What cannot be read leads nowhere.
    pub fn leads_to(&mut self, start: &[u8], wanted: &[u8]) -> bool {
        let (Some(start), Some(wanted)) = (self.0.id(start), self.0.id(wanted)) else { return false };
        let mut seen = HashSet::from([start.clone()]);
        let mut left = VecDeque::from([start]);
        while let Some(id) = left.pop_front() {
            if id == wanted {
                return true;
            }
            let place = self.0.places(&id).ok().and_then(|places| places.first().copied());
            let further = match place.map(|place| self.0.links(place, &id)) {
                Some(Ok(Links::Commit(_, parents))) => parents,
                Some(Ok(Links::Tag(object))) => vec![object],
                _ => continue,
            };
            left.extend(further.into_iter().filter(|id| seen.insert(id.clone())));
            if seen.len() > MAX_NEW {
                return false;
            }
        }
        false
    }

    /// Returns those of some commits that neither are among the starts nor are ancestors of one. All ids are hexadecimal. What
    /// cannot be read leads nowhere.
    pub fn unreached<'b>(&mut self, starts: &[&[u8]], wanted: &[&'b [u8]]) -> Vec<&'b [u8]> {
        let mut missing: HashSet<Id> = wanted.iter().filter_map(|text| self.0.id(text)).collect();
        let mut left: VecDeque<Id> = starts.iter().filter_map(|text| self.0.id(text)).collect();
        let mut seen: HashSet<Id> = left.iter().cloned().collect();
        missing.retain(|id| !seen.contains(id));
        let most = seen.len() + MAX_NEW;
        while let Some(id) = left.pop_front().filter(|_| !missing.is_empty() && seen.len() <= most) {
            for further in self.former(&id).unwrap_or_default() {
                missing.remove(&further);
                if seen.insert(further.clone()) {
                    left.push_back(further);
                }
            }
        }
        let is_missing = |text: &&&[u8]| self.0.id(text).is_none_or(|id| missing.contains(&id));
        wanted.iter().filter(is_missing).copied().collect()
    }

    /// Reports whether two commits, whose ids are hexadecimal, have an ancestor in common, or one is an ancestor of the other. What
    /// cannot be read, and histories of too many commits, count as related.
    pub fn is_related(&mut self, one: &[u8], other: &[u8]) -> bool {
        let (Some(one), Some(other)) = (self.0.id(one), self.0.id(other)) else { return true };
        let mut seen = [HashSet::from([one.clone()]), HashSet::from([other.clone()])];
        let mut left = [VecDeque::from([one]), VecDeque::from([other])];
        loop {
            let ids = [left[0].pop_front(), left[1].pop_front()];
            if ids.iter().all(Option::is_none) {
                return false;
            }
            for (side, id) in ids.into_iter().enumerate() {
                let Some(id) = id else { continue };
                if seen[1 - side].contains(&id) {
                    return true;
                }
                let Some(further) = self.former(&id) else { return true };
                left[side].extend(further.into_iter().filter(|id| seen[side].insert(id.clone())));
            }
            if seen[0].len() + seen[1].len() > MAX_NEW {
                return true;
            }
        }
    }

    /// Returns the parents of a commit, or the object of a tag; `None` for what cannot be read or is neither.
    fn former(&mut self, id: &Id) -> Option<Vec<Id>> {
        let place = self.0.places(id).ok()?.first().copied()?;
        match self.0.links(place, id).ok()? {
            Links::Commit(_, parents) => Some(parents),
            Links::Tag(object) => Some(vec![object]),
            Links::Tree(_) | Links::Blob => None,
        }
    }

    /// Reports whether objects, whose ids are hexadecimal, or something that they lead to are missing. Those that are not new have what
    /// they need. `is_new` gets whether an object is in the layer, and its path or that of the index of its pack.
    pub fn needs(
        &mut self,
        starts: &[&[u8]],
        ends: &HashSet<&[u8]>,
        is_new: &dyn Fn(bool, &[u8]) -> bool,
        missing: Missing,
    ) -> Reach {
        let is_whole = self.has_all(starts, ends, is_new, missing);
        if self.is_known(missing) { reach(&is_whole) } else { Reach::Unknown }
    }

    /// Reports whether an object that is not found is missing in this sense.
    fn is_known(&self, missing: Missing) -> bool {
        missing == Missing::InLayer || self.0.is_whole()
    }

    /// Reports whether an object with these places counts as missing.
    fn counts(&self, missing: Missing, places: &[Place]) -> bool {
        match missing {
            Missing::Nowhere => places.is_empty(),
            Missing::InLayer => !places.is_empty() && places.iter().all(|place| self.0.is_of_layer(place)),
        }
    }

    fn has_all(
        &mut self,
        starts: &[&[u8]],
        ends: &HashSet<&[u8]>,
        is_new: &dyn Fn(bool, &[u8]) -> bool,
        missing: Missing,
    ) -> Result<bool, Problem> {
        let all: HashSet<Id> = starts.iter().filter_map(|text| self.0.id(text)).collect();
        let mut left: Vec<(Id, Wanted)> = all.iter().map(|id| (id.clone(), Wanted::Any)).collect();
        let ends: HashSet<Id> = ends.iter().filter_map(|text| self.0.id(text)).collect();
        let mut seen = all;
        let mut read = 0;
        while let Some((id, wanted)) = left.pop() {
            let mut places = self.0.places(&id)?;
            if self.counts(missing, &places) && !self.0.is_empty_tree(&id) {
                return Ok(false);
            }
            if missing == Missing::InLayer {
                places.retain(|place| !self.0.is_of_layer(place));
            }
            let Some(place) = places.first().copied() else { continue };
            let is_old = |place: &Place| !is_new(self.0.is_of_layer(place), &self.0.path(place, &id));
            if places.iter().any(is_old) {
                if missing == Missing::Nowhere
                    && wanted.is_direct()
                    && self.0.links(place, &id).is_ok_and(|links| !wanted.is(&links))
                {
                    return Ok(false);
                }
                continue;
            }
            read += 1;
            let links = match self.0.links(place, &id) {
                // Its content has the hash of its name, and is not what git reads.
                Err(Problem::Damaged) if missing == Missing::Nowhere => return Ok(false),
                Err(Problem::Damaged) => continue,
                links => links?,
            };
            if missing == Missing::Nowhere && !wanted.is(&links) {
                return Ok(false);
            }
            let commits = |ids: Vec<Id>| ids.into_iter().map(|id| (id, Wanted::Commit)).collect::<Vec<_>>();
            let trees = |ids: Vec<Id>| ids.into_iter().map(|id| (id, Wanted::Tree)).collect::<Vec<_>>();
            let further = match links {
                Links::Commit(tree, _) if ends.contains(&id) => vec![(tree, Wanted::TreeOfCommit)],
                Links::Commit(tree, parents) => [commits(parents), vec![(tree, Wanted::TreeOfCommit)]].concat(),
                Links::Tag(object) => vec![(object, Wanted::Any)],
                Links::Tree(entries) => {
                    for file in entries.files {
                        if seen.insert(file.clone()) && self.counts(missing, &self.0.places(&file)?) {
                            return Ok(false);
                        }
                    }
                    trees(entries.trees)
                }
                Links::Blob => Vec::new(),
            };
            left.extend(further.into_iter().filter(|(id, _)| seen.insert(id.clone())));
            if seen.len() > MAX_SEARCHED || read > MAX_NEW {
                return Err(Problem::Exceeds(Bound::Objects));
            }
        }
        Ok(true)
    }

    /// Reports whether objects may lie in any repository of the workspace, since it is not clear where they lie.
    pub fn is_unclear(&self) -> bool {
        self.0.is_unclear()
    }

    /// Returns the directories of objects that are searched: those of the repository, and those that it borrows from.
    pub fn directories(&self) -> HashSet<Vec<u8>> {
        self.0.directories().map(<[u8]>::to_vec).collect()
    }

    /// Searches the objects in further directories, too.
    pub fn add(&mut self, trees: &[&'a Workspace], directories: &[Vec<u8>]) -> Result<(), IoFailure> {
        let known = self.directories();
        for objects in directories.iter().filter(|objects| !known.contains(*objects)) {
            for (at, tree) in trees.iter().enumerate() {
                self.0.add((tree, at > 0), objects.clone(), &OpenFiles::default())?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of an object id.
    pub fn id_length(&self) -> usize {
        self.0.id_length()
    }

    /// Reports whether one of these objects is missing.
    pub fn has_each(&self, ids: &HashSet<Id>, missing: Missing) -> Reach {
        let has = |id: &Id| Ok(!self.counts(missing, &self.0.places(id)?));
        let mut all: Result<bool, Problem> = Ok(true);
        for id in ids {
            all = has(id);
            if !matches!(all, Ok(true)) {
                break;
            }
        }
        if self.is_known(missing) { reach(&all) } else { Reach::Unknown }
    }

    /// Reports whether the object is there that a file of this path would hold. Of a pack, and of what cannot be read, it is not
    /// known.
    pub fn has_file_of(&self, path: &[u8]) -> bool {
        let (parent, name) = split(path);
        let id = self.0.id(&[split(parent).1, name].concat());
        id.is_some_and(|id| self.0.places(&id).is_ok_and(|places| !places.is_empty()))
    }

    /// Reports whether an object, whose id is hexadecimal, is there and is not a commit.
    pub fn is_other_than_commit(&mut self, id: &[u8]) -> bool {
        let Some(id) = self.0.id(id) else { return false };
        let place = self.0.places(&id).ok().and_then(|places| places.first().copied());
        match place.map(|place| self.0.links(place, &id)) {
            Some(Ok(links)) => !matches!(links, Links::Commit(..)),
            // Nothing is known of a damaged one of the workspace, and a new one is missing as a whole.
            Some(Err(_)) | None => false,
        }
    }
}

/// The kind of object that a link leads to.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Commit,
    TreeOfCommit,
    Tree,
    Any,
}

impl Wanted {
    /// Reports whether a commit names the object, so that the kind of one that is not new is looked up as well.
    fn is_direct(self) -> bool {
        matches!(self, Self::Commit | Self::TreeOfCommit)
    }

    fn is(self, links: &Links) -> bool {
        match self {
            Self::Commit => matches!(links, Links::Commit(..)),
            Self::Tree | Self::TreeOfCommit => matches!(links, Links::Tree(..)),
            Self::Any => true,
        }
    }
}

fn reach(is_whole: &Result<bool, Problem>) -> Reach {
    match is_whole {
        Ok(true) => Reach::Whole,
        Ok(false) => Reach::Broken,
        Err(_) => Reach::Unknown,
    }
}
