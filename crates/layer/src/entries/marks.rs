//! Overlay's own extended attributes: which there are, what they mean, and which must never leave the layer. Pure.
//!
//! `user.overlay.*` in a mount made with `userxattr`, `trusted.overlay.*` otherwise (kernel: fs/overlayfs, and
//! Documentation/filesystems/overlayfs.rst). A mark that we do not know may change what the layer means, so it is an
//! error and never skipped.

/// The user who mounted the layer, on whom the marks in it depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerMode {
    /// An ordinary user in a user namespace: `userxattr`, no redirects, no index.
    User,
    /// The root launcher: `redirect_dir=on,index=on`.
    Root,
}

/// The file system of the workspace, as far as the form of its file handles depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowerFs {
    /// XFS, whose type 0x81 holds an inode of 64 bits.
    Xfs,
    /// tmpfs, whose type 1 holds a generation and an inode of 64 bits.
    Tmpfs,
    /// Any other. FUSE has a type 0x81 too, with the two halves of a node id, which is not an inode.
    Other,
}

impl LowerFs {
    /// Tells the file system by `f_type` of statfs(2).
    #[must_use]
    pub fn of(f_type: u64) -> Self {
        match f_type {
            0x5846_5342 => Self::Xfs,
            0x0102_1994 => Self::Tmpfs,
            _ => Self::Other,
        }
    }
}

/// The copied-up entry's place in the lower layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There is one, but its file handle is of a kind that names no inode we could read.
    Unknown,
    /// The inode number.
    Inode(u64),
}

/// The marks on an entry of a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The lower directory of the same place is hidden.
    pub opaque: bool,
    /// The place of the directory before it was renamed: a name, or a path from the overlay's root with a leading `/`.
    pub redirect: Option<Box<Redirect>>,
    /// Copied up from the lower layer.
    pub origin: Option<Origin>,
    /// All marks, to be removed before the entry leaves the layer.
    pub all: MarkSet,
    /// The workload itself set attributes that the next run's overlay would obey.
    pub forged: bool,
    /// The file carries capabilities (`security.capability`).
    pub capability: bool,
}

/// The old place of a renamed directory, as overlay writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect(pub Vec<u8>);

/// The marks that overlay writes. A bit of [`MarkSet`] is a place in this list.
const KNOWN: [&[u8]; 8] = [b"opaque", b"redirect", b"origin", b"protattr", b"impure", b"nlink", b"upper", b"uuid"];

/// A set of marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkSet(u8);

impl MarkSet {
    /// Adds a mark by its name without the prefix; `false` for one that is not known.
    fn add(&mut self, key: &[u8]) -> bool {
        let found = KNOWN.iter().position(|known| *known == key);
        self.0 |= found.map_or(0, |bit| 1 << bit);
        found.is_some()
    }

    /// Reports whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the attributes.
    pub fn names(self, mode: LayerMode) -> impl Iterator<Item = Vec<u8>> {
        let with_bits = KNOWN.iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0);
        with_bits.map(move |(_, key)| [mode.prefix(), key].concat())
    }
}

/// An attribute of overlay that Nexus cannot interpret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// An attribute of overlay's that this version does not know, or that this mode never writes.
    #[error("unknown overlay attribute {name:?}")]
    Unknown {
        /// Name of the attribute.
        name: String,
    },
    /// A known attribute with a value that overlay does not write.
    #[error("overlay attribute {name:?} has a value that overlay does not write")]
    Value {
        /// Name of the attribute.
        name: String,
    },
}

impl LayerMode {
    /// The prefix of overlay's attributes.
    #[must_use]
    pub fn prefix(self) -> &'static [u8] {
        match self {
            Self::User => b"user.overlay.",
            Self::Root => b"trusted.overlay.",
        }
    }
}

/// The treatment of one attribute of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attr {
    /// Overlay's: read it, never copy it.
    Mark,
    /// Content: copy it under this name.
    Copy(Vec<u8>),
    /// The workload's own, in overlay's name space; copied under this name, but only after an explicit accept.
    Forged(Vec<u8>),
    /// File capabilities in `security.capability`.
    Capability,
    /// The host's business (labels of security modules and the like): not copied.
    Leave,
}

