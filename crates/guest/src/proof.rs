//! The enforcement proof: attempts that a confined process makes just before its exec, each a microsecond or so.
//!
//! Every attempt must be refused in the named way. One that is not ends the launch: a wall that was believed to
//! stand does not. Attempts whose right answer is a kill (foreign system calls) stay in the escape suite.

use nexus_model::proof::{Expectation, ProofItem};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;
use std::path::Path;

/// Makes the attempts that the driver expects, in their order.
pub fn attempt(expected: &[Expectation]) -> Vec<ProofItem> {
    let mut namespaces = None;
    let mut items = Vec::with_capacity(expected.len());
    for one in expected {
        let seen = see(&one.check, one.subject.as_path(), &mut namespaces);
        items.push(ProofItem { check: one.check.clone(), expected: one.allowed.clone(), seen });
    }
    items
}

/// Makes one attempt. `namespaces` holds the directory of this process's namespaces, once one was asked for.
fn see(check: &str, subject: &Path, namespaces: &mut Option<Result<OwnedFd, Errno>>) -> String {
    match check {
        "write_root" => answer(create(Path::new("/nexus-proof"))),
        "write_system" => answer(create(Path::new("/usr/nexus-proof"))),
        "open_host_marker" => answer(inspect(subject)),
        "write_proc_sys" => answer(open_for_writing(Path::new("/proc/sys/kernel/core_pattern"))),
        "socket_packet" => answer(socket(AddressFamily::PACKET)),
        "reach_network" => connect_out().unwrap_or_else(name),
        "new_user_namespace" => answer(new_user_namespace()),
        "mount" => answer(mount()),
        "read_keyring" => answer(keyring()),
        "capabilities" => capabilities(),
        "no_new_privs" => rustix::thread::no_new_privs().map_or_else(name, |set| set.to_string()),
        "seccomp" => seccomp(),
        "core_limit" => rustix::process::getrlimit(Resource::Core).maximum.map_or("none".into(), |v| v.to_string()),
        "uid_map" => uid_map(),
        "root_flags" => flags(Path::new("/")),
        "workspace_flags" => flags(subject),
        _ => match (check.strip_prefix("namespace_"), subject.to_str().and_then(|inode| inode.parse().ok())) {
            (Some(kind), Some(host)) => {
                let own = namespaces.get_or_insert_with(open_namespaces);
                let seen = own.as_ref().map_err(|errno| *errno).and_then(|directory| namespace(directory, kind));
                seen.map_or_else(name, |seen| compared(&seen, kind, host))
            }
            // A driver that demands more than this guest can try has nothing proved.
            _ => "an unknown check".to_owned(),
        },
    }
}

fn open_namespaces() -> Result<OwnedFd, Errno> {
    rustix::fs::open(c"/proc/self/ns", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads the link to a namespace, `kind:[inode]` (proc_pid_ns(5)): cheaper than following it.
fn namespace(directory: &OwnedFd, kind: &str) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlinkat(directory, kind, Vec::with_capacity(64))?.into_bytes())
}

/// Returns whether a link of the right form leads elsewhere than to the host's namespace.
fn compared(link: &[u8], kind: &str, host: u64) -> String {
    let inode = std::str::from_utf8(link)
        .ok()
        .and_then(|link| link.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse::<u64>().ok());
    match inode {
        Some(inode) if inode == host => "the host's".to_owned(),
        Some(_) => "own".to_owned(),
        None => "a link of another form".to_owned(),
    }
}

fn answer(result: Result<(), Errno>) -> String {
    result.map_or_else(name, |()| "ok".to_owned())
}

/// The symbolic name of the errors that the attempts meet.
fn name(errno: Errno) -> String {
    let known = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::ACCESS, "EACCES"),
        (Errno::ROFS, "EROFS"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::INVAL, "EINVAL"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::NETUNREACH, "ENETUNREACH"),
        (Errno::NOTDIR, "ENOTDIR"),
    ];
    known
        .iter()
        .find(|(code, _)| *code == errno)
        .map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, n)| (*n).to_owned())
}

fn create(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map(drop)
}

fn open_for_writing(path: &Path) -> Result<(), Errno> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

fn inspect(path: &Path) -> Result<(), Errno> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        // A parent that is a file inside is as good as not there.
        Err(Errno::NOTDIR) => Err(Errno::NOENT),
        other => other.map(drop),
    }
}

fn socket(family: AddressFamily) -> Result<(), Errno> {
    rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop)
}

/// An address that is never anybody's (RFC 5737): nothing is sent by connecting a datagram socket, but a route is
/// needed. The route of the set-up, over loopback, has a source of loopback; a route over a device has one of that device.
fn connect_out() -> Result<String, Errno> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let address = std::net::SocketAddr::from((std::net::Ipv4Addr::new(192, 0, 2, 1), 9));
    rustix::net::connect(&socket, &address)?;
    let source = std::net::SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(if source.ip().is_loopback() { "loopback".to_owned() } else { source.ip().to_string() })
}

fn new_user_namespace() -> Result<(), Errno> {
    if !crate::leave_out::confinement().proof {
        // A command that starts although this succeeds would have another user namespace than its sandbox.
        return Err(Errno::PERM);
    }
    // SAFETY: if this is not refused, the process has a namespace of its own and is ended by the failed proof.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }
}

fn mount() -> Result<(), Errno> {
    let private = rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change(c"/", private)
}

