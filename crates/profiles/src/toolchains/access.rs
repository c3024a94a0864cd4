//! Finds out whether users other than root and the caller decide what is at a path.

use super::places::is_system;
use super::reading;
use crate::host::Host;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Position of a part in the path that is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A directory on the way: what follows has its own owner.
    Above,
    /// The file, directory or link itself.
    Last,
}

/// Groups that hold one user alone, by user.
#[derive(Debug, Clone, Default)]
pub(super) struct PrivateGroups {
    known: RefCell<BTreeMap<u32, Option<u32>>>,
}

/// Reports whether another user could change what is at this path, or put something else in its place. `meta` is that
/// of the path itself, without following a link.
pub(super) fn is_open(caller: &Host, groups: &PrivateGroups, path: &Path, meta: &Metadata, part: Part) -> bool {
    // Every sandbox shows the directories of the system, and some images let all users write below `/usr/local`. A link
    // there still has an owner.
    if is_system(path) && !meta.is_symlink() {
        return false;
    }
    // The user who called sudo is another one here: root can read more.
    if meta.uid() != 0 && meta.uid() != caller.uid {
        return true;
    }
    // The rights of a link mean nothing; those of its directory and of its target count.
    if meta.is_symlink() {
        return false;
    }
    // A directory with the sticky bit lets others make entries and leaves those of their owners alone.
    if part == Part::Above && meta.is_dir() && meta.mode() & 0o1000 != 0 {
        return false;
    }
    let by_group = meta.mode() & 0o020 != 0 && meta.gid() != 0;
    meta.mode() & 0o002 != 0 || (by_group && groups.of(meta.uid()) != Some(meta.gid()))
}

/// Reports whether root alone can write a file or directory and every directory above it. Access lists that let others write
/// show in the bits of the group.
pub(super) fn is_of_root(path: &Path) -> bool {
    path.ancestors().all(|part| {
        part.symlink_metadata().is_ok_and(|meta| meta.uid() == 0 && !meta.is_symlink() && meta.mode() & 0o022 == 0)
    })
}

impl PrivateGroups {
    /// Returns the group of a user if the machine's own tables list no other member of it.
    fn of(&self, uid: u32) -> Option<u32> {
        if let Some(known) = self.known.borrow().get(&uid) {
            return *known;
        }
        let text = |path| String::from_utf8(reading::small(Path::new(path))?).ok();
        let found = match (text("/etc/passwd"), text("/etc/group")) {
            (Some(users), Some(groups)) => private_group(uid, &users, &groups),
            _ => None,
        };
        self.known.borrow_mut().insert(uid, found);
        found
    }
}

/// Returns the group of a user, if no other user has it and it has no other member. Pure.
fn private_group(uid: u32, users: &str, groups: &str) -> Option<u32> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let numbers = (fields.nth(1)?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
        Some((name, numbers.0, numbers.1))
    };
    let all: Vec<_> = users.lines().filter_map(user).collect();
    let (name, _, gid) = all.iter().find(|(_, other, _)| *other == uid)?;
    if all.iter().any(|(_, other, group)| group == gid && *other != uid) {
        return None;
    }
    let members = groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse::<u32>().ok()? == *gid).then(|| fields.get(3).copied().unwrap_or_default())
    })?;
    members.split(',').all(|member| member.is_empty() || member == name).then_some(*gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_can_write_to_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let bin = std::fs::canonicalize(dir.path()).unwrap().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let open = |caller: &Host, mode: u32, part| {
            std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(mode)).unwrap();
            let meta = bin.symlink_metadata().unwrap();
            is_open(caller, &PrivateGroups::default(), &bin, &meta, part)
        };
        assert!(!open(&host(), 0o755, Part::Last) && !open(&host(), 0o755, Part::Above));
        assert!(open(&host(), 0o757, Part::Last) && open(&host(), 0o757, Part::Above));
        assert!(open(&host(), 0o1777, Part::Last), "others can add a program");
        assert!(!open(&host(), 0o1777, Part::Above));
        let other = Host { uid: host().uid + 1, ..host() };
        assert!(host().uid == 0 || open(&other, 0o755, Part::Above), "it is another user's");
        std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o777)).unwrap();
        let meta = bin.symlink_metadata().unwrap();
        let shown_anyway = Path::new("/usr/local/cargo/bin");
        assert!(!is_open(&host(), &PrivateGroups::default(), shown_anyway, &meta, Part::Last));
    }

    #[test]
    fn a_group_is_private_if_it_has_no_other_member() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\n\
                     eve:x:1002:100::/home/eve:/bin/sh\nsam:x:1003:1003::/home/sam:/bin/sh\nann2:x:1004:1004::/:/bin/sh\n";
        let groups = "root:x:0:\nann:x:1000:\nusers:x:100:\nsam:x:1003:sam,eve\nann2:x:1004:ann2\n";
        assert_eq!(private_group(1000, users, groups), Some(1000));
        assert_eq!(private_group(1004, users, groups), Some(1004));
        assert_eq!(private_group(1001, users, groups), None, "eve has it as well");
        assert_eq!(private_group(1003, users, groups), None, "eve is a member");
        assert_eq!(private_group(1009, users, groups), None, "unknown to the tables");
        assert_eq!(private_group(1000, users, "root:x:0:\n"), None);
    }
}