/// Returns the treatment of an attribute with this name.
#[must_use]
pub fn attr(mode: LayerMode, name: &[u8]) -> Attr {
    if let Some(rest) = name.strip_prefix(mode.prefix()) {
        // Overlay stores what the workload sets in its name space with one more "overlay.".
        return match (mode, rest.strip_prefix(b"overlay.")) {
            (LayerMode::User, Some(inner)) => Attr::Forged([b"user.overlay.", inner].concat()),
            (LayerMode::Root | LayerMode::User, _) => Attr::Mark,
        };
    }
    if name.starts_with(b"user.overlay.") {
        return Attr::Forged(name.to_vec());
    }
    if name.starts_with(b"user.") || matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default") {
        return Attr::Copy(name.to_vec());
    }
    if name == b"security.capability" { Attr::Capability } else { Attr::Leave }
}

/// Reads one mark into `marks`.
pub fn read(mode: LayerMode, lower: LowerFs, name: &[u8], value: &[u8], marks: &mut Marks) -> Result<(), MarkError> {
    let text = || String::from_utf8_lossy(name).into_owned();
    let key = name.strip_prefix(mode.prefix()).unwrap_or(name);
    match (key, mode) {
        (b"opaque", _) => match value {
            b"y" => marks.opaque = true,
            // "x" would mean that the directory holds whiteouts made of attributes.
            _ => return Err(MarkError::Value { name: text() }),
        },
        (b"redirect", LayerMode::Root) => {
            if !redirect_is_sound(value) {
                return Err(MarkError::Value { name: text() });
            }
            marks.redirect = Some(Box::new(Redirect(value.to_vec())));
        }
        (b"origin", _) => marks.origin = Some(origin(lower, value)),
        // What chattr(1) set on the file that was copied up; the file system of the layer does not have the flags.
        (b"protattr", _) => {
            if value.is_empty() || !value.iter().all(|flag| matches!(flag, b'a' | b'i')) {
                return Err(MarkError::Value { name: text() });
            }
        }
        (b"impure" | b"nlink" | b"upper" | b"uuid", _) => {}
        _ => return Err(MarkError::Unknown { name: text() }),
    }
    if marks.all.add(key) { Ok(()) } else { Err(MarkError::Unknown { name: text() }) }
}

/// A single name, or `/` and names without `.`, `..` or empty ones.
fn redirect_is_sound(value: &[u8]) -> bool {
    let (path, absolute) = value.strip_prefix(b"/").map_or((value, false), |rest| (rest, true));
    let names = || path.split(|byte| *byte == b'/');
    !path.contains(&0) && names().all(|name| !matches!(name, b"" | b"." | b"..")) && (absolute || names().count() == 1)
}

