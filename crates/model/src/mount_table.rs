//! The table of mounts as the kernel writes it (proc_pid_mountinfo(5)), and where a path leads in it. Pure.
//!
//! A mount can lie over another one at the same place, or hide those below it: a path goes from the root's mount to the one that lies on
//! each of its directories in turn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mount that it lies on.
    pub parent: u64,
    /// Number of the file system, as `MAJOR:MINOR`.
    pub device: String,
    /// The directory of the file system that is shown.
    pub root: PathBuf,
    /// The place at which it is shown.
    pub at: PathBuf,
    /// The type of the file system.
    pub kind: String,
}

/// The mounts that a process sees.
#[derive(Debug, Default)]
pub struct MountTable {
    all: Vec<Mount>,
    /// The mount of the root. Without one there is nothing to tell hidden mounts by.
    top: Option<u64>,
    /// By the mount below, what lies at its places.
    over: HashMap<u64, HashMap<PathBuf, u64>>,
    /// Indices into `all`. A directory comes right before all that lies below it.
    by_place: BTreeMap<PathBuf, Vec<usize>>,
}

impl MountTable {
    /// Reads a table, in which the mount of the root is looked for. Lines of another form are passed over.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let all = lines(text);
        let ids: HashSet<u64> = all.iter().map(|mount| mount.id).collect();
        let is_top =
            |mount: &&Mount| mount.at == Path::new("/") && (mount.parent == mount.id || !ids.contains(&mount.parent));
        let top = all.iter().find(is_top).map(|mount| mount.id);
        Self::of(all, top)
    }

    /// Reads a table for a root that is the mount `top`, which may lie over others.
    #[must_use]
    pub fn parse_below(top: u64, text: &[u8]) -> Self {
        Self::of(lines(text), Some(top))
    }

    fn of(all: Vec<Mount>, top: Option<u64>) -> Self {
        let mut over: HashMap<u64, HashMap<PathBuf, u64>> = HashMap::new();
        let mut by_place: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        for (index, mount) in all.iter().enumerate() {
            if mount.parent != mount.id && Some(mount.id) != top {
                over.entry(mount.parent).or_default().insert(mount.at.clone(), mount.id);
            }
            by_place.entry(mount.at.clone()).or_default().push(index);
        }
        Self { all, top, over, by_place }
    }

    /// Lists all mounts, also hidden ones, in the order of the table.
    #[must_use]
    pub fn all(&self) -> &[Mount] {
        &self.all
    }

    /// Lists the mounts below a directory that their paths lead to, in the order of the table.
    #[must_use]
    pub fn below(&self, directory: &Path) -> Vec<&Mount> {
        let after = (Bound::Excluded(directory), Bound::Unbounded);
        let below = self.by_place.range::<Path, _>(after).take_while(|(place, _)| place.starts_with(directory));
        let mut indices: Vec<usize> = below.flat_map(|(_, indices)| indices).copied().collect();
        indices.sort_unstable();
        let mounts = indices.into_iter().filter_map(|index| self.all.get(index));
        mounts.filter(|mount| self.top.is_none_or(|top| self.resolve(top, &mount.at) == mount.id)).collect()
    }

    /// Returns the mount that a path without links leads to.
    #[must_use]
    pub fn leads_to(&self, path: &Path) -> Option<&Mount> {
        let id = self.resolve(self.top?, path);
        self.all.iter().find(|mount| mount.id == id)
    }

    /// Returns the mount that lies on the whole of another one, so that no path leads to that.
    #[must_use]
    pub fn on_top_of(&self, mount: &Mount) -> Option<&Mount> {
        let id = self.over.get(&mount.id)?.get(&mount.at)?;
        self.all.iter().find(|other| other.id == *id)
    }

    /// Lists the mounts to which paths would lead if these covers were not there.
    #[must_use]
    pub fn hidden_by(&self, is_cover: &dyn Fn(&Mount) -> bool) -> Vec<&Mount> {
        let Some(top) = self.top.filter(|_| self.all.iter().any(is_cover)) else { return Vec::new() };
        let others = self.all.iter().filter(|mount| !is_cover(mount)).cloned().collect();
        let without = Self::of(others, self.top);
        let led_to: HashSet<u64> = without.below(Path::new("/")).into_iter().map(|mount| mount.id).collect();
        let is_hidden = |mount: &&Mount| led_to.contains(&mount.id) && self.resolve(top, &mount.at) != mount.id;
        self.all.iter().filter(is_hidden).collect()
    }

    fn resolve(&self, top: u64, path: &Path) -> u64 {
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        let mut mount = top;
        for ancestor in ancestors {
            // Mounts may lie on top of each other at one place. The count bounds a table that is not a tree.
            for _ in 0..self.all.len() {
                let Some(next) = self.over.get(&mount).and_then(|places| places.get(ancestor)) else { break };
                mount = *next;
            }
        }
        mount
    }
}

fn lines(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(read_line).collect()
}

