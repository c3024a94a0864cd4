//! B01, B02, B08, B10: what of the host is visible and writable by path.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::probes::a_process::visible_pids;
use crate::sys;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Opens a file for reading.
pub fn read(path: impl AsRef<Path>) -> Answer {
    sys::open(path, libc::O_RDONLY, 0).into()
}

/// Opens an existing file for writing and writes nothing.
pub fn open_for_writing(path: impl AsRef<Path>) -> Answer {
    sys::open(path, libc::O_WRONLY, 0).into()
}

/// Opens for writing the first of these that exists: kernels differ in what they offer.
pub fn open_any_for_writing(paths: &[&str]) -> Answer {
    let mut last = Answer::of("ENOENT");
    for path in paths {
        let answer = open_for_writing(path);
        if answer.answer == "ok" {
            return answer.with(*path);
        }
        if answer.answer != "ENOENT" {
            last = answer.with(*path);
        }
    }
    last
}

/// Opens and reads one byte: `bytes`, `empty` (masked by an empty file) or an errno.
pub fn content(path: &str) -> Answer {
    match fs::File::open(path).and_then(|mut file| file.read(&mut [0_u8; 64])) {
        Ok(0) => Answer::of("empty"),
        Ok(_) => Answer::of("bytes"),
        Err(error) => Answer::from_error(&error),
    }
}

/// Opens the canary through the root directory of every process that can be seen.
pub fn through_proc_root(context: &Context) -> Answer {
    for pid in visible_pids() {
        for door in ["root", "cwd"] {
            let path = format!("/proc/{pid}/{door}{}", context.canary_side.display());
            if fs::File::open(&path).is_ok() {
                return Answer::of("ok").with(path);
            }
        }
    }
    Answer::of("ENOENT")
}

/// The canary by a relative path that leaves the workspace.
pub fn dot_dot(context: &Context) -> Answer {
    let mut path = context.workspace.clone();
    for _ in 0..24 {
        path.push("..");
    }
    path.push(context.canary_side.strip_prefix("/").unwrap_or(&context.canary_side));
    read(path)
}

/// Creates a file in a directory of the system; the suite checks afterwards whether the host has it.
pub fn create_in(context: &Context, directory: &str) -> Answer {
    let path = Path::new(directory).join(format!("nexus-escape-made-{}", context.token));
    match sys::open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644) {
        Ok(_) => Answer::of("created"),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// Makes a cgroup in any hierarchy that shows, and takes it away again.
pub fn make_cgroup(context: &Context) -> Answer {
    for place in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"] {
        if !Path::new(place).join("cgroup.procs").exists() {
            continue;
        }
        let path = Path::new(place).join(format!("nexus-escape-{}", context.token));
        match fs::create_dir(&path) {
            Ok(()) => {
                sys::either_way(fs::remove_dir(&path));
                return Answer::of("ok").with(place);
            }
            Err(error) => return Answer::from_error(&error).with(place),
        }
    }
    Answer::of("ENOENT")
}

/// Reports whether `/dev` holds anything beyond the minimum.
pub fn dev_is_minimal(_: &Context) -> Answer {
    const ALLOWED: &[&str] =
        &["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"];
    let entries = match fs::read_dir("/dev") {
        Ok(entries) => entries,
        Err(error) => return Answer::from_error(&error),
    };
    let extra: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !ALLOWED.contains(&name.as_str()))
        .collect();
    Answer::choose(extra.is_empty(), "minimal", "extra").with(extra.join(" "))
}

/// Twin: the devices that every program needs.
pub fn dev_works(_: &Context) -> Answer {
    let random = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut [0_u8; 8]));
    Answer::from_io(random.and_then(|()| fs::write("/dev/null", b"x")))
}
