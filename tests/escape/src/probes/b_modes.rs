//! B09: setuid files and device nodes. A sandbox that root started writes files that belong to root on the host,
//! so a setuid bit in the workspace is local root for every user of the host, whatever the mount's `nosuid` says.

use crate::answer::Answer;
use crate::context::Context;
use crate::sys::{self, address, c_path, call};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const AT: usize = libc::AT_FDCWD as usize;
const SPECIAL: u32 = 0o6000;

fn place(context: &Context, name: &str) -> PathBuf {
    // Not removed afterwards: the suite walks the host's directories and must find what came through.
    context.workspace.join(format!("mode-{name}-{}", std::process::id()))
}

/// Removes what a harmless probe made.
pub fn forget(context: &Context, name: &str) {
    sys::either_way(fs::remove_file(place(context, name)));
}

/// `ok` only when the bits are really on the file.
fn landed(result: Result<i64, i32>, path: &PathBuf) -> Answer {
    match result {
        Ok(_) => match fs::symlink_metadata(path) {
            Ok(found) if found.mode() & SPECIAL != 0 => Answer::of("ok"),
            Ok(_) => Answer::of("stripped"),
            Err(error) => Answer::of("vanished").with(error.to_string()),
        },
        Err(number) => Err::<i64, i32>(number).into(),
    }
}

fn fresh_copy(context: &Context, name: &str) -> Result<PathBuf, Answer> {
    let path = place(context, name);
    fs::copy("/usr/bin/id", &path).map_err(|error| Answer::of("no-copy").with(error.to_string()))?;
    Ok(path)
}

/// `chmod` of a copied program.
pub fn chmod(context: &Context, mode: u32) -> Answer {
    match fresh_copy(context, "chmod") {
        Ok(path) => {
            let name = c_path(&path);
            let result = call(libc::SYS_fchmodat, &[AT, address(name.as_bytes_with_nul()), mode as usize]);
            if mode & SPECIAL == 0 { result.into() } else { landed(result, &path) }
        }
        Err(answer) => answer,
    }
}

/// The old call, which a filter for `fchmodat` does not cover.
#[cfg(target_arch = "x86_64")]
pub fn old_chmod(context: &Context) -> Answer {
    match fresh_copy(context, "old-chmod") {
        Ok(path) => {
            let name = c_path(&path);
            landed(call(libc::SYS_chmod, &[address(name.as_bytes_with_nul()), 0o4755]), &path)
        }
        Err(answer) => answer,
    }
}

/// Newer machines have no such call.
#[cfg(not(target_arch = "x86_64"))]
pub fn old_chmod(_: &Context) -> Answer {
    Answer::of("ENOSYS")
}

/// With bits above the 16 that a mode has, which a filter that compares whole words overlooks.
pub fn chmod_high_bits(context: &Context) -> Answer {
    match fresh_copy(context, "high") {
        Ok(path) => {
            let name = c_path(&path);
            let mode = 0o4755 | (1 << 32) | (1 << 20);
            landed(call(libc::SYS_fchmodat, &[AT, address(name.as_bytes_with_nul()), mode]), &path)
        }
        Err(answer) => answer,
    }
}

/// Sets the bit by descriptor.
pub fn fchmod(context: &Context) -> Answer {
    let path = place(context, "fchmod");
    match sys::open(&path, libc::O_CREAT | libc::O_WRONLY, 0o755) {
        Ok(file) => landed(call(libc::SYS_fchmod, &[file.as_raw_fd() as usize, 0o4755]), &path),
        Err(number) => Answer::of("no-file").with(crate::answer::errno_name(number)),
    }
}

/// The call with flags, new in 6.6: older filters do not know it.
pub fn fchmodat2(context: &Context) -> Answer {
    match fresh_copy(context, "fchmodat2") {
        Ok(path) => {
            let name = c_path(&path);
            landed(call(452, &[AT, address(name.as_bytes_with_nul()), 0o4755, 0]), &path)
        }
        Err(answer) => answer,
    }
}

/// Created with the bit.
pub fn open_setuid(context: &Context) -> Answer {
    let path = place(context, "open");
    landed(sys::open(&path, libc::O_CREAT | libc::O_WRONLY, 0o4755).map(|_| 0), &path)
}

/// Created by the old call.
#[cfg(target_arch = "x86_64")]
pub fn creat_setuid(context: &Context) -> Answer {
    let path = place(context, "creat");
    let name = c_path(&path);
    landed(call(libc::SYS_creat, &[address(name.as_bytes_with_nul()), 0o4755]), &path)
}

/// Newer machines have no such call.
#[cfg(not(target_arch = "x86_64"))]
pub fn creat_setuid(_: &Context) -> Answer {
    Answer::of("ENOSYS")
}

