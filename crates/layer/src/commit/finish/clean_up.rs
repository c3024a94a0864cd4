//! Cleans up after a commit: removes displaced entries, removes committed entries from the layer, and leaves parked and
//! kept-back entries in a layer that can still be read.

use crate::beneath::{Doing as _, IoFailure, Workspace, split, unlink_if_there};
use crate::commit::finish::displaced::remove_displaced;
use crate::commit::finish::prune::prune_layer;
use crate::disk::opened::close_again;
use crate::disk::remove::remove_known;
use crate::disk::top_directory::{Top, TopAttrs};
use crate::entries::changes::{Change, ChangeSet};
use crate::entries::tree::CommittedEntry;
use crate::faults::{Faults, Phase};
use crate::journal::file::{
    DONE, JOURNAL, Journal, KeptBack, OURS, OUTCOME, Outcome, PARKED, Parked, SLOTS, SlotPlace, VERSION,
    sync_directory, write,
};
use crate::journal::kept_entry::KeptEntry;
use crate::journal::seen::Seen;
use crate::journal::step::{Origin, Step};
use crate::last_copies::waiting_refs::left_objects;
use crate::meta::{EntryType, FileId, FsTime};
use crate::moves::beside::BESIDE;
use crate::moves::leftover::{Leftover, found_in_workspace, set_aside, set_aside_in_workspace};
use crate::moves::rename_calls::Spot;
use crate::notes::kept_objects::keep_objects;
use crate::notes::marks_back;
use crate::notes::only_copies;
use crate::notes::removing::{LEAVING_NOTE, REMOVING};
use crate::places::commit_places::CommitPlaces;
use crate::places::commit_places::LayerDirectories;
use crate::staging::stage::{mark_stays, slots_at, unmark_stays};
use crate::staging::sweep::{is_known_name, sweep};
use crate::store::removal::{because, remove_layer, set_layer_aside};
use nexus_model::ByteText;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Runs after the journal is marked done; may run again. The outcome grows by what could not be removed.
///
/// An entry that cannot be removed never holds the end up: it is set aside and named.
pub(crate) fn finish(
    directories: &LayerDirectories<'_>,
    places: &CommitPlaces<'_>,
    journal: &Journal,
    outcome: &mut Outcome,
    faults: &Faults,
) -> Result<(), IoFailure> {
    faults.check(Phase::Finish).doing("finish", b"")?;
    let mut removal = remove_displaced(directories.layers, places, journal, outcome, faults)?;
    sweep(places, journal, &mut removal.stuck, faults)?;
    let beside = places.beside(directories.run, faults).noted()?;
    if !removal.rescued.is_empty() || !removal.left.is_empty() || beside.len() > outcome.beside.len() {
        outcome.kept.extend(removal.rescued);
        outcome.left.extend(removal.left);
        outcome.beside = beside;
        write(directories.root, OUTCOME, outcome, faults)?;
        sync_directory(directories.root, faults)?;
    }
    let in_slot = |from: &Origin| matches!(from, Origin::Slot(_));
    let (in_slots, in_upper): (Vec<_>, Vec<_>) = removal.stuck.into_iter().partition(|(.., from)| in_slot(from));
    let header = &journal.header;
    let mut stays = !in_upper.is_empty();
    match clear_slots(directories, header.slots, in_slots.is_empty(), faults) {
        Cleared::Removed => unmark_stays(directories.root)?,
        Cleared::Aside { place, why } => {
            unmark_stays(directories.root)?;
            outcome.left.extend(name_all(&place, in_slots, why));
        }
        Cleared::Stays { why } => {
            if header.slots == SlotPlace::Workspace {
                // The next commit of this layer needs the name.
                mark_stays(directories.root, faults)?;
            }
            stays |= header.slots == SlotPlace::Layer;
            let (tree, name) = slots_at(directories.root, directories.base, directories.run, header.slots);
            let place = if stays { directories.layers.path().join(directories.run) } else { tree.path().to_owned() };
            outcome.left.extend(name_all(&place.join(name), in_slots, why));
        }
    }
    if header.slots == SlotPlace::Workspace {
        name_kept(directories, outcome)?;
        // It is on another file system than the layer, whose own end may reach the disk first.
        sync_directory(directories.base, faults)?;
    }
    let mut keep = keep(journal, outcome)?;
    if !stays {
        let paths: Vec<&ByteText> = keep.iter().map(|one| &one.path).collect();
        let objects = keep_objects(places, journal, &paths, outcome, faults)?;
        keep.extend(objects.into_iter().map(Into::into));
    }
    if keep.is_empty() && !stays {
        only_copies::forget(places, journal, outcome, faults)?;
        outcome.left.extend(remove_layer(directories.layers, directories.root, directories.run, faults)?);
        return Ok(());
    }
    marks_back::of_kept(places, journal, outcome, faults)?;
    let mut left = Vec::new();
    let pruned = if stays {
        Ok(())
    } else {
        prune_layer(directories, places, (&keep, &header.keep_in_index), &mut left, faults)
    };
    outcome.left.extend(left);
    if stays || pruned.is_err() {
        // What stays would pass for a change of the run.
        let why = pruned.err().map(|failure| because(&failure));
        let place = set_layer_aside(directories.layers, directories.root, directories.run, faults)?;
        outcome.waits_aside = !keep.is_empty();
        outcome.left.extend(name_all(&place.join("upper"), in_upper, why));
        return Ok(());
    }
    outcome.stashes = only_copies::note(places, journal, outcome, faults)?;
    for one in &mut outcome.stashes {
        let upper = directories.layers.path().join(directories.run).join("upper");
        one.objects = left_objects(places.upper, one).map(|path| upper.join(OsStr::from_bytes(&path)));
    }
    close_again(places.root)?;
    let mut ours: Vec<CommittedEntry> = header.ours.clone();
    let mut lost_names = removal.lost_a_name;
    if !outcome.stamps.is_empty() {
        lost_names.extend(that_lose_names(journal)?);
    }
    for stamp in &mut outcome.stamps {
        if let Some(ctime) = later_time(&stamp.path, stamp.id, places.base, &lost_names) {
            stamp.ctime = ctime;
        }
        ours.push(stamp.clone());
    }
    let ours = CommittedEntry::sorted(ours);
    let changes = split_changes(header.parked.clone(), header.committed.clone(), outcome).left;
    let changes = ChangeSet { changes };
    let (mode, started, clock) = (header.mode, header.started, header.clock.clone());
    let top = top_after(journal, outcome, places.upper)?;
    // A commit begins with that.
    let unreached = true;
    let parked = Parked { version: VERSION, mode, started, clock, top, ours, changes, unreached };
    faults.between_calls();
    write(places.root, PARKED, &parked, faults)?;
    sync_directory(directories.root, faults)?;
    faults.between_calls();
    // The stamps of an earlier way back are in the note by now.
    for name in [OURS, DONE, OUTCOME, BESIDE, LEAVING_NOTE, REMOVING] {
        unlink_if_there(directories.root.fd(), name.as_bytes()).doing("remove", name.as_bytes())?;
    }
    sync_directory(directories.root, faults)
}

