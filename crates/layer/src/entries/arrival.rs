//! Decides whether a directory of the workspace came to the name of a directory of the layer after the run began. Pure.
//!
//! The ctime of an entry shows that it is newer than the run. A directory that is moved in as a whole (`mv`, the commit of
//! another run) gets a new ctime, while the entries in it keep theirs. All entries in it count as new, because the run never
//! saw them.
//!
//! ```text
//!  the one above came, or may have come          so did this one
//!  an earlier accept of a part found that it came   it came
//!  an earlier accept wrote to it as to one       it was there
//!   that was there
//!  overlay copied the directory up           it was there (`outside` tells whether another one took its place)
//!  an ordinary user's layer, not opaque      it came: overlay marks as opaque what is made over a deleted name
//!  it or its parent has an older ctime       it was there
//!  born later; or a later ctime, but an      it came
//!   earlier mtime, as rename(2) leaves them
//!  otherwise                                 unknown: moved and then filled, or filled where it was
//! ```
//! An accept of a part writes to the directories of the workspace, so that their times say less afterwards. The layer
//! therefore keeps the first answer about each that may have come, and none of these counts as its own.
//! Root's overlay marks every new directory as opaque, so that the mark says nothing there. An earlier commit of a part
//! of the layer removes the mark.

use crate::entries::marks::{LayerMode, Marks};
use crate::meta::{FsTime, Meta};

/// The time at which the directory of the workspace at a place came there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arrival {
    /// It was there when the run began, or the layer has no directory at this place.
    #[default]
    Before,
    /// It came after the run began, so that nothing in it was deleted by the run.
    After,
    /// The time is not known. Names that the layer lacks may be deletions or may have come.
    Unknown,
}

impl Arrival {
    /// Reports whether the directory may have come after the run began.
    pub(crate) fn is_possible(self) -> bool {
        self != Self::Before
    }
}

/// A directory of the layer and the one of the workspace at its place.
pub(crate) struct Sighting<'a> {
    pub(crate) started: FsTime,
    /// The marks on the directory of the layer.
    pub(crate) marks: &'a Marks,
    /// The directory of the workspace.
    pub(crate) now: &'a Meta,
    /// The directory is as an earlier commit of the layer left it.
    pub(crate) is_own: bool,
    /// The answer of an earlier commit of a part of the layer, as far as it was not [`Arrival::Before`].
    pub(crate) earlier: Arrival,
    /// The directory of the workspace that it is in, and the answer about that one.
    pub(crate) parent: (&'a Meta, Arrival),
    /// Overlay itself would merge the two, and the marks are as the run left them.
    pub(crate) merges: Option<LayerMode>,
}

/// Returns the time at which the directory of the workspace came to its place.
pub(crate) fn arrival(places: &Sighting<'_>) -> Arrival {
    let Sighting { started, marks, now, is_own, earlier, parent: (parent, of_parent), merges } = places;
    let is_later = |time: FsTime| time > *started;
    match () {
        () if of_parent.is_possible() => *of_parent,
        () if *earlier == Arrival::After => Arrival::After,
        () if *is_own && !earlier.is_possible() => Arrival::Before,
        () if marks.origin.is_some() => Arrival::Before,
        () if *merges == Some(LayerMode::User) => Arrival::After,
        () if !is_later(now.ctime) || !is_later(parent.ctime) => *earlier,
        () if now.id.born.is_some_and(is_later) || !is_later(now.mtime) => Arrival::After,
        () => Arrival::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::marks::Origin;
    use crate::meta::{EntryType, FileId};

    const START: i64 = 10;

    fn time(sec: i64) -> FsTime {
        FsTime { sec, nsec: 0 }
    }

    /// A directory with these times of birth, last change of the content, and last change.
    fn directory((born, mtime, ctime): (i64, i64, i64)) -> Meta {
        Meta {
            kind: EntryType::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: time(mtime),
            ctime: time(ctime),
            links: 2,
            id: FileId { ino: 7, born: Some(time(born)) },
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        }
    }

    #[test]
    fn the_times_tell_when_a_directory_came() {
        let (old, changed) = (directory((1, 2, 3)), directory((1, 11, 11)));
        for (times, parent, want) in [
            ((1, 2, 3), &changed, Arrival::Before),
            ((1, 12, 12), &old, Arrival::Before),
            ((1, 2, 12), &changed, Arrival::After),
            ((11, 12, 12), &changed, Arrival::After),
            ((1, 12, 12), &changed, Arrival::Unknown),
        ] {
            let (marks, now) = (Marks::default(), directory(times));
            let parent = (parent, Arrival::Before);
            let (is_own, earlier) = (false, Arrival::Before);
            let places =
                Sighting { started: time(START), marks: &marks, now: &now, is_own, earlier, parent, merges: None };
            assert_eq!(arrival(&places), want, "{times:?}");
        }
    }

    #[test]
    fn marks_and_the_parent_come_before_the_times() {
        let (old, moved) = (directory((1, 2, 3)), directory((1, 2, 12)));
        let (new, copied) = (Marks::default(), Marks { origin: Some(Origin::Unknown), ..Marks::default() });
        let ask = |marks: &Marks, now: &Meta, is_own, of_parent, merges| {
            let (earlier, parent) = (Arrival::Before, (&moved, of_parent));
            arrival(&Sighting { started: time(START), marks, now, is_own, earlier, parent, merges })
        };
        assert_eq!(ask(&copied, &moved, false, Arrival::Before, None), Arrival::Before);
        assert_eq!(ask(&new, &moved, true, Arrival::Before, None), Arrival::Before);
        assert_eq!(ask(&new, &moved, true, Arrival::After, None), Arrival::After);
        assert_eq!(ask(&copied, &old, false, Arrival::After, None), Arrival::After);
        assert_eq!(ask(&new, &old, false, Arrival::Unknown, None), Arrival::Unknown);
        assert_eq!(ask(&new, &old, false, Arrival::Before, Some(LayerMode::User)), Arrival::After);
        assert_eq!(ask(&new, &old, false, Arrival::Before, Some(LayerMode::Root)), Arrival::Before);
    }
    #[test]
    fn an_earlier_answer_stays_after_a_part_was_accepted() {
        let (old, written) = (directory((1, 2, 3)), directory((1, 12, 12)));
        let marks = Marks::default();
        let ask = |now: &Meta, is_own, earlier| {
            let parent = (&old, Arrival::Before);
            arrival(&Sighting { started: time(START), marks: &marks, now, is_own, earlier, parent, merges: None })
        };
        for now in [&old, &written] {
            for is_own in [true, false] {
                for earlier in [Arrival::After, Arrival::Unknown, Arrival::Before] {
                    assert_eq!(ask(now, is_own, earlier), earlier, "{is_own}");
                }
            }
        }
    }
}
