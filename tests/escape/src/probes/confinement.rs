//! Rows that meet one wall alone: what they ask is refused by nothing else, or by few others.

use super::a_process::visible_pids;
use super::a_tracing::init;
use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::sys::{self, call};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP, SECBIT_NO_CAP_AMBIENT_RAISE and the locks of all four (capabilities(7)).
const LOCKED: i64 = 0xef;

/// The securebits of this process.
pub fn securebits(_: &Context) -> Answer {
    match call(libc::SYS_prctl, &[libc::PR_GET_SECUREBITS as usize]) {
        Ok(bits) => Answer::choose(bits == LOCKED, "locked", "open").with(format!("{bits:#x}")),
        Err(number) => Answer::of(errno_name(number)),
    }
}

/// The capabilities of PID 1: an exec takes those of an ordinary user away, and PID 1 never executes.
pub fn init_capabilities(_: &Context) -> Answer {
    let Ok(status) = fs::read_to_string("/proc/1/status") else { return Answer::of("unreadable") };
    let sets: Vec<&str> = status.lines().filter(|line| line.starts_with("Cap")).collect();
    let empty =
        |line: &&str| line.split_ascii_whitespace().nth(1).is_some_and(|set| u64::from_str_radix(set, 16) == Ok(0));
    Answer::choose(sets.len() == 5 && sets.iter().all(empty), "none", "some").with(sets.join(" "))
}

/// Opens a file of PID 1 that only those may open who may trace it.
pub fn open_of_init(context: &Context, file: &str) -> Answer {
    sys::open(format!("/proc/{}/{file}", init(context)), libc::O_RDONLY, 0).into()
}

/// Lists the descriptors of PID 1.
pub fn descriptors_of_init(context: &Context) -> Answer {
    Answer::from_io(fs::read_dir(format!("/proc/{}/fd", init(context))))
}

/// Looks among the descriptors of every process in sight for a directory that was left open. Landlock keeps such a one
/// from being used, so that opening something by it shows nothing.
pub fn open_directories(_: &Context) -> Answer {
    for pid in visible_pids() {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let root = |link: PathBuf| fs::read_link(link).is_ok_and(|end| end == Path::new("/"));
        if let Some(found) = entries.flatten().map(|entry| entry.path()).find(|path| root(path.clone())) {
            return Answer::of("some").with(found.display().to_string());
        }
    }
    Answer::of("none")
}

/// The secret of the caller in the environment, arguments or memory of any other process. The probe's own processes know
/// it from their context, so that of theirs only the environment counts.
pub fn secret_in_memory(context: &Context) -> Answer {
    let parent = call(libc::SYS_getppid, &[]).unwrap_or(0) as i32;
    let own = [std::process::id() as i32, parent];
    for pid in visible_pids() {
        if is_in(&PathBuf::from(format!("/proc/{pid}/environ")), &context.secret) {
            return Answer::of("seen").with(format!("environment of {pid}"));
        }
        if !own.contains(&pid) && is_in_memory(pid, &context.secret) {
            return Answer::of("seen").with(format!("memory of {pid}"));
        }
    }
    Answer::of("absent")
}

fn is_in(file: &Path, needle: &str) -> bool {
    fs::read(file).is_ok_and(|found| contains(&found, needle))
}

fn contains(found: &[u8], needle: &str) -> bool {
    !needle.is_empty() && found.windows(needle.len()).any(|window| window == needle.as_bytes())
}

/// Looks through everything that a process may write, as far as it can be read.
fn is_in_memory(pid: i32, needle: &str) -> bool {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return false };
    let Ok(mut memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return false };
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends =
            range.and_then(|(from, to)| Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?)));
        let Some((from, to)) = ends else { return false };
        let mut piece = Vec::new();
        let read =
            memory.seek(SeekFrom::Start(from)).and_then(|_| (&mut memory).take(to - from).read_to_end(&mut piece));
        read.is_ok() && contains(&piece, needle)
    })
}

