//! Reads the table of mounts: refuses a layer over a workspace that has mounts in it, finds a directory again at another mount of
//! it, and tells file systems that answer on their own from those that may wait for a server.
//!
//! An overlay looks at one mount. As root the command would see the directory below a mount inside the workspace, and
//! what it wrote there could not be committed; as an ordinary user the kernel refuses the overlay (EINVAL).

use nexus_model::mount_table::{Mount, MountTable};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names that a message lists.
const LISTED: usize = 3;

/// A workspace cannot carry a layer for its mounts.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The table of mounts cannot be read.
    #[error("The mounts of this machine cannot be read from /proc/self/mountinfo: {source}")]
    Unreadable {
        /// The answer of the system.
        source: io::Error,
    },
    /// The workspace has mounts in it.
    #[error(
        "{} cannot carry a layer: another file system or directory is mounted in it: {listed}",
        workspace.display()
    )]
    Mounted {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The place of the first mount.
        first: PathBuf,
        /// The first mounts with their kinds, as a list for a sentence.
        listed: String,
    },
}

impl MountError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "workspace"
    }
}

/// Refuses a workspace with a mount of a directory or a file in it.
pub fn refuse_inside(workspace: &Path) -> Result<(), MountError> {
    let table = table().map_err(|source| MountError::Unreadable { source })?;
    let found = inside(&table, workspace);
    let Some(first) = found.first() else { return Ok(()) };
    let names: Vec<String> =
        found.iter().take(LISTED).map(|mount| format!("{} ({})", mount.at.display(), mount.kind)).collect();
    let more = if found.len() > LISTED { format!(" and {} more", found.len() - LISTED) } else { String::new() };
    let listed = format!("{}{more}", names.join(", "));
    Err(MountError::Mounted { workspace: workspace.to_owned(), first: first.at.clone(), listed })
}

/// File systems whose answers come from this machine alone. A server or a program behind any other may be silent for ever.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs", "squashfs",
    "tmpfs", "vfat", "xfs", "zfs",
];

/// Reports whether every mount on the way to a path without links is of a file system that answers on its own. No call on the path
/// is made for that, so that nothing waits.
pub fn is_local(path: &Path) -> bool {
    table().is_ok_and(|table| is_local_in(&table, path))
}

fn is_local_in(table: &[u8], path: &Path) -> bool {
    let table = MountTable::parse(table);
    let mut on_the_way = table.all().iter().filter(|mount| path.starts_with(&mount.at)).peekable();
    // One that another mount hides counts, too: what is on top of it need not stay.
    on_the_way.peek().is_some() && on_the_way.all(|mount| LOCAL.contains(&mount.kind.as_str()))
}

/// Reports whether one of two existing paths without links is the other one or lies in it, also where another mount shows the same
/// directories at another place.
pub fn overlap(one: &Path, other: &Path) -> io::Result<bool> {
    let identity = |path: &Path| std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let is_on_the_way_to = |top: &Path, path: &Path| -> io::Result<bool> {
        let top = identity(top)?;
        // A directory above that may not be looked at has its place in the table.
        Ok(path.ancestors().any(|above| identity(above).is_ok_and(|above| above == top)))
    };
    if is_on_the_way_to(one, other)? || is_on_the_way_to(other, one)? {
        return Ok(true);
    }
    Ok(overlap_in(&table()?, one, other))
}

/// The same by what the mounts show alone: a mount may begin below the directory that the other path is in, and one path may show
/// the other by a mount below it.
fn overlap_in(table: &[u8], one: &Path, other: &Path) -> bool {
    let all = MountTable::parse(table);
    let (one, other) = (all_shown(&all, one), all_shown(&all, other));
    one.iter().any(|(device, one)| {
        other.iter().any(|(same, other)| device == same && (one.starts_with(other) || other.starts_with(one)))
    })
}

/// Returns the other names of what a path shows, with everything below it: the places at which another mount shows the same
/// directory, one above it or one below it.
pub fn other_names(path: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(other_names_in(&table()?, path))
}

fn other_names_in(table: &[u8], path: &Path) -> Vec<PathBuf> {
    let all = MountTable::parse(table);
    let mut found = Vec::new();
    for (device, there) in all_shown(&all, path) {
        for mount in all.all().iter().filter(|mount| mount.device == device) {
            let name = match there.strip_prefix(&mount.root) {
                Ok(below) if below.as_os_str().is_empty() => mount.at.clone(),
                Ok(below) => mount.at.join(below),
                Err(_) if mount.root.starts_with(&there) => mount.at.clone(),
                Err(_) => continue,
            };
            if !name.starts_with(path) && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Returns what a path shows: its own file system with the path in it, and those of the mounts below it.
fn all_shown<'a>(table: &'a MountTable, path: &Path) -> Vec<(&'a str, PathBuf)> {
    let below = table.below(path).into_iter().map(|mount| (mount.device.as_str(), mount.root.clone()));
    shown(table, path).into_iter().chain(below).collect()
}

/// Returns the file system of a path, and the path in it.
fn shown<'a>(table: &'a MountTable, path: &Path) -> Option<(&'a str, PathBuf)> {
    let mount = table.leads_to(path)?;
    Some((&mount.device, mount.root.join(path.strip_prefix(&mount.at).ok()?)))
}

/// Reads the mounts of this process.
pub fn read() -> Result<MountTable, MountError> {
    Ok(MountTable::parse(&table().map_err(|source| MountError::Unreadable { source })?))
}

fn table() -> io::Result<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo")
}

