//! Resolves names like this host: by `/etc/hosts` and `/etc/resolv.conf` as they are at the time of the look-up.
//!
//! ```text
//!  name ─▶ the files, read again when they changed ─┬─ in the hosts file ─▶ what stands there
//!                                                   └─▶ A and AAAA at once ─▶ both, or the one that came
//! ```

use crate::seams::{Lookup, ResolveError, Resolved, Resolver};
use crate::upstream::answers::{Answers, Family};
use crate::upstream::sockets::{Sockets, is_local};
use hickory_proto::op::Query;
use hickory_proto::rr::{Name as DnsName, RecordType};
use hickory_resolver::Hosts;
use hickory_resolver::config::ResolveHosts;
use hickory_resolver::net::{DnsError, NetError};
use nexus_policy::net::Name;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

const RESOLV: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// Maximum size of the hosts file in bytes; lists that block advertisements have about 10 MiB.
const MAX_HOSTS: u64 = 32 * 1024 * 1024;
/// Minimum time between two checks of the files.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum time for which a family without an answer is remembered. Short: one late answer must not make a name
/// unreachable on a host that has only that family.
const SILENT: Duration = Duration::from_secs(5);
/// Time limit for the other family after one has an address. Some name servers never answer one of them.
const OTHER_FAMILY: Duration = Duration::from_millis(1500);

/// Resolver of this host.
#[derive(Default)]
pub struct System {
    state: Mutex<State>,
}

/// Files as they were last read. An error is not kept: the next question reads again.
#[derive(Default)]
struct State {
    looked: Option<Instant>,
    stamps: [Stamp; 2],
    files: Option<Arc<Files>>,
}

/// Value that changes with a file: its modification time in seconds and nanoseconds, its size and its inode; `None` if
/// the file does not exist.
type Stamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &str) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
}

/// Contents of the files, and a resolver made from them.
struct Files {
    hosts: Hosts,
    resolver: hickory_resolver::Resolver<Sockets>,
    sockets: Sockets,
    answers: Answers,
}

impl Files {
    fn read() -> Result<Self, String> {
        let sockets = Sockets::default();
        let builder = hickory_resolver::Resolver::builder(sockets.clone());
        let mut builder = builder.map_err(|error| error.to_string())?;
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        // The resolver's own cache holds whole answers, with sections that a name server fills as it likes: 2 MiB each,
        // thousands of them.
        builder.options_mut().cache_size = 0;
        // The resolver would also keep such sections of aliases, while it waits for their targets.
        builder.options_mut().preserve_intermediates = false;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        let hosts = hosts().map_err(|error| format!("{HOSTS}: {error}"))?;
        Ok(Self { hosts, resolver, sockets, answers: Answers::default() })
    }

    /// Returns all addresses of a name in the hosts file, as with the `files dns` of nsswitch.conf(5). The resolver's
    /// own way is to ask the name servers for a missing family: the answer would then come from two sources, and wait
    /// for servers that may be out of reach.
    fn pinned(&self, name: &Name) -> Vec<IpAddr> {
        let Ok(name) = DnsName::from_ascii(name.fqdn()) else { return Vec::new() };
        let of = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let lookups = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
        lookups.flat_map(|lookup| lookup.answers().to_vec()).filter_map(|record| record.data.ip_addr()).collect()
    }
}

/// Reads the hosts file, which a machine may lack. An unreadable one is an error: it could hide addresses that the
/// operator pinned.
fn hosts() -> io::Result<Hosts> {
    let mut hosts = Hosts::default();
    match File::open(HOSTS) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(MAX_HOSTS + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_HOSTS {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_HOSTS} bytes")));
            }
            // A comment in another encoding would end the reading.
            hosts.read_hosts_conf(String::from_utf8_lossy(&bytes).as_bytes())?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(hosts)
}

impl System {
    fn files(&self) -> Result<Arc<Files>, ResolveError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = state.looked.is_some_and(|at| at.elapsed() < LOOK);
        if let Some(files) = state.files.clone().filter(|_| fresh) {
            return Ok(files);
        }
        // The stamps come before the files: a change while the files are read is seen the next time.
        let stamps = [RESOLV, HOSTS].map(stamp);
        if let Some(files) = state.files.clone().filter(|_| state.stamps == stamps) {
            state.looked = Some(Instant::now());
            return Ok(files);
        }
        *state = State::default();
        let files = Arc::new(Files::read().map_err(|why| ResolveError::Configuration { why })?);
        *state = State { looked: Some(Instant::now()), stamps, files: Some(Arc::clone(&files)) };
        Ok(files)
    }
}

/// Returns the kept answer for one family.
fn kept(files: &Files, name: &Name, kind: RecordType) -> Option<Result<Family, ResolveError>> {
    let kept = files.answers.get(name, kind, Instant::now())?;
    Some(if kept.silent { Err(silent(name)) } else { Ok(kept) })
}

fn silent(name: &Name) -> ResolveError {
    let why = format!("no answer within {} ms after the other family's", OTHER_FAMILY.as_millis());
    ResolveError::Silent { name: name.to_string(), why }
}

