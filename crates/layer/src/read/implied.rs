//! Compares each new directory of a layer with the workspace directory at the same path: finds out whether that directory is newer
//! than the run, and which of its names the run deleted.

use crate::beneath::{Doing as _, is_other_mount, join, names, split};
use crate::entries::arrival::{Arrival, Sighting};
use crate::entries::marks::Marks;
use crate::entries::tree::{CommittedEntry, Found, Lower, Node, Role, SharedPath};
use crate::meta::{EntryType, stat_if_there};
use crate::read::walk::{Walk, WalkError, lower_path, node};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

impl Walk<'_> {
    /// Turns a new directory over an old one into the old one without the names that are gone. One that came after the
    /// run began keeps all its names.
    pub(crate) fn imply(&self, nodes: &mut Vec<Node>, claimed: &mut HashSet<Vec<u8>>) -> Result<(), WalkError> {
        let mut children: HashMap<usize, HashSet<Vec<u8>>> = HashMap::new();
        let mut implied = Vec::new();
        let count = nodes.len();
        // A commit of a part, and the saving of one, leave other marks than the run did.
        let has_marks = !self.is_part && self.ours.iter().all(|own| own.arrival.is_some());
        for at in 1..count {
            if nodes[at].meta.kind != EntryType::Directory || nodes[at].rare.unseen {
                continue;
            }
            let Some(place) = lower_path(&nodes[nodes[at].parent]).map(|p| join(p, split(&nodes[at].path.0).1)) else {
                continue;
            };
            if let Lower::Moved(found) = &nodes[at].rare.lower
                && *found.at.0 == *place
            {
                // Renamed away and back into a new directory of the old name: it never moved.
                claimed.remove(&place);
                nodes[at].rare.lower = Lower::Merged(found.clone());
            }
            if let Lower::Merged(found) = &nodes[at].rare.lower {
                nodes[at].rare.arrival = self.arrival(nodes, at, found, has_marks);
                continue;
            }
            if nodes[at].rare.lower != Lower::None || claimed.contains(&place) {
                continue;
            }
            let Some(found) = self.lower_dir(&place)? else { continue };
            let dir = match self.base.readable_dir(&place) {
                // What it replaces cannot be listed, and it stays new.
                Err(error) if is_other_mount(&error) || crate::read::access::is_closed(&error) => continue,
                other => other.doing("open", &place)?,
            };
            let arrival = self.arrival(nodes, at, &found, false);
            nodes[at].rare.arrival = arrival;
            nodes[at].rare.lower = Lower::Merged(Box::new(found));
            nodes[at].rare.replaced = true;
            if arrival == Arrival::After {
                // The run never saw these names, so that it did not delete them.
                continue;
            }
            if children.is_empty() {
                for (child, one) in nodes.iter().enumerate().take(count).skip(1) {
                    debug_assert!(one.parent < child, "a directory comes before its entries");
                    children.entry(one.parent).or_default().insert(split(&one.path.0).1.to_vec());
                }
            }
            for name in names(dir.as_fd()).doing("list", &place)? {
                if children.get(&at).is_some_and(|names| names.contains(&name)) {
                    continue;
                }
                if let Some(meta) = stat_if_there(dir.as_fd(), &name).doing("look at", &place)? {
                    let path = SharedPath::from(join(&nodes[at].path.0, &name));
                    implied.push(node(at, path, meta, Marks::default(), Role::Implied));
                }
            }
        }
        nodes.append(&mut implied);
        Ok(())
    }

    /// Returns when the directory of the workspace at the place of a node came there. `has_marks`: the marks are as the
    /// run left them, and say that the node continues it.
    fn arrival(&self, nodes: &[Node], at: usize, found: &Found, has_marks: bool) -> Arrival {
        let parent = &nodes[nodes[at].parent];
        let (Lower::Merged(above) | Lower::Moved(above)) = &parent.rare.lower else { return Arrival::Before };
        crate::entries::arrival::arrival(&Sighting {
            started: self.started,
            marks: &nodes[at].marks,
            now: &found.meta,
            is_own: CommittedEntry::is_one(self.ours, &found.at, &found.meta),
            earlier: CommittedEntry::arrival_at(self.ours, &found.at),
            parent: (&above.meta, parent.rare.arrival),
            merges: has_marks.then_some(self.mode),
        })
    }
}
