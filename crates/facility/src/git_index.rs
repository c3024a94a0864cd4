//! Holds back an index of git that names what no working tree may have.
//!
//! git checks the names of trees (`verify_path`) and believes those of the index: `git checkout .` would write
//! `.git/hooks`, `.git/config` and files outside of the working tree. The reader takes what gitformat-index(5) says,
//! without git's leniency: what it does not understand is held back.

pub(crate) mod damage;
pub(crate) mod flags;
pub mod in_place;
mod lengths;
pub(crate) mod meaning;
mod sha1;
mod stat_data;

pub(crate) use self::lengths::lengths_by as id_lengths;
use self::lengths::{Lengths, said_lengths};
use self::stat_data::Settled;
use crate::beneath::{Doing as _, IoFailure, join, names, open_file, split};
use crate::fold::fold;
use crate::link_ends::is_no_way;
use crate::meta::EntryType;
use crate::reads::Reads;
use crate::tree::{LayerTree, Role, Verdict};
use crate::walk::{LastDir, Walk, lower_path};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

/// Larger configurations say nothing about the format.
const MAX_CONFIG: u64 = 1 << 20;
/// Indexes of a directory of the workspace that are looked at for what they hid before.
const MAX_BEFORE: usize = 4;
const MAGIC: &[u8] = b"DIRC";
/// Bytes before the first entry.
const HEADER: usize = 12;
/// Bytes of an object id by SHA-1 and by SHA-256.
const SHORT: usize = 20;
const LONG: usize = 32;

/// Sets the verdicts of the index files of a layer, whatever directory they are in: it may become a git directory.
pub(crate) fn judge(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
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
        let mut compared = None;
        let why = match read(dir, name, &reads).doing("read", &one.path.0)? {
            Content::Other => None,
            Content::Closed => Some("a git index that cannot be read"),
            Content::TooLarge => Some("a git index that is too large to be read"),
            Content::Index(Index { bytes, .. }) => {
                let said = said_lengths(&mut allowed, tree, &moved, one.parent)?;
                // It makes no sense in another length than its own, so that only its names count in one that no
                // configuration says.
                let counts = |length: usize, why: &str| said.contains(&length) || why == NAMES;
                let problem = |length| problem(&bytes, length).filter(|why| counts(length, why));
                let before = before(walk, tree, one.parent)?;
                if let Some(covered) = one.covers.as_ref().filter(|old| old.meta.kind == EntryType::File) {
                    compared = Some(meaning::compare(walk, covered, &bytes)?);
                }
                settled = stat_data::settled(&bytes, &before, fold(name).as_ref() != b"index");
                let hides = || flags::hide_more(&bytes, &before).then_some(flags::HIDES);
                [SHORT, LONG].into_iter().find_map(problem).or_else(hides)
            }
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

/// Tells whether a name is that of an index, or of one that others share.
fn is_index(name: &[u8]) -> bool {
    let folded = fold(name);
    folded.as_ref() == b"index" || folded.starts_with(b"sharedindex.")
}

enum Content {
    /// It is not an index.
    Other,
    /// This user cannot read it, and may open it to itself later.
    Closed,
    TooLarge,
    Index(Index),
}

/// The bytes of an index.
struct Index {
    bytes: Vec<u8>,
    /// The second in which it was written.
    written: i64,
}

/// Reads an index, up to what may still be read.
fn read(dir: BorrowedFd<'_>, name: &[u8], reads: &Reads) -> io::Result<Content> {
    let file = match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Content::Other),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Content::Closed),
        Err(error) => return Err(error),
    };
    let mut file = std::fs::File::from(file);
    let mut bytes = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes != MAGIC {
        return Ok(Content::Other);
    }
    let meta = file.metadata()?;
    if !reads.take(&meta) {
        return Ok(Content::TooLarge);
    }
    let size = meta.len();
    bytes.reserve(usize::try_from(size).unwrap_or(0));
    file.take(size).read_to_end(&mut bytes)?;
    Ok(Content::Index(Index { bytes, written: meta.mtime() }))
}

const UNKNOWN: &str = "a git index that cannot be understood";
const NAMES: &str = "a git index with names that no working tree may have";

/// Returns why an index may not come unasked. Pure.
pub(crate) fn problem(bytes: &[u8], id: usize) -> Option<&'static str> {
    match inspect(bytes, id, &mut |_| {}) {
        Some(true) => None,
        Some(false) => Some(NAMES),
        None => Some(UNKNOWN),
    }
}

/// Reads from the front of a slice.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Reads a number as `decode_varint` of git does.
    fn varint(&mut self) -> Option<usize> {
        let mut value: usize = 0;
        for turn in 0..5 {
            let byte = self.take(1)?[0];
            value = if turn == 0 { 0 } else { value.checked_add(1)? }.checked_mul(128)? | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Bytes up to a zero byte, which is taken too.
    fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }
}

/// Longer paths and names cannot be written by git (`PATH_MAX`, `NAME_MAX`), and would take long to be looked at.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;
/// Bit of an entry that says that there are more bits.
const EXTENDED: u16 = 0x4000;
/// Length of a name, as far as the bits say it.
const LENGTH: u16 = 0x0fff;
/// A directory that a sparse index does not spell out.
const SPARSE: u32 = 0o04_0000;

/// Further flags that git knows: skip-worktree, and a file that is to be added.
const KNOWN_MORE: u16 = 0x6000;

