//! The attributes of the workspace's own directory, which a layer's upper directory carries in its place.
//!
//! The overlay shows the upper directory as the workspace, and new files in it inherit its group, setgid bit and access list. The
//! upper directory therefore gets the attributes of the workspace, so that new files get the same ones as outside. If the command
//! changes these attributes, that is reported as a change of the path `.`: the layer records both directories' attributes at the
//! start, and a commit compares them with those at the end.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod};
use crate::disk::xattr;
use crate::entries::marks::{Attr, LayerMode, attr};
use crate::meta::stat;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// New files take the group of a directory with this bit.
const SETGID: u32 = 0o2000;
/// Bits that an upper directory gets. Setuid means nothing on a directory.
pub(crate) const CARRIED: u32 = 0o3777;
/// Holds the access list of new files.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Attributes of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopAttrs {
    /// Permission bits with setuid, setgid and sticky (`07777`).
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Extended attributes and access lists, ordered by name.
    pub attrs: Vec<(ByteText, ByteText)>,
}

impl TopAttrs {
    /// Reads the attributes of an open directory, as far as a layer carries them.
    pub(crate) fn read(mode: LayerMode, dir: BorrowedFd<'_>) -> std::io::Result<Self> {
        let meta = stat(dir, b"")?;
        let mut attrs = Vec::new();
        for name in xattr::list(dir, b"")? {
            if matches!(attr(mode, &name), Attr::Copy(_)) {
                let value = xattr::get(dir, b"", &name)?;
                attrs.push((ByteText(name), ByteText(value)));
            }
        }
        attrs.sort();
        Ok(Self { mode: meta.mode, owner: (meta.uid, meta.gid), attrs })
    }
}

/// The attributes of both directories when a layer was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Of the workspace.
    pub workspace: TopAttrs,
    /// Of the upper directory.
    pub upper: TopAttrs,
}

/// The change that the run made to the attributes of the workspace's own directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopChange {
    /// The attributes that the workspace gets.
    pub(crate) wanted: TopAttrs,
    /// Another process changed the workspace's attributes, too.
    pub(crate) is_conflict: bool,
}

impl Top {
    /// Reports whether the upper directory has other attributes than at the start. Its owner counts for root's layers
    /// alone: an ordinary user cannot always give it the workspace's group.
    pub(crate) fn is_changed(&self, mode: LayerMode, upper: &TopAttrs) -> bool {
        let owner = mode == LayerMode::Root && upper.owner != self.upper.owner;
        owner || upper.mode != self.upper.mode || upper.attrs != self.upper.attrs
    }

    /// Decides what becomes of the workspace's attributes: each one that the run changed, and the others as they are
    /// now. Pure. `None` when the workspace has them already.
    pub(crate) fn change(&self, mode: LayerMode, upper: &TopAttrs, now: &TopAttrs) -> Option<TopChange> {
        if !self.is_changed(mode, upper) {
            return None;
        }
        let pick = |was: u32, new: u32, now: u32| if was == new { now } else { new };
        let owner = match mode {
            LayerMode::User => now.owner,
            LayerMode::Root => (
                pick(self.upper.owner.0, upper.owner.0, now.owner.0),
                pick(self.upper.owner.1, upper.owner.1, now.owner.1),
            ),
        };
        let bits = pick(self.upper.mode & CARRIED, upper.mode & CARRIED, now.mode & CARRIED);
        let attrs = if upper.attrs == self.upper.attrs { &now.attrs } else { &upper.attrs };
        let wanted = TopAttrs { mode: bits | (now.mode & !CARRIED), owner, attrs: attrs.clone() };
        (wanted != *now).then(|| TopChange { is_conflict: *now != self.workspace, wanted })
    }

    /// The state of the start for a layer in memory, whose upper directory gets less (see `unfit`).
    pub(crate) fn in_memory(self, upper: BorrowedFd<'_>) -> std::io::Result<Self> {
        let mut top = self;
        top.upper.attrs.retain(|(name, _)| name.0 == DEFAULT_ACL);
        if stat(upper, b"")?.gid != top.workspace.owner.1 {
            top.upper.mode &= !SETGID;
        }
        Ok(top)
    }
}