async fn family(files: &Files, name: &Name, kind: RecordType) -> Result<Family, ResolveError> {
    if let Some(kept) = kept(files, name, kind) {
        return kept;
    }
    let refused = files.sockets.refused();
    // With the trailing dot no search domain is appended: the result would be another name than the allowed one.
    let family = match files.resolver.lookup(name.fqdn(), kind).await {
        Ok(found) => {
            let addrs = found.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
            let Resolved { addrs, .. } = Resolved { addrs, ..Resolved::default() }.bounded(name)?;
            Family { addrs, until: Some(found.valid_until()), silent: false }
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
            let left = none.negative_ttl.map(|seconds| Duration::from_secs(seconds.into()));
            let until = left.and_then(|left| Instant::now().checked_add(left));
            Family { addrs: Vec::new(), until, silent: false }
        }
        Err(error) => return Err(unanswered(name, &error, files.sockets.refused() != refused)),
    };
    files.answers.keep(name, kind, &family, Instant::now());
    Ok(family)
}

/// Distinguishes an error of a name server from one of this host and from silence. `lacked` is true if this host
/// refused a socket meanwhile.
fn unanswered(name: &Name, error: &NetError, lacked: bool) -> ResolveError {
    let (name, why) = (name.to_string(), error.to_string());
    match error {
        // This is an answer, although not a good one.
        NetError::Dns(_) | NetError::Proto(_) => ResolveError::Failed { name, why },
        _ if lacked => ResolveError::Local { name, why: "this machine gives the resolver no socket".to_owned() },
        NetError::Timeout => ResolveError::Silent { name, why },
        NetError::Io(io) if io.kind() == io::ErrorKind::TimedOut => ResolveError::Silent { name, why },
        NetError::Io(io) if is_local(io) => ResolveError::Local { name, why },
        NetError::Io(_) | NetError::NoConnections => ResolveError::Failed { name, why },
        _ => ResolveError::Local { name, why },
    }
}

/// Waits for both answers, or for one with an address if the other does not come in time after it. A family without an
/// answer is not dialled.
async fn either<T>(
    one: impl Future<Output = T>,
    other: impl Future<Output = T>,
    enough: impl Fn(&T) -> bool,
) -> (Option<T>, Option<T>) {
    tokio::pin!(one, other);
    tokio::select! {
        first = &mut one => {
            let second = if enough(&first) { timeout(OTHER_FAMILY, other).await.ok() } else { Some(other.await) };
            (Some(first), second)
        }
        second = &mut other => {
            let first = if enough(&second) { timeout(OTHER_FAMILY, one).await.ok() } else { Some(one.await) };
            (first, Some(second))
        }
    }
}

/// Remembers that one family was not answered while the other one was: each look-up would wait for it again.
fn remember(files: &Files, name: &Name, kind: RecordType, missing: &Result<Family, ResolveError>, other: &Family) {
    if matches!(missing, Err(ResolveError::Silent { .. })) && !other.addrs.is_empty() {
        let now = Instant::now();
        let until = other.until.map(|until| until.min(now + SILENT));
        files.answers.keep(name, kind, &Family { addrs: Vec::new(), until, silent: true }, now);
    }
}

/// Joins the answers for both families.
fn together(answers: [Result<Family, ResolveError>; 2]) -> Result<Resolved, ResolveError> {
    let mut found = Resolved::default();
    let (mut until, mut failed) = (None::<Instant>, None);
    for answer in answers {
        match answer {
            Ok(family) => {
                let ends = family.until.filter(|_| !family.addrs.is_empty());
                until = ends.into_iter().chain(until).min();
                found.addrs.extend(family.addrs);
            }
            // The addresses of the other family would be decided about without these.
            Err(error @ ResolveError::TooMany { .. }) => return Err(error),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.addrs.is_empty() => return Err(error),
        failed => found.partial = failed,
    }
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
    found.ttl_s = left.and_then(|left| u32::try_from(left).ok());
    Ok(found)
}

impl Resolver for System {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            if let Some(known) = self.known(name) {
                return known;
            }
            let files = self.files()?;
            let ask = |kind| family(&files, name, kind);
            let enough = |answer: &Result<Family, ResolveError>| answer.as_ref().is_ok_and(|one| !one.addrs.is_empty());
            let (v4, v6) = either(ask(RecordType::A), ask(RecordType::AAAA), enough).await;
            let [v4, v6] = [v4, v6].map(|answer| answer.unwrap_or_else(|| Err(silent(name))));
            match (&v4, &v6) {
                (missing @ Err(_), Ok(other)) => remember(&files, name, RecordType::A, missing, other),
                (Ok(other), missing @ Err(_)) => remember(&files, name, RecordType::AAAA, missing, other),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            }
            together([v4, v6])
        })
    }

    fn known(&self, name: &Name) -> Option<Result<Resolved, ResolveError>> {
        let files = match self.files() {
            Ok(files) => files,
            Err(error) => return Some(Err(error)),
        };
        let addrs = files.pinned(name);
        if !addrs.is_empty() {
            return Some(Resolved { addrs, ..Resolved::default() }.bounded(name));
        }
        let both = (kept(&files, name, RecordType::A)?, kept(&files, name, RecordType::AAAA)?);
        Some(together([both.0, both.1]))
    }
}
