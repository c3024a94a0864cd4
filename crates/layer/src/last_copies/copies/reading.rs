//! Reads the contents that are compared, up to a bound.

use super::lines::{LONGEST, Lines};
use super::pieces::{Finder, Piece, Pieces};
use crate::beneath::{Workspace, open_file, split};
use crate::entries::tree::{LayerTree, Verdict};
use crate::meta::EntryType;
use crate::read::walk::LastDir;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// The bytes that one commit takes to pieces. What comes after that is not known.
const MAX_TAKEN: u64 = 256 << 20;

/// The bytes that one commit compares one by one.
const MAX_COMPARED: u64 = 1 << 30;

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;

/// Bytes around a change that belong to pieces and lines that the change cuts.
const AROUND: u64 = 64;

/// A content that can be read in any place.
pub(super) enum Content {
    File(File, u64),
    Bytes(Vec<u8>),
}

impl Content {
    pub(super) fn all(&self) -> Range<u64> {
        0..self.size()
    }

    /// Returns a part and what belongs to pieces at its edges.
    pub(super) fn around(&self, part: &Range<u64>) -> Range<u64> {
        part.start.saturating_sub(AROUND)..part.end.saturating_add(AROUND).min(self.size())
    }

    /// Reports whether a content says something only as a whole: it may be a part of any other one.
    pub(super) fn is_tiny(&self) -> bool {
        self.size() <= LONGEST as u64
    }

    fn size(&self) -> u64 {
        match self {
            Self::File(_, size) => *size,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Fills a block from a place that has so many bytes.
    fn fill(&self, block: &mut [u8], from: u64) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.read_exact_at(block, from),
            Self::Bytes(bytes) => {
                let from = usize::try_from(from).map_err(io::Error::other)?;
                let part = bytes.get(from..).and_then(|rest| rest.get(..block.len()));
                block.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// Reads contents of a layer and of the workspace.
pub(super) struct Reading<'a> {
    pub(super) tree: &'a LayerTree,
    pub(super) base: &'a Workspace,
    upper_dirs: LastDir<'a>,
    base_dirs: LastDir<'a>,
    taken: u64,
    compared: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn new(tree: &'a LayerTree, upper: &'a Workspace, base: &'a Workspace) -> Self {
        let (upper_dirs, base_dirs) = (LastDir::new(upper), LastDir::new(base));
        Self { tree, base, upper_dirs, base_dirs, taken: MAX_TAKEN, compared: MAX_COMPARED }
    }

    /// Opens a file of the workspace.
    pub(super) fn file(&mut self, path: &[u8]) -> io::Result<Content> {
        open(&mut self.base_dirs, path)
    }

    /// Opens the run's version of a file.
    pub(super) fn new_version(&mut self, at: usize) -> io::Result<Content> {
        open(&mut self.upper_dirs, &self.tree.nodes[at].path.0)
    }

    /// Returns the content that the workspace has in the place of an entry that stays in the layer; `None` if there is
    /// no file.
    pub(super) fn after(&mut self, at: usize) -> io::Result<Option<Content>> {
        let node = &self.tree.nodes[at];
        if let Some(Verdict::Strip(content)) = &node.rare.verdict {
            return Ok(Some(Content::Bytes(content.clone())));
        }
        let old = node.covers.as_ref().filter(|found| found.meta.kind == EntryType::File);
        old.map(|found| self.file(&found.at.0)).transpose()
    }

    /// Reads the text of a link of the layer.
    pub(super) fn link_of_layer(&mut self, at: usize) -> io::Result<Vec<u8>> {
        link(&mut self.upper_dirs, &self.tree.nodes[at].path.0)
    }

    /// Reads the text of a link of the workspace.
    pub(super) fn link(&mut self, path: &[u8]) -> io::Result<Vec<u8>> {
        link(&mut self.base_dirs, path)
    }

    /// Gives a part of a content to `take`, block by block.
    pub(super) fn each(&mut self, content: &Content, part: Range<u64>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut left = part.end.saturating_sub(part.start);
        spend(&mut self.taken, left)?;
        let (mut block, mut at) = (vec![0; BLOCK], part.start);
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            content.fill(&mut block[..count], at)?;
            take(&block[..count]);
            at += count as u64;
            left -= count as u64;
        }
        Ok(())
    }

    /// Tells whether each line of a tiny content is a line of another one.
    pub(super) fn has_lines(&mut self, content: &Content, tiny: &Content) -> io::Result<bool> {
        let mut bytes = Vec::new();
        self.each(tiny, tiny.all(), |block| bytes.extend_from_slice(block))?;
        let mut lines = Lines::of(&bytes);
        self.each(content, content.all(), |block| lines.add(block))?;
        Ok(lines.are_all_there())
    }

    /// Returns the part of `one` between what both begin and what both end with.
    pub(super) fn changed(&mut self, one: &Content, other: &Content) -> io::Result<Range<u64>> {
        let (sizes, (mut a, mut b)) = ((one.size(), other.size()), (vec![0; BLOCK], vec![0; BLOCK]));
        let shorter = sizes.0.min(sizes.1);
        let mut alike = |before: u64, is_end: bool| {
            let count = usize::try_from(shorter - before).unwrap_or(BLOCK).min(BLOCK);
            spend(&mut self.compared, count as u64)?;
            let place = |size: u64| if is_end { size - before - count as u64 } else { before };
            one.fill(&mut a[..count], place(sizes.0))?;
            other.fill(&mut b[..count], place(sizes.1))?;
            let pairs = || a[..count].iter().zip(&b[..count]);
            let is_same = |(a, b): &(&u8, &u8)| a == b;
            let same =
                if is_end { pairs().rev().take_while(is_same).count() } else { pairs().take_while(is_same).count() };
            Ok::<_, io::Error>((same, same == count))
        };
        let mut both = [0, 0];
        for (is_end, length) in [false, true].into_iter().zip(&mut both) {
            while *length < shorter {
                let (same, is_all) = alike(*length, is_end)?;
                *length += same as u64;
                if !is_all {
                    break;
                }
            }
        }
        let [begin, end] = both;
        Ok(begin..sizes.0 - end.min(shorter - begin))
    }
}

/// Takes bytes off what may still be read.
fn spend(left: &mut u64, bytes: u64) -> io::Result<()> {
    *left = left.checked_sub(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
    Ok(())
}

fn open(dirs: &mut LastDir<'_>, path: &[u8]) -> io::Result<Content> {
    let (parent, name) = split(path);
    let file = File::from(open_file(dirs.get(parent)?, name, OFlags::RDONLY)?);
    let size = file.metadata()?.len();
    Ok(Content::File(file, size))
}

fn link(dirs: &mut LastDir<'_>, path: &[u8]) -> io::Result<Vec<u8>> {
    let (parent, name) = split(path);
    Ok(rustix::fs::readlinkat(dirs.get(parent)?, name, Vec::new())?.into_bytes())
}

/// Returns the pieces that a content has, in order.
pub(super) fn common(reading: &mut Reading<'_>, pieces: &[Piece], content: &Content) -> io::Result<Vec<Piece>> {
    let pieces = Pieces::new(pieces);
    let mut found = Finder::by_line(&pieces);
    reading.each(content, content.all(), |block| found.add(block))?;
    Ok(found.end())
}