/// Gives the copy of an upper directory its attributes, and the permissions `permissions`.
pub(crate) fn copy(mode: LayerMode, from: BorrowedFd<'_>, to: BorrowedFd<'_>, permissions: u32) -> std::io::Result<()> {
    let like = TopAttrs::read(mode, from)?;
    let is_root = rustix::process::geteuid().is_root();
    let (uid, gid) = (Uid::from_raw(like.owner.0), Gid::from_raw(like.owner.1));
    match rustix::fs::chownat(to, "", is_root.then_some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        // The caller is not in the group, which a commit of an ordinary user does not look at.
        Err(Errno::PERM) if !is_root => {}
        done => done?,
    }
    for (name, value) in &like.attrs {
        xattr::set(to, b"", &name.0, &value.0)?;
    }
    chmod(to, permissions & CARRIED)
}

/// Gives a new upper directory the attributes of the workspace, and returns those of both.
pub(crate) fn carry(mode: LayerMode, workspace: &Workspace, upper: BorrowedFd<'_>) -> Result<Top, IoFailure> {
    let like = TopAttrs::read(mode, workspace.fd()).doing("look at", b"")?;
    let is_root = rustix::process::geteuid().is_root();
    let (uid, gid) = (Uid::from_raw(like.owner.0), Gid::from_raw(like.owner.1));
    match rustix::fs::chownat(upper, "", is_root.then_some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        // The caller is not in the group. That matters only where new files take it.
        Err(Errno::PERM) if !is_root && like.mode & SETGID == 0 => {}
        done => done.doing("set the group of", b"upper")?,
    }
    for (name, value) in &like.attrs {
        xattr::set(upper, b"", &name.0, &value.0).doing("set an attribute of", b"upper")?;
    }
    chmod(upper, like.mode & CARRIED).doing("set the mode of", b"upper")?;
    // A file system may keep an access list in another form.
    let carried = if like.attrs.is_empty() {
        TopAttrs { mode: like.mode & CARRIED, ..like.clone() }
    } else {
        TopAttrs::read(mode, upper).doing("look at", b"upper")?
    };
    Ok(Top { workspace: like, upper: carried })
}

/// The reason why new files in a layer would not get the group or the access list that they get in the workspace
/// itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The directory has the setgid bit.
    #[error("new files in it take the group {gid}, and you are not a member of that group")]
    Group {
        /// The group of the directory.
        gid: u32,
    },
    /// The directory has the setgid bit.
    #[error("new files in it take the group {gid}, and a layer in memory (--disk) knows only your own group")]
    GroupInMemory {
        /// The group of the directory.
        gid: u32,
    },
    /// The directory has a default access list.
    #[error("its default access list names the id {id}, and a layer in memory (--disk) knows only your own ids")]
    AccessListInMemory {
        /// A user or a group that is not the caller's own.
        id: u32,
    },
}

/// The ids of an ordinary user.
#[derive(Debug, Clone, Default)]
struct Ids {
    uid: u32,
    gid: u32,
    groups: BTreeSet<u32>,
}

/// Checks whether a layer of this process can carry the attributes of the workspace's own directory.
pub fn unfit(workspace: &Workspace, in_memory: bool) -> Result<Option<Unfit>, IoFailure> {
    if rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let groups = rustix::process::getgroups().doing("read the groups of this process for", b"")?;
    let ids = Ids {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.iter().map(|group| group.as_raw()).collect(),
    };
    let top = TopAttrs::read(LayerMode::User, workspace.fd()).doing("look at", b"")?;
    Ok(classify(&top, &ids, in_memory))
}

fn classify(top: &TopAttrs, ids: &Ids, in_memory: bool) -> Option<Unfit> {
    let gid = top.owner.1;
    if top.mode & SETGID != 0 && gid != ids.gid {
        if in_memory {
            return Some(Unfit::GroupInMemory { gid });
        }
        if !ids.groups.contains(&gid) {
            return Some(Unfit::Group { gid });
        }
    }
    let list = top.attrs.iter().find(|(name, _)| name.0 == DEFAULT_ACL).filter(|_| in_memory);
    let named = list.map(|(_, value)| named(&value.0)).unwrap_or_default();
    let foreign = named.into_iter().find(|(is_user, id)| *id != if *is_user { ids.uid } else { ids.gid });
    foreign.map(|(_, id)| Unfit::AccessListInMemory { id })
}

