//! Names to addresses. Always by the egress, never by the sandbox, and only for names that were allowed before.

use hickory_proto::op::Query;
use hickory_proto::rr::{Name as DnsName, RecordType};
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
use hickory_resolver::{Hosts, TokioResolver};
use nexus_policy::net::Name;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// In order of preference; empty is "the name has none".
    pub addrs: Vec<IpAddr>,
    /// How long they hold, in seconds.
    pub ttl_s: Option<u32>,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The system's configuration cannot be used.
    #[error("the system's resolver configuration cannot be used: {why}")]
    Configuration {
        /// Why.
        why: String,
    },
    /// No answer.
    #[error("{name} cannot be resolved: {why}")]
    Failed {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
}

/// An answer that is being waited for.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Resolved, ResolveError>> + Send + 'a>>;

/// Answers. The egress sets the time limit.
pub trait Resolver: Send + Sync {
    /// All addresses of `name`, of both families.
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a>;
}

/// The resolver of this host: `/etc/hosts` and `/etc/resolv.conf`, read at the first question.
#[derive(Default)]
pub struct System {
    files: OnceLock<Result<Files, String>>,
}

/// What the files say.
struct Files {
    hosts: Hosts,
    resolver: TokioResolver,
}

impl Files {
    fn read() -> Result<Self, String> {
        let mut builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
        // Both families always: a private address of either one must be seen before the name is dialled.
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        let hosts = hosts().map_err(|error| format!("/etc/hosts: {error}"))?;
        Ok(Self { hosts, resolver })
    }

    /// The addresses of a name that stands in the hosts file, and all that it has, as with the `files dns` of
    /// nsswitch.conf(5). The resolver's own way is to ask the name servers for the family that is not there: the answer
    /// would then come from two sources, and wait for servers that may be out of reach.
    fn pinned(&self, name: &Name) -> Vec<IpAddr> {
        let Ok(name) = DnsName::from_ascii(name.fqdn()) else { return Vec::new() };
        let of = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let lookups = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
        lookups.flat_map(|lookup| lookup.answers().to_vec()).filter_map(|record| record.data.ip_addr()).collect()
    }
}

/// A machine may have no such file. One that cannot be read could hide what the operator pinned.
fn hosts() -> io::Result<Hosts> {
    let mut hosts = Hosts::default();
    match std::fs::read("/etc/hosts") {
        // A comment in another encoding would end the reading.
        Ok(bytes) => hosts.read_hosts_conf(String::from_utf8_lossy(&bytes).as_bytes())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(hosts)
}

impl System {
    fn files(&self) -> Result<&Files, ResolveError> {
        let read = self.files.get_or_init(Files::read);
        read.as_ref().map_err(|why| ResolveError::Configuration { why: why.clone() })
    }
}

impl Resolver for System {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            let files = self.files()?;
            let addrs = files.pinned(name);
            if !addrs.is_empty() {
                return Ok(Resolved { addrs, ttl_s: None });
            }
            // With the trailing dot no search domain is appended: that would be another name than the allowed one.
            match files.resolver.lookup_ip(name.fqdn()).await {
                Ok(found) => {
                    let left = found.valid_until().saturating_duration_since(Instant::now());
                    let ttl_s = u32::try_from(left.as_secs()).ok();
                    Ok(Resolved { addrs: found.iter().collect(), ttl_s })
                }
                Err(error) if error.is_no_records_found() => Ok(Resolved::default()),
                Err(error) => Err(ResolveError::Failed { name: name.to_string(), why: error.to_string() }),
            }
        })
    }
}

/// Answers from a script, and remembers what it was asked.
#[derive(Debug, Default)]
pub struct Scripted {
    script: Mutex<BTreeMap<String, Vec<IpAddr>>>,
    failing: Mutex<BTreeMap<String, String>>,
    asked: Mutex<Vec<String>>,
}

impl Scripted {
    /// Sets the answer for a name in canonical form; `*` answers for all others.
    pub fn set(&self, name: &str, addrs: &[IpAddr]) {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), addrs.to_vec());
    }

    /// Lets the question for a name fail.
    pub fn fail(&self, name: &str, why: &str) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), why.to_owned());
    }

    /// Lets it fail no more.
    pub fn mend(&self, name: &str) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// What was asked since the last call.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Resolver for Scripted {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_string());
            if let Some(why) = self.failing.lock().unwrap_or_else(PoisonError::into_inner).get(name.as_str()) {
                return Err(ResolveError::Failed { name: name.to_string(), why: why.clone() });
            }
            let script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
            let addrs = script.get(name.as_str()).or_else(|| script.get("*")).cloned().unwrap_or_default();
            Ok(Resolved { addrs, ttl_s: None })
        })
    }
}
