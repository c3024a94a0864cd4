//! Paths of many entries, which share the bytes of their text: an entry of a layer stays small.

use nexus_model::ByteText;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A path that several entries may share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedPath(pub Piece);

/// A piece of a text that many paths have together, so that each takes no more memory than its own bytes.
#[derive(Clone)]
pub struct Piece {
    text: Arc<Vec<u8>>,
    from: u32,
    length: u32,
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let (from, length) = (self.from as usize, self.length as usize);
        self.text.get(from..from + length).unwrap_or_default()
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Piece {}

impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Piece {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Piece {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// The longest text that paths share.
const LONGEST: usize = 1 << 20;

impl SharedPath {
    /// The paths of the entries of a directory, which share their text.
    pub(crate) fn of_entries(directory: &[u8], names: &[Vec<u8>]) -> Vec<Self> {
        let mut all = Vec::with_capacity(names.len());
        let mut rest = names;
        while !rest.is_empty() {
            let mut text = Vec::new();
            let mut ends = Vec::new();
            for name in rest {
                if !directory.is_empty() {
                    text.extend_from_slice(directory);
                    text.push(b'/');
                }
                text.extend_from_slice(name);
                ends.push(text.len());
                if text.len() > LONGEST {
                    break;
                }
            }
            rest = &rest[ends.len()..];
            text.shrink_to_fit();
            let text = Arc::new(text);
            let mut from = 0;
            for end in ends {
                all.push(Self(Piece { text: Arc::clone(&text), from: from as u32, length: (end - from) as u32 }));
                from = end;
            }
        }
        all
    }

    /// A copy of its bytes.
    #[must_use]
    pub fn text(&self) -> ByteText {
        ByteText(self.0.to_vec())
    }
}

impl fmt::Debug for SharedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

impl From<Vec<u8>> for SharedPath {
    fn from(path: Vec<u8>) -> Self {
        let length = path.len() as u32;
        Self(Piece { text: Arc::new(path), from: 0, length })
    }
}

impl From<&[u8]> for SharedPath {
    fn from(path: &[u8]) -> Self {
        path.to_vec().into()
    }
}

impl PartialEq<ByteText> for SharedPath {
    fn eq(&self, other: &ByteText) -> bool {
        *self.0 == *other.0
    }
}