/// Lists the mounts below `workspace` that can be reached by their path, in the order of the table.
fn inside(table: &[u8], workspace: &Path) -> Vec<Mount> {
    MountTable::parse(table).below(workspace).into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1 0 0:1 / / rw - rootfs rootfs rw
20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
21 20 0:5 / /proc rw - proc proc rw
30 20 0:30 / /w/m rw master:3 - tmpfs none rw
31 20 254:0 /etc/hosts /w/file rw - ext4 /dev/vda rw
32 20 0:31 / /w/a\\040b rw - fuse.sshfs host:/x rw
33 20 0:32 / /other/x rw - tmpfs none rw
34 20 0:33 / /wide/m rw - tmpfs none rw
";

    fn found(table: &str, workspace: &str) -> Vec<(String, String)> {
        let all = inside(table.as_bytes(), Path::new(workspace));
        all.into_iter().map(|mount| (mount.at.to_str().unwrap().to_owned(), mount.kind)).collect()
    }

    fn named(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(at, kind)| ((*at).to_owned(), (*kind).to_owned())).collect()
    }

    #[test]
    fn mounts_of_directories_and_files_below_are_found() {
        assert_eq!(found(TABLE, "/w"), named(&[("/w/m", "tmpfs"), ("/w/file", "ext4"), ("/w/a b", "fuse.sshfs")]));
        assert_eq!(found(TABLE, "/w/m"), []);
        assert_eq!(found(TABLE, "/wide/mm"), []);
    }

    #[test]
    fn a_mount_that_another_one_hides_is_not_counted() {
        let over = format!("{TABLE}40 20 0:40 / /w rw - tmpfs none rw\n");
        assert_eq!(found(&over, "/w"), []);
        let stacked = format!("{over}41 40 0:41 / /w/n rw - proc none rw\n42 41 0:42 / /w/n rw - tmpfs none rw\n");
        assert_eq!(found(&stacked, "/w"), named(&[("/w/n", "tmpfs")]));
    }

    #[test]
    fn a_table_without_a_root_hides_nothing() {
        assert_eq!(found("7 5 0:30 / /w/m rw - tmpfs none rw\n", "/w"), named(&[("/w/m", "tmpfs")]));
        assert_eq!(found("7 7 0:1 / / rw - x x rw\n8 9 0:2 / /w/m rw - x x rw\n9 8 0:2 / /w/m rw - x x rw", "/w"), []);
    }

    #[test]
    fn only_a_path_that_no_other_file_system_is_on_the_way_to_is_local() {
        let is_local = |path: &str| is_local_in(TABLE.as_bytes(), Path::new(path));
        assert!(is_local("/w/x") && is_local("/w/m/x"));
        for other in ["/w/a b", "/w/a b/x/y", "/proc/1"] {
            assert!(!is_local(other), "{other}");
        }
        let hidden = TABLE.replace("rootfs rootfs", "nfs4 server");
        assert!(!is_local_in(hidden.as_bytes(), Path::new("/w")), "another one is below it");
        assert!(!is_local_in(b"", Path::new("/w")), "nothing is known");
    }

    #[test]
    fn a_directory_is_found_again_at_another_mount_of_a_part_of_it() {
        let table =
            format!("{TABLE}50 20 254:0 /w/bin /mnt/b rw - ext4 x rw\n51 20 254:9 /w/bin /mnt/c rw - ext4 y rw\n");
        let overlap = |one: &str, other: &str| overlap_in(table.as_bytes(), Path::new(one), Path::new(other));
        for (one, other) in [("/mnt/b", "/w"), ("/mnt/b/x", "/w"), ("/w", "/mnt/b"), ("/mnt/b", "/w/bin/x")] {
            assert!(overlap(one, other), "{one} {other}");
        }
        for (one, other) in [("/mnt/c", "/w"), ("/mnt/b", "/w/binx"), ("/w/m", "/w/x"), ("/v", "/w")] {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }

    #[test]
    fn a_mount_below_a_directory_shows_what_it_has_there() {
        let table =
            format!("{TABLE}50 20 254:0 /w/bin /art/sub rw - ext4 x rw\n51 20 254:9 /w/bin /far/sub rw - ext4 y rw\n");
        let overlap = |one: &str, other: &str| overlap_in(table.as_bytes(), Path::new(one), Path::new(other));
        for (one, other) in [("/art", "/w"), ("/w", "/art"), ("/art", "/w/bin/x")] {
            assert!(overlap(one, other), "{one} {other}");
        }
        for (one, other) in [("/far", "/w"), ("/art/sib", "/w"), ("/art", "/w/binx"), ("/art/sub", "/w/lib")] {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }

    #[test]
    fn a_path_has_the_names_that_other_mounts_give_it() {
        let table = format!("{TABLE}50 20 254:0 /keys /m rw - ext4 x rw\n51 20 254:0 /keys/a /n rw - ext4 x rw\n");
        let names = |path: &str| {
            let found = other_names_in(table.as_bytes(), Path::new(path));
            found.iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/m"), ["/keys", "/n"]);
        assert_eq!(names("/m/a/b"), ["/keys/a/b", "/n/b"]);
        assert_eq!(names("/n/x"), ["/keys/a/x", "/m/a/x"]);
        assert_eq!(names("/keys"), ["/m", "/n"]);
        assert_eq!(names("/elsewhere"), [""; 0]);
    }
}
