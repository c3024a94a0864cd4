//! Decides whether the names of a file in a layer may stay hard links to one file. Pure.

/// The decision whether all names of a file may stay names of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tie {
    /// They may: all names are known and none is protected.
    #[default]
    Whole,
    /// A name is protected: each committed name becomes a file of its own.
    Protected,
    /// Some names are not in the workspace: the committed names part from them.
    Unknown,
}

impl Tie {
    /// Decides for a file of the workspace with `links` names, of which `found` are known, or for a new one.
    pub(crate) fn of(links: Option<u32>, found: usize, is_protected: bool) -> Self {
        match links {
            _ if is_protected => Self::Protected,
            Some(links) if usize::try_from(links).map_or(true, |links| found < links) => Self::Unknown,
            Some(_) | None => Self::Whole,
        }
    }

    /// Returns why a change that only overlay's index holds is held back: it has no name that could part.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Protected => Some("its file has a protected name too"),
            Self::Unknown => Some("its file has names outside the workspace too"),
        }
    }
}
