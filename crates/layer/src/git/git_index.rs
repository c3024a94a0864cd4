//! Holds back an index of git that names what no working tree may have.
//!
//! git checks the names of trees (`verify_path`) and believes those of the index: `git checkout .` would write
//! `.git/hooks`, `.git/config` and files outside of the working tree. `nexus_git::index`
//! reads it, and what that does not understand is held back.

mod compare;
mod lengths;

use self::lengths::{Lengths, said_lengths};
use crate::beneath::{Doing as _, IoFailure, is_no_way, join, names, split};
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::fold::fold;
use crate::meta::EntryType;
use crate::read::walk::{LastDir, Walk, lower_path};
use nexus_git::index::file::{Content, Index, NAMES, UNKNOWN, is_index, problem, read};
use nexus_git::index::format::{LONG, SHORT};
use nexus_git::index::stat_data::{self, Settled};
use nexus_git::index::{damage, flags, hex, split};
use nexus_git::reads::Reads;
use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Indexes of a directory of the workspace that are looked at for what they hid before.
const MAX_BEFORE: usize = 4;

/// Sets the verdicts of the index files of a layer, whatever directory they are in: it may become a git directory.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let named = |name: &'static [u8]| -> HashMap<usize, usize> {
        let is_it = |at: &usize| split(&tree.nodes[*at].path.0).1 == name;
        (1..tree.nodes.len()).filter(is_it).map(|at| (tree.nodes[at].parent, at)).collect()
    };
    let (configs, moved) = (named(b"config"), named(b"commondir"));
    let mut dirs = LastDir::new(walk.upper);
    let reads = Reads::default();
    let mut allowed = Lengths { walk, configs: &configs, reads: &reads, known: HashMap::new() };
    for at in 1..tree.nodes.len() {
        let one = &tree.nodes[at];
        let (parent, name) = split(&one.path.0);
        let stays = one.rare.verdict == Some(Verdict::LeaveOut);
        if !is_index(name) || stays || one.role != Role::Entry || one.meta.kind != EntryType::File {
            continue;
        }
        let dir = dirs.get(parent).doing("open", parent)?;
        let mut settled = Settled::AsItIs;
        let (mut compared, mut whole) = (None, None);
        let why = match read(dir, name, &reads).doing("read", &one.path.0)? {
            Content::Other => None,
            Content::Closed => Some("a git index that cannot be read"),
            Content::TooLarge => Some("a git index that is too large to be read"),
            Content::Index(Index { bytes, .. }) => {
                if fold(name).as_ref() == b"index" {
                    whole = with_shared(walk, tree, one.parent, (dir, &bytes), &reads)?;
                }
                let bytes = whole.clone().unwrap_or(bytes);
                let said = said_lengths(&mut allowed, tree, &moved, one.parent)?;
                // It makes no sense in another length than its own, so that only its names count in one that no
                // configuration says.
                let counts = |length: usize, why: &str| said.contains(&length) || why == NAMES;
                let problem = |length| problem(&bytes, length).filter(|why| counts(length, why));
                let before = before(walk, tree, one.parent)?;
                if let Some(covered) = one.covers.as_ref().filter(|old| old.meta.kind == EntryType::File) {
                    compared = Some(compare::compare(walk, covered, &bytes)?);
                }
                settled = stat_data::settled(&bytes, &before, fold(name).as_ref() != b"index");
                let hides = || flags::hide_more(&bytes, &before).then_some(flags::HIDES);
                [SHORT, LONG].into_iter().find_map(problem).or_else(hides)
            }
        };
        let settled = match (settled, whole) {
            (Settled::AsItIs, Some(whole)) => Settled::Instead(whole),
            (settled, _) => settled,
        };
        let (instead, unsettled) = match settled {
            Settled::AsItIs => (None, None),
            Settled::Ambiguous => (None, Some(UNKNOWN)),
            Settled::Instead(_) if one.group().is_some() => (None, Some("a git index under several names")),
            Settled::Instead(bytes) => (Some(bytes), None),
        };
        let is_held = matches!(one.rare.verdict, Some(Verdict::Park(_)));
        let rare = &mut tree.nodes[at].rare;
        if let Some(why) = why.or(unsettled).filter(|_| !is_held) {
            rare.verdict = Some(Verdict::Park(why.to_owned()));
        }
        if instead.is_some() {
            rare.instead = instead;
        }
        if let Some(compared) = compared {
            (rare.same_entries, rare.refreshed) = (compared.is_same, compared.is_refreshed);
            tree.indexes.extend(compared.note);
        }
    }
    Ok(())
}

/// Returns an index of the layer with the entries of the one that it shares, where that file would come from the layer
/// with a wrong checksum, or has one already.
fn with_shared(
    walk: &Walk<'_>,
    tree: &LayerTree,
    directory: usize,
    (dir, index): (BorrowedFd<'_>, &[u8]),
    reads: &Reads,
) -> Result<Option<Vec<u8>>, IoFailure> {
    let is_good = |length| damage::has_checksum(index, length);
    let Some(link) = split::link(index).filter(|link| is_good(link.sum.len())) else { return Ok(None) };
    let name = [b"sharedindex.", &*hex(link.sum)].concat();
    let path = join(&tree.nodes[directory].path.0, &name);
    let of_base = match lower_path(&tree.nodes[directory]) {
        Some(base) => match walk.base.dir(base).and_then(|dir| read(dir.as_fd(), &name, reads)) {
            Ok(content) => Some(content),
            Err(error) if is_no_way(&error) => None,
            Err(error) => return Err(error).doing("read", &path),
        },
        None => None,
    };
    let shared = match of_base {
        Some(Content::Index(shared)) if damage::has_checksum(&shared.bytes, link.sum.len()) => return Ok(None),
        Some(content) => Some(content),
        None => match read(dir, &name, reads) {
            Ok(content) => Some(content),
            Err(error) if is_no_way(&error) => None,
            Err(error) => return Err(error).doing("read", &path),
        },
    };
    let Some(Content::Index(shared)) = shared else { return Ok(None) };
    Ok(split::whole(index, &link, &shared.bytes))
}

/// Returns the indexes that the workspace has in a directory of the layer. What cannot be read says nothing.
fn before(walk: &Walk<'_>, tree: &LayerTree, directory: usize) -> Result<Vec<Index>, IoFailure> {
    let Some(base) = lower_path(&tree.nodes[directory]) else { return Ok(Vec::new()) };
    let dir = match walk.base.readable_dir(base) {
        Ok(dir) => dir,
        Err(error) if is_no_way(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("open", base),
    };
    let mut found = Vec::new();
    let mut all = names(dir.as_fd()).doing("list", base)?;
    all.retain(|name| is_index(name));
    // The index itself comes before those that it shares.
    all.sort_unstable();
    for name in all.into_iter().take(MAX_BEFORE) {
        match read(dir.as_fd(), &name, &walk.reads) {
            Ok(Content::Index(index)) => found.push(index),
            Ok(Content::Other | Content::Closed | Content::TooLarge) => {}
            Err(error) if is_no_way(&error) => {}
            Err(error) => return Err(error).doing("read", &join(base, &name)),
        }
    }
    Ok(found)
}
