//! Advice for a file of the workspace that is there and could not be executed: it lacks the permission, or the program that its
//! first line names is not shown inside.
//!
//! The file is hostile: it is opened in the workspace without waiting for anybody, must be a plain file, and its first line is cleaned
//! before it is shown.

use nexus_caller::failure::one_line;
use nexus_driver::NotStarted;
use nexus_driver::frames::ExecStage;
use nexus_model::Plan;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The kernel reads no more of a first line (BINPRM_BUF_SIZE).
const FIRST_LINE: usize = 256;

/// Returns the advice for a command that is a path and could not be executed.
pub fn advice(plan: &Plan, not_started: Option<&NotStarted>) -> Option<String> {
    let Some(NotStarted::Exec { stage: ExecStage::Exec, errno }) = not_started else { return None };
    let name = plan.argv.first()?.as_path();
    let file = open(plan, name)?;
    let shown = one_line(&name.display().to_string());
    match Errno::from_raw_os_error(*errno) {
        Errno::ACCESS if rustix::fs::fstat(&file).ok()?.st_mode & 0o111 == 0 => Some(format!(
            "{shown} is there, and no mode of it says that it may be executed. chmod +x {shown} does, or name what runs it: sh {shown}."
        )),
        Errno::NOENT => {
            let program = interpreter(&file)?;
            let program = one_line(&program.display().to_string());
            Some(format!(
                "{shown} is there; its first line names {program}, and that is not there inside. Install it, show it with \
                 --ro {program}, or name another first line."
            ))
        }
        _ => None,
    }
}

/// Opens a file of the workspace by the name that a command gave it.
fn open(plan: &Plan, name: &Path) -> Option<File> {
    let workspace = &plan.workspace;
    let inside = plan.cwd.as_path().join(name);
    let beneath =
        inside.strip_prefix(workspace.target.as_path()).ok().filter(|_| name.as_os_str().as_bytes().contains(&b'/'))?;
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, workspace.source.as_path(), path, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // Looked at before it is opened for reading: opening a device or a pipe can do something.
    let place =
        rustix::fs::openat2(&directory, beneath, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).ok()?;
    let mode = rustix::fs::fstat(&place).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return None;
    }
    let file = rustix::fs::openat2(&directory, beneath, flags, Mode::empty(), resolve).ok()?;
    let is_plain = FileType::from_raw_mode(rustix::fs::fstat(&file).ok()?.st_mode) == FileType::RegularFile;
    is_plain.then(|| file.into())
}

/// Returns the program of a first line such as `#!/usr/bin/env python3`.
fn interpreter(file: &File) -> Option<std::path::PathBuf> {
    let mut bytes = [0u8; FIRST_LINE];
    let read = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..read].split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?;
    let program = line.trim_ascii().split(u8::is_ascii_whitespace).next().filter(|program| !program.is_empty())?;
    Some(OsStr::from_bytes(program).into())
}
