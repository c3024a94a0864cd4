//! B03 to B05: leaving the workspace by links, and writing to what was handed in read-only.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::sys::{self, address, c_path, call};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

fn scratch(context: &Context, name: &str) -> PathBuf {
    context.workspace.join(format!("scratch-{name}"))
}

/// Reads through a link that the suite put into the workspace.
pub fn read_prepared_link(context: &Context, link: &str, rest: &Path) -> Answer {
    let mut path = context.workspace.join(link);
    if let Ok(relative) = rest.strip_prefix("/") {
        path.push(relative);
    }
    sys::open(path, libc::O_RDONLY, 0).into()
}

/// Makes a link to the canary and reads through it.
pub fn read_own_link(context: &Context) -> Answer {
    let link = scratch(context, "link-out");
    if let Err(error) = std::os::unix::fs::symlink(&context.canary_side, &link) {
        return Answer::of("no-link").with(error.to_string());
    }
    let answer = sys::open(&link, libc::O_RDONLY, 0).into();
    sys::either_way(fs::remove_file(&link));
    answer
}

/// Twin: a link to a file of the workspace.
pub fn read_inner_link(context: &Context) -> Answer {
    let (file, link) = (scratch(context, "target"), scratch(context, "link-in"));
    let made = fs::write(&file, b"x").and_then(|()| std::os::unix::fs::symlink(&file, &link));
    let answer = Answer::from_io(made.and_then(|()| fs::read(&link)));
    sys::either_way(fs::remove_file(&link));
    sys::either_way(fs::remove_file(&file));
    answer
}

fn hard_link(context: &Context, from: &Path, name: &str) -> Answer {
    let to = scratch(context, name);
    let answer = Answer::from_io(fs::hard_link(from, &to));
    sys::either_way(fs::remove_file(&to));
    answer
}

/// Gives a program of the system a second name in the workspace.
pub fn link_system_file(context: &Context) -> Answer {
    hard_link(context, Path::new("/usr/bin/env"), "hard-system")
}

/// Gives a read-only file a second, writable name.
pub fn link_read_only_file(context: &Context) -> Answer {
    hard_link(context, &context.read_only.join("file"), "hard-ro")
}

/// The same through an open descriptor.
pub fn link_descriptor(context: &Context) -> Answer {
    let to = scratch(context, "hard-fd");
    let file = match sys::open(context.read_only.join("file"), libc::O_RDONLY, 0) {
        Ok(file) => file,
        Err(number) => return Answer::of("no-file").with(errno_name(number)),
    };
    let from = c_path(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let target = c_path(&to);
    let at = libc::AT_FDCWD as usize;
    let answer = call(
        libc::SYS_linkat,
        &[
            at,
            address(from.as_bytes_with_nul()),
            at,
            address(target.as_bytes_with_nul()),
            libc::AT_SYMLINK_FOLLOW as usize,
        ],
    )
    .into();
    sys::either_way(fs::remove_file(&to));
    answer
}

/// Twin: a second name for its own file.
pub fn link_own_file(context: &Context) -> Answer {
    let file = scratch(context, "hard-own");
    if let Err(error) = fs::write(&file, b"x") {
        return Answer::of("no-file").with(error.to_string());
    }
    let answer = hard_link(context, &file, "hard-own-second");
    sys::either_way(fs::remove_file(&file));
    answer
}

/// Writes to the read-only file.
pub fn write_read_only(context: &Context) -> Answer {
    sys::open(context.read_only.join("file"), libc::O_WRONLY, 0).into()
}

/// Opens it for reading and reopens the descriptor for writing.
pub fn reopen_read_only(context: &Context) -> Answer {
    match sys::open(context.read_only.join("file"), libc::O_RDONLY, 0) {
        Ok(file) => sys::open(format!("/proc/self/fd/{}", file.as_raw_fd()), libc::O_RDWR, 0).into(),
        Err(number) => Answer::of("no-file").with(errno_name(number)),
    }
}

/// Shortens a file of the read-only directory.
pub fn truncate_read_only(context: &Context) -> Answer {
    let path = c_path(context.read_only.join("shrinks"));
    call(libc::SYS_truncate, &[address(path.as_bytes_with_nul()), 0]).into()
}

/// Changes its mode.
pub fn chmod_read_only(context: &Context) -> Answer {
    use std::os::unix::fs::PermissionsExt;
    Answer::from_io(fs::set_permissions(context.read_only.join("file"), fs::Permissions::from_mode(0o666)))
}

/// Creates a file beside it.
pub fn create_read_only(context: &Context) -> Answer {
    sys::open(context.read_only.join("made-inside"), libc::O_CREAT | libc::O_WRONLY, 0o644).into()
}

/// Removes a file of the read-only directory.
pub fn unlink_read_only(context: &Context) -> Answer {
    Answer::from_io(fs::remove_file(context.read_only.join("removable")))
}

/// Renames a file of the read-only directory.
pub fn rename_read_only(context: &Context) -> Answer {
    Answer::from_io(fs::rename(context.read_only.join("renamable"), context.read_only.join("renamed")))
}

/// Sets its times, which needs no open for writing.
pub fn touch_read_only(context: &Context) -> Answer {
    let path = c_path(context.read_only.join("file"));
    call(libc::SYS_utimensat, &[libc::AT_FDCWD as usize, address(path.as_bytes_with_nul()), 0, 0]).into()
}

/// Twin: reads it.
pub fn read_read_only(context: &Context) -> Answer {
    Answer::from_io(fs::read(context.read_only.join("file")))
}