/// Returns the users (`true`) and groups that an access list names, in the form of `system.posix_acl_*`: a version of
/// four bytes, then for each entry tag, bits and id in little endian (linux/posix_acl_xattr.h).
fn named(list: &[u8]) -> Vec<(bool, u32)> {
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    let entries = list.get(4..).unwrap_or_default().chunks_exact(8);
    let entries = entries.map(|e| (u16::from_le_bytes([e[0], e[1]]), u32::from_le_bytes([e[4], e[5], e[6], e[7]])));
    entries.filter(|(tag, _)| matches!(*tag, USER | GROUP)).map(|(tag, id)| (tag == USER, id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(mode: u32, gid: u32, list: &[(u16, u32)]) -> TopAttrs {
        let mut value = vec![2, 0, 0, 0];
        for (tag, id) in list {
            value.extend(tag.to_le_bytes());
            value.extend(7_u16.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        let attrs = if list.is_empty() { Vec::new() } else { vec![(ByteText(DEFAULT_ACL.to_vec()), ByteText(value))] };
        TopAttrs { mode, owner: (1000, gid), attrs }
    }

    fn ids() -> Ids {
        Ids { uid: 1000, gid: 1000, groups: BTreeSet::from([50]) }
    }

    #[test]
    fn what_the_run_changed_of_the_directory_itself_is_wanted() {
        let start = Top { workspace: top(0o4750, 50, &[]), upper: top(0o750, 50, &[]) };
        let change = |upper: &TopAttrs, now: &TopAttrs| start.change(LayerMode::Root, upper, now);
        assert_eq!(change(&start.upper, &start.workspace), None, "nothing changed");
        assert_eq!(change(&start.upper, &top(0o777, 50, &[])), None, "it changed outside alone");
        let listed = top(0o700, 50, &[(0x02, 7)]);
        let found = change(&listed, &start.workspace).unwrap();
        assert_eq!((found.wanted.mode, found.is_conflict), (0o4700, false), "setuid is not the run's to change");
        assert_eq!(found.wanted.attrs, listed.attrs);
        assert_eq!(change(&top(0o6700, 50, &[]), &start.workspace).unwrap().wanted.mode, 0o6700);
        assert!(change(&top(0o700, 50, &[]), &top(0o4755, 50, &[])).unwrap().is_conflict);
        assert_eq!(change(&top(0o700, 50, &[]), &top(0o4700, 50, &[])), None, "both did the same");
        assert_eq!(change(&top(0o750, 99, &[]), &start.workspace).unwrap().wanted.owner, (1000, 99));
        assert_eq!(start.change(LayerMode::User, &top(0o750, 99, &[]), &start.workspace), None);
    }

    #[test]
    fn only_an_inherited_group_asks_for_membership() {
        for (mode, gid, disk, memory) in [
            (0o2775, 1000, None, None),
            (0o775, 99, None, None),
            (0o2775, 50, None, Some(Unfit::GroupInMemory { gid: 50 })),
            (0o2775, 99, Some(Unfit::Group { gid: 99 }), Some(Unfit::GroupInMemory { gid: 99 })),
        ] {
            assert_eq!(classify(&top(mode, gid, &[]), &ids(), false), disk, "{mode:o} {gid}");
            assert_eq!(classify(&top(mode, gid, &[]), &ids(), true), memory, "{mode:o} {gid}");
        }
    }

    #[test]
    fn a_layer_in_memory_takes_no_list_with_foreign_ids() {
        let own = top(0o755, 1000, &[(0x01, u32::MAX), (0x02, 1000), (0x04, u32::MAX), (0x08, 1000), (0x10, u32::MAX)]);
        assert_eq!(classify(&own, &ids(), true), None);
        let foreign = top(0o755, 1000, &[(0x01, u32::MAX), (0x02, 1000), (0x08, 777)]);
        assert_eq!(classify(&foreign, &ids(), true), Some(Unfit::AccessListInMemory { id: 777 }));
        assert_eq!(classify(&foreign, &ids(), false), None);
    }

    #[test]
    fn a_list_that_is_cut_off_names_what_is_whole() {
        assert_eq!(named(b""), []);
        assert_eq!(named(&[2, 0, 0, 0, 2, 0, 7, 0, 1, 0, 0]), []);
        assert_eq!(named(&[2, 0, 0, 0, 2, 0, 7, 0, 1, 0, 0, 0, 8]), [(true, 1)]);
    }
}
