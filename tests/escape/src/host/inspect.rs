//! Looks at the host: which processes live, which files carry dangerous bits.

use crate::sys;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waits until `condition` holds; false when the limit passed first.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with `needle` in their arguments. A zombie has no arguments and does not count.
pub fn processes_with(needle: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    crate::probes::a_process::visible_pids()
        .into_iter()
        .filter(|pid| *pid != own)
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|found| found.windows(needle.len()).any(|window| window == needle.as_bytes()))
        })
        .collect()
}

/// The children of a process, by the parent that each names (proc(5), field 4).
pub fn children_of(parent: i32) -> Vec<i32> {
    let names = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse::<i32>().ok()
    };
    crate::probes::a_process::visible_pids().into_iter().filter(|pid| names(pid) == Some(parent)).collect()
}

/// Ends what a leaky driver left running.
pub fn end_strays(needle: &str) {
    let ended = wait_until(Duration::from_secs(5), || {
        let strays = processes_with(needle);
        for pid in &strays {
            // Gone already is as good.
            sys::either_way(sys::kill(*pid, libc::SIGKILL));
        }
        strays.is_empty()
    });
    if !ended {
        eprintln!("nexus-escape: processes with {needle} do not end");
    }
}

/// Files below `root` that are setuid, setgid or devices. Overlay's own whiteouts (0:0) are right in a layer only.
pub fn dangerous(root: &Path, whiteouts_allowed: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            let kind = meta.file_type();
            let whiteout = kind.is_char_device() && meta.rdev() == 0 && whiteouts_allowed;
            let device = (kind.is_char_device() || kind.is_block_device()) && !whiteout;
            if device || (!kind.is_symlink() && meta.mode() & 0o6000 != 0) {
                found.push(entry.path());
            }
            if kind.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    found
}

/// Removes a tree, opening directories of mode 000 first: overlay leaves one in its work directory.
pub fn remove_tree(root: &Path) -> io::Result<()> {
    if fs::remove_dir_all(root).is_ok() {
        return Ok(());
    }
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        sys::either_way(fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)));
        if let Ok(entries) = fs::read_dir(&directory) {
            directories.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
    }
    fs::remove_dir_all(root)
}

/// Everything below a path as text, to compare before and after: kinds, link targets, contents.
pub fn describe(path: &Path) -> String {
    let Ok(meta) = path.symlink_metadata() else { return "absent\n".to_owned() };
    let mode = meta.mode() & 0o777;
    if meta.file_type().is_symlink() {
        return format!("link to {}\n", fs::read_link(path).unwrap_or_default().display());
    }
    if !meta.is_dir() {
        return format!("file {mode:o} {:?}\n", String::from_utf8_lossy(&fs::read(path).unwrap_or_default()));
    }
    let mut names: Vec<_> = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let inner: Vec<String> =
        names.iter().map(|name| format!("{}: {}", name.display(), describe(&path.join(name)))).collect();
    format!("directory {mode:o}\n{}", inner.concat())
}