/// The inode in overlay's origin attribute: `struct ovl_fb` (version, magic, length, flags, type, uuid) and a file
/// handle whose layout depends on the file system (fs/overlayfs/overlayfs.h, include/linux/exportfs.h).
fn origin(lower: LowerFs, value: &[u8]) -> Origin {
    const HEADER: usize = 21;
    const MAGIC: u8 = 0xfb;
    const BIG_ENDIAN: u8 = 1;
    if value.len() < HEADER || value[1] != MAGIC || usize::from(value[2]) != value.len() {
        return Origin::Unknown;
    }
    if (value[3] & BIG_ENDIAN != 0) != cfg!(target_endian = "big") {
        return Origin::Unknown;
    }
    let handle = &value[HEADER..];
    let word = |at: usize| handle.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let long = |at: usize| handle.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    let ino = match (value[4], handle.len(), lower) {
        // FILEID_INO32_GEN: inode, generation (ext4, small xfs).
        (1, 8, _) => word(0).map(u64::from),
        // The same number stands for: generation, inode low, inode high.
        (1, 12, LowerFs::Tmpfs) => word(4).zip(word(8)).map(|(low, high)| u64::from(low) | (u64::from(high) << 32)),
        // FILEID_BTRFS_WITHOUT_PARENT. Then the type for 64 bits of XFS: inode, generation.
        (0x4d, 20, _) | (0x81, 12, LowerFs::Xfs) => long(0),
        _ => None,
    };
    ino.map_or(Origin::Unknown, Origin::Inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(mode: LayerMode, name: &str, value: &[u8]) -> Result<Marks, MarkError> {
        let mut marks = Marks::default();
        read(mode, LowerFs::Other, name.as_bytes(), value, &mut marks).map(|()| marks)
    }

    #[test]
    fn known_marks_are_read() {
        assert!(read_one(LayerMode::User, "user.overlay.opaque", b"y").unwrap().opaque);
        assert_eq!(
            read_one(LayerMode::Root, "trusted.overlay.redirect", b"/a/b").unwrap().redirect.unwrap().0,
            b"/a/b"
        );
        assert_eq!(read_one(LayerMode::Root, "trusted.overlay.redirect", b"a").unwrap().redirect.unwrap().0, b"a");
    }

    #[test]
    fn a_copy_of_a_file_with_flags_is_read() {
        for (mode, name) in [(LayerMode::Root, "trusted.overlay.protattr"), (LayerMode::User, "user.overlay.protattr")]
        {
            for value in ["a", "i", "ai"] {
                let marks = read_one(mode, name, value.as_bytes()).unwrap();
                assert_eq!(marks.all.names(mode).collect::<Vec<_>>(), [name.as_bytes()], "{value}");
            }
        }
    }

    #[test]
    fn unknown_or_impossible_marks_are_errors() {
        for (mode, name, value) in [
            (LayerMode::User, "user.overlay.whiteout", b"" as &[u8]),
            (LayerMode::User, "user.overlay.metacopy", b""),
            (LayerMode::User, "user.overlay.redirect", b"a"),
            (LayerMode::User, "user.overlay.opaque", b"x"),
            (LayerMode::Root, "trusted.overlay.protattr", b"x"),
            (LayerMode::User, "user.overlay.protattr", b""),
            (LayerMode::Root, "trusted.overlay.overlay.opaque", b"y"),
        ] {
            assert!(read_one(mode, name, value).is_err(), "{name}");
        }
    }

    #[test]
    fn a_redirect_that_climbs_is_an_error() {
        for value in ["", "/", "..", "/../x", "a/b", "/a//b", "/a/./b", "a\0b"] {
            assert!(read_one(LayerMode::Root, "trusted.overlay.redirect", value.as_bytes()).is_err(), "{value:?}");
        }
    }

    /// The attribute for a file handle of this type and these words.
    fn handle(kind: u8, words: &[u32]) -> Vec<u8> {
        let length = u8::try_from(21 + 4 * words.len()).unwrap();
        let mut value = vec![0, 0xfb, length, u8::from(cfg!(target_endian = "big")), kind];
        value.extend([0; 16]);
        value.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        value
    }

    #[test]
    fn the_origin_of_ext4_names_its_inode() {
        let mut value = handle(1, &[7, 99]);
        assert_eq!(origin(LowerFs::Other, &value), Origin::Inode(7));
        value[1] = 0;
        assert_eq!(origin(LowerFs::Other, &value), Origin::Unknown);
        assert_eq!(origin(LowerFs::Other, b""), Origin::Unknown);
    }

    #[test]
    fn a_fuse_node_is_not_taken_for_an_inode() {
        let low_first = if cfg!(target_endian = "big") { [0, 7, 99] } else { [7, 0, 99] };
        assert_eq!(origin(LowerFs::of(0x5846_5342), &handle(0x81, &low_first)), Origin::Inode(7));
        let fuse = LowerFs::of(0x6573_5546);
        assert_eq!(origin(fuse, &handle(0x81, &[0, 7, 99])), Origin::Unknown);
    }

    #[test]
    fn only_on_tmpfs_does_a_handle_begin_with_its_generation() {
        let value = handle(1, &[99, 7, 1]);
        assert_eq!(origin(LowerFs::of(0x0102_1994), &value), Origin::Inode((1 << 32) | 7));
        assert_eq!(origin(LowerFs::of(0xef53), &value), Origin::Unknown);
    }

    #[test]
    fn attributes_in_overlays_name_space_are_forged_in_both_modes() {
        let forged = Attr::Forged(b"user.overlay.opaque".to_vec());
        assert_eq!(attr(LayerMode::User, b"user.overlay.overlay.opaque"), forged);
        assert_eq!(attr(LayerMode::Root, b"user.overlay.opaque"), forged);
        assert_eq!(attr(LayerMode::User, b"user.overlay.opaque"), Attr::Mark);
        assert_eq!(attr(LayerMode::User, b"user.mime"), Attr::Copy(b"user.mime".to_vec()));
        assert_eq!(attr(LayerMode::Root, b"security.capability"), Attr::Capability);
    }
}
