//! Sizes and names of files that go away, by which a copy that a program made of one of them is known again. Pure.
//!
//! A program that moves a file over the bounds of a file system copies it and removes the old one: mv(1) does so with a
//! directory in an ordinary user's layer, where rename(2) answers EXDEV. Overlay marks no such copy, since it is simply new.

use crate::meta::{EntryType, Meta};
use std::collections::HashSet;

/// Files whose traits are remembered. Beyond them any file may be a copy.
const MAX_FILES: usize = 1 << 16;

/// The sizes and names of files with bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileTraits {
    sizes: HashSet<u64>,
    names: HashSet<Vec<u8>>,
    is_cut: bool,
}

impl FileTraits {
    /// Adds an entry with this name.
    pub(crate) fn add(&mut self, name: &[u8], meta: &Meta) {
        if meta.kind != EntryType::File || meta.size == 0 || self.is_cut {
            return;
        }
        if self.names.len() >= MAX_FILES {
            *self = Self { is_cut: true, ..Self::default() };
            return;
        }
        self.sizes.insert(meta.size);
        if !self.names.contains(name) {
            self.names.insert(name.to_vec());
        }
    }

    /// Reports that an entry with this name may be a copy of one of the files: it has the size or the name of one.
    pub(crate) fn may_have(&self, name: &[u8], meta: &Meta) -> bool {
        let is_full_file = meta.kind == EntryType::File && meta.size > 0;
        is_full_file && (self.is_cut || self.sizes.contains(&meta.size) || self.names.contains(name))
    }
}
