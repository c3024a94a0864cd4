//! Finds out what the new commits of a run were made on.

use super::reader::{Id, Links, Reader};
use nexus_beneath::Workspace;
use std::collections::HashSet;

/// New commits that are followed.
const MAX_NEW: usize = 20_000;

/// Reports whether a commit is another one, or was made on it: by new commits alone the one leads to the other. Both ids are
/// hexadecimal. `is_new` gets the path of an object, or of the index of its pack. What cannot be read was made on nothing.
pub fn is_built_on(
    git_dir: (&Workspace, &[u8]),
    id_lengths: fn(&[u8]) -> Vec<usize>,
    (start, wanted): (&[u8], &[u8]),
    is_new: &dyn Fn(&[u8]) -> bool,
) -> bool {
    let Ok(Some(mut reader)) = Reader::of(&[git_dir], id_lengths, false) else { return false };
    let (Some(start), Some(wanted)) = (reader.id(start), reader.id(wanted)) else { return false };
    let mut seen = HashSet::from([start.clone()]);
    let mut left = vec![start];
    while let Some(id) = left.pop().filter(|_| seen.len() <= MAX_NEW) {
        if id == wanted {
            return true;
        }
        left.extend(before(&mut reader, &id, is_new).into_iter().filter(|id| seen.insert(id.clone())));
    }
    false
}

/// Returns the parents of a new commit, or the object of a new tag.
fn before(reader: &mut Reader<'_>, id: &Id, is_new: &dyn Fn(&[u8]) -> bool) -> Vec<Id> {
    let places = reader.places(id).unwrap_or_default();
    if !places.iter().all(|place| is_new(&reader.path(place, id))) {
        return Vec::new();
    }
    match places.first().map(|place| reader.links(*place, id)) {
        Some(Ok(Links::Commit(_, parents))) => parents,
        Some(Ok(Links::Tag(object))) => vec![object],
        _ => Vec::new(),
    }
}