/// Supplementary groups, which root has and gives up. An ordinary user cannot give them up.
pub fn groups(context: &Context) -> Answer {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return Answer::of("unreadable") };
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or("absent").trim();
    match (groups.is_empty(), context.has_groups) {
        (true, _) => Answer::of("none"),
        (false, true) => Answer::of("some").with(groups),
        (false, false) => Answer::of("host-unknown"),
    }
}

/// The caller's key, by its description.
pub fn callers_key(context: &Context) -> Answer {
    if context.key.is_empty() {
        return Answer::of("host-unknown");
    }
    crate::keys::find_key(&context.key).into()
}

fn above_root(path: &Path) -> PathBuf {
    Path::new("/..").join(path.strip_prefix("/").unwrap_or(path))
}

/// Asks for a file of the host by a path that climbs out of the root: a root that is still mounted there is found.
pub fn stat_above_root(context: &Context) -> Answer {
    Answer::from_io(fs::symlink_metadata(above_root(&context.canary_side)))
}

/// Reads a file of the host by such a path.
pub fn read_above_root(context: &Context) -> Answer {
    sys::open(above_root(&context.canary_side), libc::O_RDONLY, 0).into()
}

/// Opens the passwords of the host that way.
pub fn shadow_above_root(_: &Context) -> Answer {
    sys::open("/../etc/shadow", libc::O_RDONLY, 0).into()
}

/// Connects to a socket of the host that way.
pub fn connect_above_root(context: &Context, place: &str) -> Answer {
    match context.sockets.get(place) {
        Some(path) => Answer::from_io(UnixStream::connect(above_root(path))),
        None => Answer::of("host-unknown"),
    }
}

/// Makes a file where only a read-only root or Landlock refuses it, and takes it away again.
pub fn create_in_root(context: &Context) -> Answer {
    let path = format!("/nexus-escape-root-{}", context.token);
    let made = sys::open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644);
    if made.is_ok() {
        sys::either_way(fs::remove_file(&path));
    }
    made.map(drop).into()
}

/// Path of a second mount of the suite's read-only directory, outside every private directory.
pub const ELSEWHERE: &str = "/nexus-escape-ro";

/// Writes to the read-only directory there. Landlock allows writing below the private directories, whatever is mounted
/// there, so that elsewhere two parts of the confinement refuse it.
pub fn write_elsewhere(context: &Context) -> Answer {
    let shown = Path::new(ELSEWHERE);
    let path = if shown.exists() { shown } else { &context.read_only };
    sys::open(path.join("file"), libc::O_WRONLY, 0).into()
}

/// Opens for writing a file of `/proc` that belongs to this process itself.
pub fn own_switch(_: &Context) -> Answer {
    sys::open("/proc/self/oom_score_adj", libc::O_WRONLY, 0).into()
}

/// Gives its owner the right to read a hidden path back. Whose path it is the suite decides: what it shows is refused
/// whatever its mode.
pub fn uncover(context: &Context, at: usize) -> Answer {
    let Some(path) = context.hidden.get(at) else { return Answer::of("host-unknown") };
    Answer::from_io(fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
}

/// Reads a hidden file.
pub fn read_hidden(context: &Context) -> Answer {
    match context.hidden.first() {
        Some(path) => sys::open(path, libc::O_RDONLY, 0).into(),
        None => Answer::of("host-unknown"),
    }
}

/// Twin: changes the mode of a file beside it.
pub fn change_neighbour(context: &Context) -> Answer {
    let path = context.workspace.join("own-file");
    Answer::from_io(fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
}

/// Connects a datagram socket to an address that is never anybody's (RFC 5737): nothing is sent, but a route is needed.
pub fn route(_: &Context) -> Answer {
    let connect = || std::net::UdpSocket::bind("0.0.0.0:0")?.connect("192.0.2.1:9");
    Answer::from_io(connect())
}