fn read_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
    let (id, parent) = (number(fields.next())?, number(fields.next())?);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let (root, at) = (path(fields.next()?), path(fields.next()?));
    let kind = fields.by_ref().skip_while(|field| *field != b"-").nth(1)?;
    // The file or directory under it is gone, so that no path leads to it.
    let is_reached = !at.as_os_str().as_bytes().ends_with(b"//deleted");
    is_reached.then(|| Mount { id, parent, device, root, at, kind: String::from_utf8_lossy(kind).into_owned() })
}

/// Undoes the kernel's `\ooo` for blanks and backslashes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value = octal.map(|digits| digits.iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0')));
        if let Some(byte) = value.and_then(|value| u8::try_from(value).ok()) {
            text.push(byte);
            rest = &after[3..];
        } else {
            text.push(*first);
            rest = after;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's root is mount 1, and that of the sandbox, 20, lies over it.
    const TABLE: &str = "\
1 0 254:0 / / rw - ext4 x rw
2 1 0:5 / /d/of-the-host rw - proc proc rw
20 1 0:30 / / rw - tmpfs none rw
21 20 254:0 /data /d rw master:3 - ext4 x rw
22 21 254:0 /h /d/a\\040b rw - ext4 x rw
23 21 0:32 / /d/x rw - tmpfs none rw
24 23 0:33 / /d/x rw - tmpfs none rw
25 23 0:34 / /d/x/hidden rw - tmpfs none rw
26 21 254:0 /g /d/gone//deleted rw - ext4 x rw
27 20 0:36 / /dd rw - tmpfs none rw
28 20 0:37 / /d-d rw - tmpfs none rw
";

    #[test]
    fn what_is_mounted_below_a_directory_is_found_with_its_number() {
        let table = MountTable::parse_below(20, TABLE.as_bytes());
        let below = |path: &str| {
            let found = table.below(Path::new(path)).into_iter();
            found.map(|mount| (mount.at.to_str().unwrap(), mount.id)).collect::<Vec<_>>()
        };
        assert_eq!(below("/d"), [("/d/a b", 22), ("/d/x", 24)]);
        assert_eq!(below("/d/x"), []);
        assert_eq!(below("/"), [("/d", 21), ("/d/a b", 22), ("/d/x", 24), ("/dd", 27), ("/d-d", 28)]);
        assert_eq!(table.leads_to(Path::new("/d/x/y")).unwrap().id, 24);
        assert_eq!(table.leads_to(Path::new("/e")).unwrap().id, 20);
        assert_eq!(MountTable::parse(TABLE.as_bytes()).leads_to(Path::new("/d/x")).unwrap().id, 24, "1 is under 20");
    }

    #[test]
    fn what_covers_hide_is_found() {
        let covers = "\
30 21 0:30 /empty /d/x/closed rw - tmpfs none rw
31 22 0:30 /file /d/a\\040b rw - tmpfs none rw
32 21 254:0 /s /d/x/closed/s rw - ext4 x rw
33 24 0:30 /empty /d/x rw - tmpfs none rw
34 23 0:38 / /d/x/under rw - tmpfs none rw
";
        let table = MountTable::parse_below(20, [TABLE, covers].concat().as_bytes());
        let is_cover = |mount: &Mount| mount.device == "0:30" && mount.root != Path::new("/");
        let hidden = table.hidden_by(&is_cover);
        assert_eq!(hidden.iter().map(|mount| mount.id).collect::<Vec<_>>(), [22, 24], "32 and 34 lie below 24 as well");
        assert_eq!(table.on_top_of(hidden[0]).unwrap().id, 31);
        assert_eq!(table.on_top_of(hidden[1]).unwrap().id, 33);
        assert!(table.hidden_by(&|_| false).is_empty() && table.on_top_of(&table.all()[0]).is_none());
        // The covers lie on a file system of which other mounts are open.
        let closed = "30 35 0:30 /empty /t/z rw - tmpfs none rw\n32 35 254:0 /s /t/z/s rw - ext4 x rw\n35 20 0:30 / /t rw - tmpfs none rw\n";
        let table = MountTable::parse_below(20, [TABLE, closed].concat().as_bytes());
        let hidden = table.hidden_by(&is_cover);
        assert_eq!(hidden.iter().map(|mount| mount.id).collect::<Vec<_>>(), [32]);
        assert!(table.on_top_of(hidden[0]).is_none());
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        for line in ["", "1", "1 2", "1 2 0:1 / /w/m rw", "x 2 0:1 / /w/m rw - tmpfs none rw", "1 2 0:1 / /w/m rw -"] {
            assert_eq!(MountTable::parse(line.as_bytes()).all(), [], "{line}");
        }
        assert_eq!(unescape(b"a\\040b\\134\\0"), b"a b\\\\0");
    }

    #[test]
    fn a_table_that_is_no_tree_ends() {
        let ring = "7 8 0:1 / / rw - x x rw\n8 7 0:1 / / rw - x x rw\n9 7 0:2 / /m rw - x x rw\n";
        assert!(MountTable::parse(ring.as_bytes()).below(Path::new("/")).len() <= 1);
        assert!(MountTable::parse_below(7, ring.as_bytes()).below(Path::new("/")).len() <= 1);
    }
}
