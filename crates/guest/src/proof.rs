//! The enforcement proof: attempts that a confined process makes just before its exec, each a microsecond or so.
//!
//! Every attempt must be refused in the named way. One that is not ends the launch: a wall that was believed to
//! stand does not. Attempts whose right answer is a kill (foreign system calls) stay in the escape suite.

use nexus_model::network::Network;
use nexus_model::proof::ProofItem;
use nexus_model::proof::ProofPlan;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;
use std::path::Path;

/// Makes all attempts.
pub fn attempt(plan: &ProofPlan) -> Vec<ProofItem> {
    let mut items = Vec::with_capacity(24);
    let mut add = |check: &str, expected: &str, seen: String| {
        items.push(ProofItem { check: check.to_owned(), expected: expected.to_owned(), seen });
    };
    add("write_root", "EROFS|EACCES", answer(create(Path::new("/nexus-proof"))));
    add("write_system", "EROFS|EACCES", answer(create(Path::new("/usr/nexus-proof"))));
    add("open_host_marker", "ENOENT", answer(inspect(plan.marker.as_path())));
    add("write_proc_sys", "EROFS|EACCES", answer(open_for_writing(Path::new("/proc/sys/kernel/core_pattern"))));
    add("socket_packet", "EAFNOSUPPORT", answer(socket(AddressFamily::PACKET)));
    add("reach_network", reachable(plan.network), connect_out().unwrap_or_else(name));
    add("new_user_namespace", "EPERM", answer(new_user_namespace()));
    add("mount", "EPERM", answer(mount()));
    add("read_keyring", "EPERM|ENOSYS", answer(keyring()));
    add("capabilities", "none", capabilities());
    add("no_new_privs", "true", rustix::thread::no_new_privs().map_or_else(name, |set| set.to_string()));
    add("seccomp", "filter", seccomp());
    add("core_limit", "1", rustix::process::getrlimit(Resource::Core).maximum.map_or("none".into(), |v| v.to_string()));
    add("uid_map", &plan.uid_map, uid_map());
    add("root_flags", "ro,nosuid,nodev", flags(Path::new("/")));
    add("workspace_flags", "rw,nosuid,nodev", flags(plan.workspace.as_path()));
    let own = rustix::fs::open(c"/proc/self/ns", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    for (kind, host) in &plan.host_namespaces {
        let seen = own.as_ref().map_err(|errno| *errno).and_then(|directory| namespace(directory, kind));
        add(&format!("namespace_{kind}"), "own", seen.map_or_else(name, |seen| compared(&seen, kind, *host)));
    }
    items
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

/// With an egress every address is local: what is sent stays on this namespace's loopback.
fn reachable(network: Network) -> &'static str {
    match network {
        Network::None => "ENETUNREACH",
        Network::Egress | Network::EgressByProgram => "loopback",
    }
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
            attempt(&ProofPlan {
                marker: "/proc/self/exe".into(),
                uid_map: "1000 1000000000 1".to_owned(),
                host_namespaces: vec![("net".to_owned(), own_network())],
                workspace: "/".into(),
                network: Network::None,
            })
        });
        let items = attempts.join().unwrap();
        std::fs::remove_dir(place).unwrap();
        items
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