/// The parts of an entry of an index that this reader uses.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    flags: u16,
    more: u16,
    /// The bytes of the index that it has.
    begin: usize,
    end: usize,
}

/// Reports whether all names of an index are such as a tree can have; `None` for an index that git or this reader does
/// not know. Gives each entry to `seen`.
pub(crate) fn inspect(bytes: &[u8], id: usize, seen: &mut dyn FnMut(&Entry<'_>)) -> Option<bool> {
    let end = bytes.len().checked_sub(id)?;
    let mut reader = Reader { bytes: &bytes[..end], at: 0 };
    if reader.take(4)? != MAGIC {
        return None;
    }
    let (version, count) = (reader.number()?, reader.number()?);
    if !(2..=4).contains(&version) {
        return None;
    }
    // Where each entry begins, and whether its name is spelt out as a whole: git reads blocks of entries from there.
    let mut begins: Vec<(usize, bool)> = Vec::new();
    let (mut name, mut has_empty) = (Vec::new(), false);
    for _ in 0..count {
        let begin = reader.at;
        reader.take(24)?;
        let mode = u32::try_from(reader.number()?).ok()?;
        reader.take(12 + id)?;
        let flags = reader.short()?;
        let more = if flags & EXTENDED != 0 { reader.short()? } else { 0 };
        if more & !KNOWN_MORE != 0 {
            return None;
        }
        // Bytes that stay of the name before, whose whole components were looked at with it.
        let stays = if version == 4 {
            let stripped = reader.varint()?;
            let stays = name.len().checked_sub(stripped)?;
            name.truncate(stays);
            name.extend_from_slice(reader.text()?);
            stays
        } else {
            let text = reader.text()?;
            name.clear();
            name.extend_from_slice(text);
            // One to eight zero bytes fill up the entry.
            let padded = (reader.at - 1 - begin + 8) & !7;
            let rest = (begin + padded).checked_sub(reader.at)?;
            if reader.take(rest)?.iter().any(|byte| *byte != 0) {
                return None;
            }
            0
        };
        if name.len() > MAX_PATH {
            return Some(false);
        }
        let said = usize::from(flags & LENGTH);
        if said != name.len().min(usize::from(LENGTH)) {
            return None;
        }
        has_empty |= name.is_empty();
        let known = name[..stays].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        if !name.is_empty() && !is_good(&name[known..], mode) {
            return Some(false);
        }
        seen(&Entry { name: &name, flags, more, begin, end: reader.at });
        begins.push((begin, stays == 0));
    }
    let has_link = extensions(&bytes[..end], reader.at, &begins)?;
    Some(has_link || !has_empty)
}

/// Extensions that git knows and that hold no names of files to be written.
const KNOWN: &[&[u8]] = &[b"TREE", b"REUC", b"UNTR", b"FSMN", b"sdir"];
/// The end of the entries as git looks for it before the trailer: signature, size, offset and 20 bytes, whatever the
/// length of an object id (`EOIE_SIZE_WITH_HEADER`).
const END_OF_ENTRIES: usize = 32;

/// Reads the extensions from `start` on; returns whether names may stand in another file.
fn extensions(bytes: &[u8], start: usize, begins: &[(usize, bool)]) -> Option<bool> {
    // git takes it from the end of the file on, wherever the extensions begin. There it must be one of them.
    let last = bytes.len().checked_sub(END_OF_ENTRIES);
    let mut has_end = last.is_some_and(|at| bytes[at..].starts_with(b"EOIE"));
    let mut reader = Reader { bytes, at: start };
    let mut has_link = false;
    while reader.at < bytes.len() {
        let at = reader.at;
        let signature = reader.take(4)?;
        let size = reader.number()?;
        let mut inside = Reader { bytes: reader.take(size)?, at: 0 };
        match signature {
            b"link" => has_link = true,
            // git reads the extensions, or blocks of entries, from the places that these name.
            b"EOIE" if inside.number()? == start => has_end &= last != Some(at),
            b"IEOT" => blocks(&mut inside, begins)?,
            known if KNOWN.contains(&known) => {}
            _ => return None,
        }
    }
    (!has_end).then_some(has_link)
}

/// Returns a value if all blocks begin where an entry with a whole name does, and hold all entries; otherwise `None`.
fn blocks(reader: &mut Reader<'_>, begins: &[(usize, bool)]) -> Option<()> {
    if reader.number()? != 1 {
        return None;
    }
    let mut entry = 0usize;
    while reader.at < reader.bytes.len() {
        let (offset, count) = (reader.number()?, reader.number()?);
        let is_entry = begins.get(entry).is_some_and(|(at, is_whole)| *at == offset && *is_whole);
        if !is_entry {
            return None;
        }
        entry = entry.checked_add(count)?;
    }
    (entry == begins.len()).then_some(())
}

/// Reports whether a name is one that `verify_path` of git accepts: neither absolute, nor outside, nor in a git
/// directory. Longer components than a file system has are not looked at.
fn is_good(name: &[u8], mode: u32) -> bool {
    let name = if mode == SPARSE { name.strip_suffix(b"/").unwrap_or(name) } else { name };
    let is_bad =
        |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.len() > MAX_NAME || fold(part).as_ref() == b".git";
    !name.split(|byte| *byte == b'/').any(is_bad)
}

#[cfg(test)]
#[path = "git_index_tests.rs"]
mod tests;
