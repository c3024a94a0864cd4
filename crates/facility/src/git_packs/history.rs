//! Follows commits through the objects of a repository, those of the workspace and those of a layer.
//!
//! | question | follows | ends |
//! |---|---|---|
//! | is a history whole? | parents | at the commits that `shallow` names |
//! | does a commit of a layer have all that it needs? | trees, files and parents of new objects | at objects that are not new |

use super::problem::{Bound, Problem};
use super::reader::{Id, Links, Reader};
use crate::beneath::{IoFailure, Workspace};
use std::collections::HashSet;

/// Commits that are followed.
const MAX_COMMITS: usize = 1 << 20;
/// New objects of one repository that are read for [`History::needs`], and objects that are searched for.
const MAX_NEW: usize = 20_000;
const MAX_SEARCHED: usize = 200_000;

/// The end of a history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each commit has its parents, up to those without any.
    Whole,
    /// An object is missing.
    Broken,
    /// The objects cannot be read, or are too many.
    Unknown,
}

/// The objects of a repository that commits are read from.
pub(crate) struct History<'a>(Reader<'a>);

impl<'a> History<'a> {
    /// Opens the objects of a repository of the workspace and what a layer adds. `trees` are its git directories in the
    /// workspace and in the layer. `None` where its object format is unknown.
    pub(crate) fn of(
        trees: &[(&'a Workspace, &[u8])],
        id_lengths: fn(&[u8]) -> Vec<usize>,
        with_trees: bool,
    ) -> Result<Option<Self>, IoFailure> {
        Ok(Reader::of(trees, id_lengths, with_trees)?.map(Self))
    }

    /// Follows the history of objects, whose ids are hexadecimal, up to those in `ends`, whose parents do not count. An
    /// object that is not there counts only as a parent.
    pub(crate) fn reach(&mut self, starts: &[&[u8]], ends: &HashSet<&[u8]>) -> Reach {
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

    /// Reports whether objects, whose ids are hexadecimal, and all that they lead to are there. Those that are not new have what
    /// they need. `is_new` gets the number of a store and the path of an object, or of the index of its pack, there.
    pub(crate) fn needs(
        &mut self,
        starts: &[&[u8]],
        ends: &HashSet<&[u8]>,
        is_new: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Reach {
        if self.0.is_whole() { reach(&self.has_all(starts, ends, is_new)) } else { Reach::Unknown }
    }

    fn has_all(
        &mut self,
        starts: &[&[u8]],
        ends: &HashSet<&[u8]>,
        is_new: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<bool, Problem> {
        let mut left: Vec<Id> = starts.iter().filter_map(|text| self.0.id(text)).collect();
        let ends: HashSet<Id> = ends.iter().filter_map(|text| self.0.id(text)).collect();
        let mut seen: HashSet<Id> = left.iter().cloned().collect();
        let mut read = 0;
        while let Some(id) = left.pop() {
            let places = self.0.places(&id)?;
            let Some(place) = places.first().copied() else {
                if self.0.is_empty_tree(&id) {
                    continue;
                }
                return Ok(false);
            };
            let is_old = |(store, path): (usize, Vec<u8>)| !is_new(store, &path);
            if places.iter().any(|place| is_old(self.0.path(place, &id))) {
                continue;
            }
            read += 1;
            let further = match self.0.links(place, &id)? {
                Links::Commit(tree, _) if ends.contains(&id) => vec![tree],
                Links::Commit(tree, parents) => parents.into_iter().chain([tree]).collect(),
                Links::Tag(object) => vec![object],
                Links::Tree(entries) => {
                    for file in entries.files {
                        if seen.insert(file.clone()) && self.0.places(&file)?.is_empty() {
                            return Ok(false);
                        }
                    }
                    entries.trees
                }
                Links::Blob => Vec::new(),
            };
            left.extend(further.into_iter().filter(|id| seen.insert(id.clone())));
            if seen.len() > MAX_SEARCHED || read > MAX_NEW {
                return Err(Problem::Exceeds(Bound::Objects));
            }
        }
        Ok(true)
    }

    /// Reports whether an object, whose id is hexadecimal, is there and is not a commit.
    pub(crate) fn is_other_than_commit(&mut self, id: &[u8]) -> bool {
        let Some(id) = self.0.id(id) else { return false };
        let place = self.0.places(&id).ok().and_then(|places| places.first().copied());
        let links = place.and_then(|place| self.0.links(place, &id).ok());
        links.is_some_and(|links| !matches!(links, Links::Commit(..)))
    }
}

fn reach(is_whole: &Result<bool, Problem>) -> Reach {
    match is_whole {
        Ok(true) => Reach::Whole,
        Ok(false) => Reach::Broken,
        Err(_) => Reach::Unknown,
    }
}
