//! Removes the objects that nothing reaches, pack by pack.
//!
//! ```text
//!  pack ─┬─ everything in it is reached ─▶ stays
//!        ├─ nothing ─▶ removed
//!        └─ some ─▶ what is reached goes into a new pack, which is on the disk before the old one is removed
//! ```
//! A sweep that is killed leaves an object in two packs at worst; the next sweep removes one of them.

use crate::error::SnapshotError;
use crate::object::{ObjectId, ObjectIds};
use crate::store::{Hold, NEW, Store};
use crate::writer::{Kind, Writer};
use nexus_beneath::unlink_if_there;
use std::collections::HashSet;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Objects that were removed.
    pub objects: u64,
    /// Objects that stayed.
    pub kept: u64,
    /// Bytes of the packs before.
    pub bytes_before: u64,
    /// Bytes of the packs afterwards.
    pub bytes_after: u64,
}

/// Removes all objects that are not in `reached`. The caller holds the store with [`Hold::Clean`]. A damaged pack is an
/// error, because its objects are not known.
pub fn sweep(store: &mut Store, reached: &ObjectIds, tell: &mut dyn FnMut(u64, u64)) -> Result<Swept, SnapshotError> {
    if store.hold() != Hold::Clean {
        return Err(SnapshotError::Busy { is_gc: false });
    }
    if let Some(SnapshotError::Damaged { pack, why }) = store.damaged().first() {
        return Err(SnapshotError::Damaged { pack: pack.clone(), why });
    }
    let mut done = Swept { bytes_before: store.bytes(), ..Swept::default() };
    for name in store.names()? {
        if name.starts_with(NEW.as_bytes()) {
            unlink_if_there(store.packs_dir(), &name)?;
        }
    }
    let mut all = HashSet::new();
    let mut kept: ObjectIds = HashSet::new();
    let count = store.packs().len();
    for number in 0..count {
        tell(number as u64, count as u64);
        let Some(pack) = store.packs().get(number) else { break };
        let name = pack.name.clone();
        all.extend(pack.index.objects.iter().map(|place| place.id));
        let mut wanted = Vec::new();
        for (at, place) in pack.index.objects.iter().enumerate() {
            if reached.contains(&place.id) && kept.insert(place.id) {
                let block = pack.index.blocks.get(place.block as usize);
                let of_directories = block.is_some_and(|block| block.of_directories);
                wanted.push((at as u32, place.id, if of_directories { Kind::Directory } else { Kind::File }));
            }
        }
        if wanted.len() == pack.index.objects.len() {
            continue;
        }
        if !wanted.is_empty() {
            copy(store, number, &wanted)?;
        }
        unlink_if_there(store.packs_dir(), name.as_bytes())?;
        rustix::fs::fsync(store.packs_dir())?;
    }
    done.kept = kept.len() as u64;
    done.objects = all.len() as u64 - done.kept;
    for name in store.names()? {
        let stat = nexus_beneath::meta::stat(store.packs_dir(), &name)?;
        done.bytes_after += stat.size;
    }
    Ok(done)
}

/// Writes objects of a pack into a new one.
fn copy(store: &mut Store, number: usize, wanted: &[(u32, ObjectId, Kind)]) -> Result<(), SnapshotError> {
    let mut writer = Writer::new(store);
    for (at, id, kind) in wanted {
        let bytes = writer.store().get_at(number as u32, *at, id)?;
        writer.copy(*kind, id, &bytes)?;
    }
    writer.finish()?;
    Ok(())
}