/// Created by the call whose mode is behind a pointer.
pub fn openat2_setuid(context: &Context) -> Answer {
    let path = place(context, "openat2");
    let name = c_path(&path);
    let how: [u64; 3] = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
    let result = call(libc::SYS_openat2, &[AT, address(name.as_bytes_with_nul()), address(&how), size_of_val(&how)]);
    landed(result, &path)
}

/// Created without a name, then given one.
pub fn tmpfile_setuid(context: &Context) -> Answer {
    let path = place(context, "tmpfile");
    let file = match sys::open(&context.workspace, libc::O_TMPFILE | libc::O_WRONLY, 0o4755) {
        Ok(file) => file,
        Err(number) => return Answer::of(crate::answer::errno_name(number)),
    };
    let from = c_path(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let to = c_path(&path);
    let arguments =
        [AT, address(from.as_bytes_with_nul()), AT, address(to.as_bytes_with_nul()), libc::AT_SYMLINK_FOLLOW as usize];
    landed(call(libc::SYS_linkat, &arguments), &path)
}

/// A regular file by mknod.
pub fn mknod_setuid(context: &Context) -> Answer {
    let path = place(context, "mknod-regular");
    landed(mknod_call(&path, libc::S_IFREG | 0o4755, 0), &path)
}

/// Makes a directory with setgid. The kernel itself drops the bit (`stripped`), so only a refusal shows that the filter
/// looks.
pub fn mkdir_setgid(context: &Context) -> Answer {
    let path = place(context, "mkdir");
    let name = c_path(&path);
    landed(call(libc::SYS_mkdirat, &[AT, address(name.as_bytes_with_nul()), 0o2777]), &path)
}

/// Twin: a directory whose files get its group, which tar, cp and git make.
pub fn setgid_directory(context: &Context) -> Answer {
    let path = place(context, "setgid-directory");
    let name = c_path(&path);
    let made = call(libc::SYS_mkdirat, &[AT, address(name.as_bytes_with_nul()), 0o755])
        .and_then(|_| call(libc::SYS_chmod, &[address(name.as_bytes_with_nul()), 0o2755]));
    let has_bit = path.symlink_metadata().is_ok_and(|meta| meta.mode() & 0o2000 != 0);
    sys::either_way(fs::remove_dir(&path));
    match made {
        Ok(_) => Answer::choose(has_bit, "ok", "stripped"),
        Err(number) => Answer::of(crate::answer::errno_name(number)),
    }
}

/// File capabilities are setuid by another name.
pub fn file_capability(context: &Context) -> Answer {
    let path = match fresh_copy(context, "capability") {
        Ok(path) => c_path(&path),
        Err(answer) => return answer,
    };
    let value: [u32; 5] = [0x0200_0001, 1 << 21, 0, 0, 0]; // version 2, effective, CAP_SYS_ADMIN
    call(
        libc::SYS_setxattr,
        &[
            address(path.as_bytes_with_nul()),
            address(c"security.capability".to_bytes_with_nul()),
            address(&value),
            size_of_val(&value),
            0,
        ],
    )
    .into()
}

fn mknod_call(path: &PathBuf, mode: u32, device: u64) -> Result<i64, i32> {
    let name = c_path(path);
    call(libc::SYS_mknodat, &[AT, address(name.as_bytes_with_nul()), mode as usize, device as usize])
}

/// A device node, or a fifo for the twin.
pub fn mknod(context: &Context, name: &str, kind: u32, major: u32, minor: u32) -> Answer {
    mknod_call(&place(context, name), kind | 0o666, libc::makedev(major, minor)).into()
}

/// Leaves a whiteout behind: character device 0:0 by another call, allowed to everybody.
pub fn rename_whiteout(context: &Context) -> Answer {
    let (from, to) = (place(context, "whiteout-from"), place(context, "whiteout-to"));
    if let Err(error) = fs::write(&from, b"x") {
        return Answer::of("no-file").with(error.to_string());
    }
    let (from, to) = (c_path(&from), c_path(&to));
    let arguments = [AT, address(from.as_bytes_with_nul()), AT, address(to.as_bytes_with_nul()), 4];
    call(libc::SYS_renameat2, &arguments).into()
}

/// Twin: an ordinary rename.
pub fn rename_plain(context: &Context) -> Answer {
    let (from, to) = (place(context, "rename-from"), place(context, "rename-to"));
    if let Err(error) = fs::write(&from, b"x") {
        return Answer::of("no-file").with(error.to_string());
    }
    Answer::from_io(fs::rename(from, to))
}

/// The flags of the workspace's mount.
pub fn mount_flags(context: &Context) -> Answer {
    let path = c_path(&context.workspace);
    // SAFETY: an all-zero statvfs is a valid value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: live string and live structure.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return Answer::of(crate::answer::errno_name(sys::errno()));
    }
    let wanted = libc::ST_NOSUID | libc::ST_NODEV;
    Answer::choose(found.f_flag & wanted == wanted, "nosuid,nodev", "missing").with(format!("{:#x}", found.f_flag))
}
