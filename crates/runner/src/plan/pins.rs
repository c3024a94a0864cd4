//! Counts the directories that a sandbox keeps in their place: those of writable binds above what is covered (`nexus_jail` mounts
//! something on each, out of sight).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pins are mounts, of which a mount namespace has 100,000 (`fs.mount-max`).
pub const MAX_PINS: usize = 10_000;

/// More directories than can be kept in their place.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyPins;

/// The pinned directories of a run.
#[derive(Debug)]
pub struct Pins {
    directories: BTreeSet<PathBuf>,
    left: usize,
}

impl Pins {
    /// Allows so many directories.
    pub fn with_limit(limit: usize) -> Self {
        Self { directories: BTreeSet::new(), left: limit }
    }

    /// Adds the directories between the place of a bind and a covered path below it.
    pub fn add(&mut self, bind: &Path, covered: &Path) -> Result<(), TooManyPins> {
        let above = covered.ancestors().skip(1).take_while(|directory| *directory != bind);
        for directory in above.filter(|directory| directory.starts_with(bind)) {
            if !self.directories.insert(directory.to_owned()) {
                // Those above it are here too.
                break;
            }
            self.left = self.left.checked_sub(1).ok_or(TooManyPins)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_above_a_cover_is_counted_once_and_refused_beyond_the_limit() {
        let counted = |limit: usize, covered: &[&str]| {
            let mut pins = Pins::with_limit(limit);
            covered.iter().try_for_each(|path| pins.add(Path::new("/rw"), Path::new(path))).map(|()| limit - pins.left)
        };
        assert_eq!(counted(9, &["/rw/s", "/rw/t"]), Ok(0), "the bind itself is a mount");
        assert_eq!(counted(9, &["/rw/a/b/s", "/rw/a/b/t", "/rw/a/c/s"]), Ok(3));
        assert_eq!(counted(3, &["/rw/a/b/s", "/rw/a/c/s"]), Ok(3));
        assert_eq!(counted(2, &["/rw/a/b/s", "/rw/a/c/s"]), Err(TooManyPins));
        assert_eq!(counted(9, &["/elsewhere/a/s"]), Ok(0));
    }
}
