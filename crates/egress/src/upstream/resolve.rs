//! Resolves names to addresses. Always by the egress, never by the sandbox, and only for names that were allowed
//! before.

use nexus_policy::net::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

/// Maximum number of addresses of one family that a name may have. A program inside may choose the name, and each of
/// its addresses is decided about, kept with the connection and recorded.
pub const MAX_ADDRESSES: usize = 64;

/// Addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Addresses in order of preference; empty if the name has none.
    pub addrs: Vec<IpAddr>,
    /// Time to live of the addresses, in seconds.
    pub ttl_s: Option<u32>,
    /// Error of the other family, if its addresses are not known. A dialler does not need them; a decision about a name
    /// that a proxy resolves does.
    pub partial: Option<ResolveError>,
}

/// Error of a name that could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The system's configuration cannot be used.
    #[error("the system's resolver configuration cannot be used: {why}")]
    Configuration {
        /// Description of the mistake in the configuration.
        why: String,
    },
    /// A name server refused or failed, or no server answers at its address.
    #[error("{name} cannot be resolved: {why}")]
    Failed {
        /// Name in canonical form.
        name: String,
        /// Error of the name server.
        why: String,
    },
    /// This host could not ask: it has no descriptor left, for example. A program inside may be the cause.
    #[error("{name} cannot be resolved: {why}")]
    Local {
        /// Name in canonical form.
        name: String,
        /// Error of this host.
        why: String,
    },
    /// No answer came in time.
    #[error("{name} cannot be resolved: {why}")]
    Silent {
        /// Name in canonical form.
        name: String,
        /// Description of the silence.
        why: String,
    },
    /// The answer is too large to be used.
    #[error("{name} has more than {MAX_ADDRESSES} addresses of one family, which is too many")]
    TooMany {
        /// Name in canonical form.
        name: String,
    },
}

impl Resolved {
    /// Refuses an answer with more than [`MAX_ADDRESSES`] of one family. It is not cut: omitted addresses would not be
    /// decided about.
    pub(crate) fn bounded(self, name: &Name) -> Result<Self, ResolveError> {
        let v4 = self.addrs.iter().filter(|address| address.is_ipv4()).count();
        if v4.max(self.addrs.len() - v4) > MAX_ADDRESSES {
            return Err(ResolveError::TooMany { name: name.to_string() });
        }
        Ok(self)
    }
}

/// Future of a resolver's answer.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Resolved, ResolveError>> + Send + 'a>>;

/// Resolver of names. The egress sets the time limit.
pub trait Resolver: Send + Sync {
    /// Returns all addresses of `name`, of both families.
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a>;

    /// Returns the answer for `name` if it is known without a name server.
    fn known(&self, _name: &Name) -> Option<Result<Resolved, ResolveError>> {
        None
    }
}

/// Resolver that answers from a script and remembers the names that it was asked.
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

    /// Makes the look-up of a name fail.
    pub fn fail(&self, name: &str, why: &str) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), why.to_owned());
    }

    /// Makes the look-up of a name succeed again.
    pub fn mend(&self, name: &str) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the names that were asked since the last call.
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
            Resolved { addrs, ..Resolved::default() }.bounded(name)
        })
    }
}
