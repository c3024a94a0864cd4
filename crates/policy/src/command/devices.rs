//! Paths that no command line may write to or remove.

/// Directories of the system, whose removal ends it.
const OF_SYSTEM: &[&str] = &[
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/usr", "/var", "/Users", "/System", "/Library",
];
/// Beginnings of the names of disks and of the machine's memory.
const DEVICES: &[&str] = &[
    "/dev/sd",
    "/dev/hd",
    "/dev/vd",
    "/dev/xvd",
    "/dev/nvme",
    "/dev/mmcblk",
    "/dev/disk",
    "/dev/mapper",
    "/dev/dm-",
    "/dev/md",
    "/dev/loop",
    "/dev/sr",
    "/dev/mem",
    "/dev/kmem",
    "/dev/port",
    "/dev/block",
    "/dev/ram",
    "/dev/zram",
    "/proc/sysrq-trigger",
    "/proc/kcore",
];
/// Files that say who may do what on a machine.
const RIGHTS: &[&str] =
    &["/etc/sudoers", "/etc/passwd", "/etc/shadow", "/etc/gshadow", "/etc/group", "/etc/ld.so.preload", "/etc/pam.d"];

/// Returns a path without repeated slashes, `.` and `..`, as far as its text says.
fn plain(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Reports whether a path is the root, a directory of the system or a home, or everything in one of them.
pub(super) fn is_root_like(text: &str) -> bool {
    let homes = ["~", "$HOME", "${HOME}", "~root"];
    let of_home = |text: &str| {
        let text = text.trim_end_matches('/');
        homes.contains(&text) || homes.iter().any(|home| text.strip_prefix(home).is_some_and(all_of))
    };
    if of_home(text) {
        return true;
    }
    if !text.starts_with('/') {
        return false;
    }
    let without_all = text.rsplit_once('/').filter(|(_, last)| matches!(*last, "*" | ".*" | "**" | "?*"));
    let path = plain(without_all.map_or(text, |(before, _)| if before.is_empty() { "/" } else { before }));
    let is_a_home = |path: &str| {
        path.strip_prefix("/home/").or(path.strip_prefix("/Users/")).is_some_and(|name| !name.contains('/'))
    };
    OF_SYSTEM.contains(&path.as_str()) || is_a_home(&path) || path.starts_with("/{")
}

fn all_of(rest: &str) -> bool {
    matches!(rest, "/*" | "/.*" | "/**" | "/." | "/./")
}

/// Reports whether a path is a disk, or the memory of the machine.
pub(super) fn is_device(text: &str) -> bool {
    let path = plain(text);
    text.starts_with('/') && DEVICES.iter().any(|device| path.starts_with(device))
}

/// Reports whether a path says who may do what.
pub(super) fn gives_rights(text: &str) -> bool {
    let path = plain(text);
    (text.starts_with('/') && RIGHTS.iter().any(|right| path.starts_with(right)))
        || text.ends_with(".ssh/authorized_keys")
}
