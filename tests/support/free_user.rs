//! The ordinary user that tests play as root: a uid that nobody else has.
//!
//! What an account of the machine runs counts against the same quotas (keys, processes), and its name stands in the
//! output of tools. So a test program takes a uid without an account and without a process, and holds a claim on it as
//! long as it runs: two test runs on one machine never share one. Included by path where tests need it, because test
//! code of several crates shares no crate.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

/// Sets the uid by hand. Nothing is checked then.
const VARIABLE: &str = "NEXUS_TEST_UID";

/// Between the accounts of people and those that systemd makes (61184 and above), and below 65536, which is all that
/// many containers have. Five digits, as many as the name `nexus` has letters: columns of `ls -l` stay as wide.
const CANDIDATES: Range<u32> = 20_000..60_000;

/// The uid of an ordinary user, the same at each call. The next number is free as well, for a second user.
pub fn ordinary_user() -> Result<u32, String> {
    /// The socket is the claim: its name is free again when the process ends, however that ends.
    static CHOSEN: OnceLock<Result<(u32, Option<UnixDatagram>), String>> = OnceLock::new();
    CHOSEN.get_or_init(choose).as_ref().map(|(uid, _)| *uid).map_err(Clone::clone)
}

fn choose() -> Result<(u32, Option<UnixDatagram>), String> {
    if let Some(value) = std::env::var_os(VARIABLE) {
        let uid = value.to_str().and_then(|text| text.parse().ok()).filter(|uid| *uid != 0);
        return uid.map(|uid| (uid, None)).ok_or_else(|| format!("{VARIABLE} is not a uid other than 0"));
    }
    let mut taken = BTreeSet::new();
    for file in ["/etc/passwd", "/etc/group"] {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        taken.extend(third_fields(&text));
    }
    for entry in fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?.flatten() {
        // Other entries have no such file, and a process may have ended meanwhile.
        taken
            .extend(fs::read_to_string(entry.path().join("status")).as_deref().map(uids_of_status).unwrap_or_default());
    }
    let size = u64::from(CANDIDATES.end - CANDIDATES.start);
    let offset = RandomState::new().hash_one(std::process::id()) % size;
    let mut claimed = None;
    let free = first_free(offset as u32, &taken, |uid| {
        claimed = claim(uid);
        claimed.is_some()
    });
    let uid = free.ok_or_else(|| format!("every uid in {CANDIDATES:?} is taken; set {VARIABLE} to one that is not"))?;
    Ok((uid, claimed))
}

/// The first uid from `offset` on that is not taken, whose successor is not taken, and that `claim` takes.
pub fn first_free(offset: u32, taken: &BTreeSet<u32>, mut claim: impl FnMut(u32) -> bool) -> Option<u32> {
    let pairs = (CANDIDATES.end - CANDIDATES.start) / 2;
    let pair = |at: u32| CANDIDATES.start + (offset / 2 + at) % pairs * 2;
    (0..pairs).map(pair).find(|uid| !taken.contains(uid) && !taken.contains(&(uid + 1)) && claim(*uid))
}

pub fn claim(uid: u32) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("nexus-test-uid-{uid}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

/// The uids of passwd(5) or the gids of group(5).
pub fn third_fields(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok())
}

/// The real, effective, saved and file system uid of `/proc/PID/status` (proc_pid_status(5)).
pub fn uids_of_status(text: &str) -> Vec<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}