/// Adds what earlier commands moved out of the way of this commit, or could not remove.
fn name_kept(directories: &LayerDirectories<'_>, outcome: &mut Outcome) -> Result<(), IoFailure> {
    for one in found_in_workspace(directories.base, directories.run).doing("list", b"")? {
        if !outcome.left.iter().any(|known| known.at.as_path().starts_with(one.at.as_path())) {
            outcome.left.push(one);
        }
    }
    Ok(())
}

/// Lists the leftovers of a directory that was set aside: the earlier versions in it, or the directory for another
/// error.
fn name_all(place: &Path, stuck: Vec<(ByteText, String, Origin)>, why: Option<String>) -> Vec<Leftover> {
    if stuck.is_empty() {
        return why.map(|why| Leftover::new(place, None, why)).into_iter().collect();
    }
    let one = |(path, why, from): (ByteText, String, Origin)| {
        let at = match from {
            Origin::Slot(slot) => place.join(slot.to_string()),
            Origin::Layer => place.join(path.as_path()),
        };
        Leftover::new(&at, Some(&path), why)
    };
    stuck.into_iter().map(one).collect()
}

/// The result of [`clear_slots`].
enum Cleared {
    Removed,
    /// Something in it cannot be removed, and the directory was set aside.
    Aside {
        place: PathBuf,
        why: Option<String>,
    },
    /// The directory cannot be moved either.
    Stays {
        why: Option<String>,
    },
}

/// Removes the staging directory, or sets it aside when an entry of it has to stay. What came into it since the sweep
/// stays as well: no directory in it is removed with what is in it.
fn clear_slots(directories: &LayerDirectories<'_>, place: SlotPlace, may_go: bool, faults: &Faults) -> Cleared {
    let LayerDirectories { layers, root, base, run } = directories;
    let mut why = None;
    if may_go {
        let (tree, name) = slots_at(root, base, run, place);
        let remove = || remove_known(tree, name.as_bytes(), &is_known_name).doing("remove", name.as_bytes());
        faults.between_calls();
        match remove().or_else(|_| remove()) {
            Ok(()) => return Cleared::Removed,
            Err(failure) => why = Some(because(&failure)),
        }
    }
    let (tree, name) = slots_at(root, base, run, place);
    let aside = match place {
        SlotPlace::Layer => set_aside(layers, run, Spot { dir: tree.fd(), name: name.as_bytes() }, SLOTS, faults),
        SlotPlace::Workspace => set_aside_in_workspace(base, run, &name, faults),
    };
    match aside {
        Ok(place) => Cleared::Aside { place, why },
        Err(error) => Cleared::Stays { why: why.or_else(|| Some(error.to_string())) },
    }
}

