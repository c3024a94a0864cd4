//! The steps that clean an entry of the layer and set the attributes of a directory.

use super::Apply;
use super::stop::{Done, Stop};
use crate::beneath::{chmod, is_gone, is_other_mount, split, widen};
use crate::entries::changes::Outside;
use crate::journal::dir_attrs::{AttrState, apply_dir_state, found, set_mtime};
use crate::journal::step::SetDir;
use crate::meta::stat;
use crate::moves::movable::strip_marks;
use nexus_model::ByteText;
use std::io;
use std::os::fd::AsFd as _;

impl Apply<'_> {
    pub(super) fn strip(&mut self, path: &[u8], names: &[ByteText]) -> io::Result<()> {
        let (parent, name) = split(path);
        let dir = match self.layer_parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        strip_marks(dir, name, names)
    }

    pub(super) fn set_dir(&mut self, set: &SetDir) -> Done {
        let path = &set.path.0;
        // The directory itself is not opened up: its mode tells whether another process changed it.
        let dir = match self.base.dir_by_force(split(path).0).and_then(|_| self.base.dir(path)) {
            Ok(dir) => dir,
            // Other steps named the directory that another process removed or mounted over.
            Err(error) if (is_gone(&error) || is_other_mount(&error)) && set.was.is_none() => return Ok(()),
            Err(error) => return Err(Stop::blocked(error)),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return if set.was.is_some() { Err(Stop::keep(Outside::Replaced)) } else { Ok(()) };
        }
        let planned = set.was.as_ref().map(|was| was.mtime).or(set.mtime_was);
        let is_ours = Some(now.mtime) == set.mtime || self.traces.is_ours((now.id, now.dev), now.mtime, planned);
        // What was kept back waits in this layer, for which a time that is set back would be one of a moved directory.
        let mtime = set.mtime.filter(|_| is_ours && self.kept.is_empty());
        self.faults.between_calls();
        match found(dir.as_fd(), set, &now, self.again)? {
            AttrState::Foreign if set.was.is_some() => return Err(Stop::keep(Outside::Changed)),
            AttrState::Foreign => {}
            AttrState::Opened => chmod(dir.as_fd(), set.mode).map_err(Stop::blocked)?,
            AttrState::Known => {
                widen(dir.as_fd()).map_err(Stop::blocked)?;
                apply_dir_state(dir.as_fd(), &SetDir { mtime: None, ..set.clone() }, &now).map_err(Stop::blocked)?;
            }
        }
        if let Some(mtime) = mtime {
            set_mtime(dir.as_fd(), mtime, &now).map_err(Stop::blocked)?;
        }
        // The cached descriptor stays valid, but the directory may be closed to us now.
        self.parents.last = None;
        self.touch(path);
        Ok(())
    }
}