fn keyring() -> Result<(), Errno> {
    const GET_KEYRING_ID: libc::c_int = 0;
    const SESSION_KEYRING: libc::c_int = -3;
    // SAFETY: plain numbers; asks for the id of the session keyring without making one.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 0) };
    if result >= 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

fn capabilities() -> String {
    let sets = match rustix::thread::capabilities(None) {
        Ok(sets) => sets,
        Err(errno) => return name(errno),
    };
    let empty = sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty();
    // A bounding set is read one by one; the first unknown number ends it.
    let bounded = (0..64u32).map_while(|number| {
        // SAFETY: prctl with plain numbers reads one bit of this thread's bounding set.
        match unsafe { libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(number), 0, 0, 0) } {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    });
    if empty && !bounded.into_iter().any(|set| set) { "none".to_owned() } else { "some".to_owned() }
}

fn seccomp() -> String {
    match rustix::thread::secure_computing_mode() {
        Ok(rustix::thread::SecureComputingMode::Filter) => "filter".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(errno) => name(errno),
    }
}

fn uid_map() -> String {
    match std::fs::read_to_string("/proc/self/uid_map") {
        Ok(text) => text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

fn flags(path: &Path) -> String {
    match rustix::fs::statvfs(path) {
        Ok(stat) => {
            let has =
                |flag, yes: &str, no: &str| if stat.f_flag.contains(flag) { yes.to_owned() } else { no.to_owned() };
            let parts = [
                has(StatVfsMountFlags::RDONLY, "ro", "rw"),
                has(StatVfsMountFlags::NOSUID, "nosuid", "suid"),
                has(StatVfsMountFlags::NODEV, "nodev", "dev"),
            ];
            parts.join(",")
        }
        Err(errno) => name(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answers of the proof outside a sandbox, in a root of its own that root made: in it the attempts may
    /// do harm.
    fn attempt_outside() -> Vec<ProofItem> {
        let place = std::env::temp_dir().join(format!("nexus-proof-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let root = place.clone();
        // A thread, whose mounts and root are its own from here on.
        let attempts = std::thread::spawn(move || {
            // SAFETY: changes only what this thread sees.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            rustix::mount::mount("tmpfs", &root, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
            for name in ["usr", "proc"] {
                std::fs::create_dir(root.join(name)).unwrap();
            }
            rustix::mount::mount_bind("/proc", root.join("proc")).unwrap();
            rustix::process::chroot(&root).unwrap();
            rustix::process::chdir("/").unwrap();
            attempt(&everything())
        });
        let items = attempts.join().unwrap();
        std::fs::remove_dir(place).unwrap();
        items
    }

    /// Every check that the guest knows, with an answer that a sandbox gives.
    fn everything() -> Vec<Expectation> {
        let own_network = own_network().to_string();
        let about = |check: &str, subject: &str, allowed: &str| Expectation::new(check, allowed).about(subject.into());
        vec![
            about("write_root", "", "EROFS|EACCES"),
            about("write_system", "", "EROFS|EACCES"),
            about("open_host_marker", "/proc/self/exe", "ENOENT"),
            about("write_proc_sys", "", "EROFS|EACCES"),
            about("socket_packet", "", "EAFNOSUPPORT"),
            about("reach_network", "", "ENETUNREACH"),
            about("new_user_namespace", "", "EPERM"),
            about("mount", "", "EPERM"),
            about("read_keyring", "", "EPERM|ENOSYS"),
            about("capabilities", "", "none"),
            about("no_new_privs", "", "true"),
            about("seccomp", "", "filter"),
            about("core_limit", "", "1"),
            about("uid_map", "", "1000 1000000000 1"),
            about("root_flags", "", "ro,nosuid,nodev"),
            about("workspace_flags", "/", "rw,nosuid,nodev"),
            about("namespace_net", &own_network, "own"),
        ]
    }

    #[test]
    fn an_attempt_that_the_guest_does_not_know_proves_nothing() {
        for (check, subject) in [("write_moon", ""), ("namespace_net", "none"), ("namespace_moon", "7"), ("", "")] {
            let items = attempt(&[Expectation::new(check, "own").about(subject.into())]);
            assert!(items.len() == 1 && !items[0].holds(), "{items:?}");
        }
    }

    #[test]
    fn outside_a_sandbox_the_proof_does_not_hold() {
        // Only root can make the place for the attempts.
        if !rustix::process::geteuid().is_root() {
            crate::skip::skipped("only root can make the place for the attempts");
            return;
        }
        let items = attempt_outside();
        assert_eq!(items.len(), 17, "{items:?}");
        for item in items {
            // A machine without a route has none without a sandbox, either.
            let no_route = item.check == "reach_network" && connect_out() == Err(Errno::NETUNREACH);
            assert!(!item.holds() || no_route, "{item:?}");
        }
    }

    fn own_network() -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self/ns/net").unwrap().ino()
    }

    #[test]
    fn only_another_namespace_of_the_same_kind_is_an_own_one() {
        assert_eq!(compared(b"net:[42]", "net", 7), "own");
        assert_eq!(compared(b"net:[42]", "net", 42), "the host's");
        for odd in [&b"mnt:[42]"[..], b"net:[]", b"net:[42", b"", b"\xff"] {
            assert_eq!(compared(odd, "net", 7), "a link of another form");
        }
    }
}