/// Lists the files of which the end of a commit removes a name: displaced ones, and new ones that overlay's index names as
/// well.
fn that_lose_names(journal: &Journal) -> Result<HashMap<FileId, Seen>, IoFailure> {
    let displaced = journal.steps.several().iter().filter(|one| one.is_displaced);
    let mut files: HashMap<FileId, Seen> = displaced.map(|one| (one.old.id, one.old)).collect();
    for step in journal.steps.each() {
        if let Step::Put(put) = step.doing("read", JOURNAL.as_bytes())?
            && let Some(new) = put.new.filter(|new| new.links > 1 && new.kind == EntryType::File)
        {
            files.insert(new.id, new);
        }
    }
    Ok(files)
}

/// Returns the time stamp that a file has after the removals, if they changed it: removing a name changes the ctime of the
/// file's other names.
fn later_time(
    path: &ByteText,
    id: Option<FileId>,
    base: &Workspace,
    lost_names: &HashMap<FileId, Seen>,
) -> Option<FsTime> {
    let old = lost_names.get(&id?)?;
    // A stamp that is not the latest makes a later accept of the rest a conflict, and so does a file that is not there.
    let now = base.stat(&path.0).ok().flatten().filter(|now| old.is_same_version(now))?;
    Some(now.ctime)
}

/// Returns the states that the next accept compares the workspace's own directory with.
fn top_after(journal: &Journal, outcome: &Outcome, upper: &Workspace) -> Result<Option<Top>, IoFailure> {
    let Some(top) = journal.header.top.clone() else { return Ok(None) };
    let is_kept = outcome.kept.iter().any(|one| one.path.0.is_empty());
    let Some(set) = journal.steps.top().filter(|_| !is_kept) else { return Ok(Some(top)) };
    let attrs = set.attrs.clone().unwrap_or_default();
    let workspace = TopAttrs { mode: set.mode, owner: (set.uid, set.gid), attrs };
    let upper = TopAttrs::read(journal.header.mode, upper.fd()).doing("look at", b"upper")?;
    Ok(Some(Top { workspace, upper }))
}

/// Lists the paths that stay in the layer: those that were planned to stay, and those that were kept back.
fn keep(journal: &Journal, outcome: &Outcome) -> Result<Vec<KeptEntry>, IoFailure> {
    let mut keep = journal.header.keep.clone();
    let back: HashSet<&ByteText> = outcome.kept.iter().filter(|one| one.in_layer).map(|one| &one.path).collect();
    if back.is_empty() {
        return Ok(keep);
    }
    let planned: HashSet<ByteText> = keep.iter().map(|one| one.path.clone()).collect();
    let mut deleted: HashSet<ByteText> = HashSet::new();
    for step in journal.steps.each() {
        if let Step::Take { at, renamed: false, .. } = step.doing("read", JOURNAL.as_bytes())?
            && back.contains(&at)
        {
            deleted.insert(at);
        }
    }
    for one in outcome.kept.iter().filter(|one| one.in_layer && !planned.contains(&one.path)) {
        let whiteout = deleted.contains(&one.path);
        keep.push(KeptEntry { path: one.path.clone(), subtree: one.subtree, whiteout, mode: None });
    }
    Ok(keep)
}

/// The changes that a commit brought, and those that wait after it.
pub(crate) struct Split {
    pub(crate) arrived: Vec<Change>,
    pub(crate) left: Vec<Change>,
}

/// Parts what a commit was to bring from what was kept back.
pub(crate) fn split_changes(parked: Vec<Change>, mut committed: Vec<Change>, outcome: &Outcome) -> Split {
    let by_path = |wanted: &dyn Fn(&&KeptBack) -> bool| -> HashMap<&[u8], &KeptBack> {
        outcome.kept.iter().filter(wanted).map(|one| (one.path.0.as_slice(), one)).collect()
    };
    let (in_layer, missing) = (by_path(&|one| one.in_layer), by_path(&|one| !one.arrived));
    let mut left = if outcome.waits_aside { Vec::new() } else { parked };
    if !in_layer.is_empty() && !outcome.waits_aside {
        left.extend(committed.iter().filter(|change| is_kept_back(&in_layer, &change.path.0)).cloned());
        left.sort_by(|a, b| a.path.cmp(&b.path));
        left.dedup_by(|a, b| a.path == b.path);
    }
    committed.retain(|change| !is_kept_back(&missing, &change.path.0));
    Split { arrived: committed, left }
}

fn is_kept_back(kept: &HashMap<&[u8], &KeptBack>, path: &[u8]) -> bool {
    if kept.is_empty() {
        return false;
    }
    // A report has the workspace itself as a dot.
    if path == b"." {
        return kept.contains_key(&b""[..]);
    }
    let mut at = path;
    while !at.is_empty() {
        if kept.get(at).is_some_and(|one| at == path || one.subtree) {
            return true;
        }
        at = split(at).0;
    }
    false
}
