//! Reads the entries of an index of git (gitformat-index(5)). Pure.

use nexus_beneath::fold::fold;

/// The first bytes of an index.
pub const MAGIC: &[u8] = b"DIRC";
/// Bytes before the first entry.
pub const HEADER: usize = 12;
/// Bytes of an object id by SHA-1 and by SHA-256.
pub const SHORT: usize = 20;
/// Bytes of an object id of SHA-256.
pub const LONG: usize = 32;

/// Reads from the front of a slice.
pub struct Reader<'a> {
    /// The bytes that are read.
    pub bytes: &'a [u8],
    /// The position of the next byte.
    pub at: usize,
}

impl<'a> Reader<'a> {
    /// Takes the next `count` bytes; `None` where there are fewer.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// Takes a number of four bytes.
    pub fn number(&mut self) -> Option<usize> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    /// Takes a number of two bytes.
    pub fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Reads a number as `decode_varint` of git does.
    pub fn varint(&mut self) -> Option<usize> {
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
    pub fn text(&mut self) -> Option<&'a [u8]> {
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
pub const EXTENDED: u16 = 0x4000;
/// Length of a name, as far as the bits say it.
pub const LENGTH: u16 = 0x0fff;
/// A directory that a sparse index does not spell out.
const SPARSE: u32 = 0o04_0000;

/// Further flags that git knows: skip-worktree, and a file that is to be added.
const KNOWN_MORE: u16 = 0x6000;

/// The parts of an entry of an index that this reader uses.
pub struct Entry<'a> {
    /// The path in the working tree.
    pub name: &'a [u8],
    /// The flags that each entry has, with the length of its name.
    pub flags: u16,
    /// The flags of an extended entry; otherwise 0.
    pub more: u16,
    /// The bytes of the index that it has.
    pub begin: usize,
    /// The position of the first byte behind the entry.
    pub end: usize,
}

/// Reports whether all names of an index are such as a tree can have; `None` for an index that git or this reader does
/// not know. Gives each entry to `seen`.
pub fn inspect(bytes: &[u8], id: usize, seen: &mut dyn FnMut(&Entry<'_>)) -> Option<bool> {
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
