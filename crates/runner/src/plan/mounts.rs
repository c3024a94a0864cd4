//! Refuses a layer over a workspace that has mounts in it.
//!
//! An overlay looks at one mount. As root the command would see the directory below a mount inside the workspace, and
//! what it wrote there could not be committed; as an ordinary user the kernel refuses the overlay (EINVAL).

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
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
    let table = std::fs::read("/proc/self/mountinfo").map_err(|source| MountError::Unreadable { source })?;
    let found = inside(&table, workspace);
    let Some(first) = found.first() else { return Ok(()) };
    let names: Vec<String> =
        found.iter().take(LISTED).map(|mount| format!("{} ({})", mount.at.display(), mount.kind)).collect();
    let more = if found.len() > LISTED { format!(" and {} more", found.len() - LISTED) } else { String::new() };
    let listed = format!("{}{more}", names.join(", "));
    Err(MountError::Mounted { workspace: workspace.to_owned(), first: first.at.clone(), listed })
}

/// One line of proc_pid_mountinfo(5).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    id: u64,
    parent: u64,
    at: PathBuf,
    kind: String,
}

/// Lists the mounts below `workspace` that can be reached by their path, in the order of the table.
fn inside(table: &[u8], workspace: &Path) -> Vec<Mount> {
    let all: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(read_line).collect();
    let mut places: HashMap<(u64, &Path), u64> = HashMap::new();
    for mount in all.iter().filter(|mount| mount.parent != mount.id) {
        places.insert((mount.parent, &mount.at), mount.id);
    }
    let ids: HashSet<u64> = all.iter().map(|mount| mount.id).collect();
    let top = all
        .iter()
        .find(|mount| mount.at == Path::new("/") && (mount.parent == mount.id || !ids.contains(&mount.parent)));
    let below = |mount: &&Mount| mount.at.starts_with(workspace) && mount.at != workspace;
    // A mount can be hidden by one above it. Without a root there is nothing to tell that by.
    let reached = |mount: &&Mount| top.is_none_or(|top| resolve(&places, top.id, &mount.at) == mount.id);
    all.iter().filter(below).filter(reached).cloned().collect()
}

/// Returns the mount that a path leads to, starting from the mount `top`.
fn resolve(places: &HashMap<(u64, &Path), u64>, top: u64, path: &Path) -> u64 {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let mut mount = top;
    for ancestor in ancestors {
        // Mounts may lie on top of each other at one place. The count bounds a table that is not a tree.
        for _ in 0..places.len() {
            let Some(next) = places.get(&(mount, ancestor)) else { break };
            mount = *next;
        }
    }
    mount
}

fn read_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
    let (id, parent) = (number(fields.next())?, number(fields.next())?);
    let at = PathBuf::from(OsString::from_vec(unescape(fields.nth(2)?)));
    let kind = fields.by_ref().skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { id, parent, at, kind: String::from_utf8_lossy(kind).into_owned() })
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
    fn lines_that_say_nothing_are_passed_over() {
        for line in ["", "1", "1 2", "1 2 0:1 / /w/m rw", "x 2 0:1 / /w/m rw - tmpfs none rw", "1 2 0:1 / /w/m rw -"] {
            assert_eq!(found(line, "/w"), [], "{line}");
        }
        assert_eq!(unescape(b"a\\040b\\134\\0"), b"a b\\\\0");
    }
}
