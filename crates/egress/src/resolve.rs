//! Names to addresses. Always by the egress, never by the sandbox, and only for names that were allowed before.

use nexus_policy::net::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

/// The most addresses of one family that a name may have. A program inside may choose the name, and each of its addresses is
/// decided about, kept with the connection and recorded.
pub const MAX_ADDRESSES: usize = 64;

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// In order of preference; empty is "the name has none".
    pub addrs: Vec<IpAddr>,
    /// How long they hold, in seconds.
    pub ttl_s: Option<u32>,
    /// Why the addresses of the other family are not known. A dialler needs none of them; who lets somebody else resolve the
    /// name does.
    pub partial: Option<ResolveError>,
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
    /// A name server refused or failed, or nobody serves names at its address.
    #[error("{name} cannot be resolved: {why}")]
    Failed {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// This host could not ask: it has no descriptor left, for example. A program inside may be the cause.
    #[error("{name} cannot be resolved: {why}")]
    Local {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// No answer in time.
    #[error("{name} cannot be resolved: {why}")]
    Silent {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// An answer that is too large to be used.
    #[error("{name} has more than {MAX_ADDRESSES} addresses of one family, which is too many")]
    TooMany {
        /// The name.
        name: String,
    },
}

impl Resolved {
    /// Refuses an answer with more than [`MAX_ADDRESSES`] of one family. It is not cut: what is left out is not decided about.
    pub(crate) fn bounded(self, name: &Name) -> Result<Self, ResolveError> {
        let v4 = self.addrs.iter().filter(|address| address.is_ipv4()).count();
        if v4.max(self.addrs.len() - v4) > MAX_ADDRESSES {
            return Err(ResolveError::TooMany { name: name.to_string() });
        }
        Ok(self)
    }
}

/// An answer that is being waited for.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Resolved, ResolveError>> + Send + 'a>>;

/// Answers. The egress sets the time limit.
pub trait Resolver: Send + Sync {
    /// All addresses of `name`, of both families.
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a>;

    /// The answer for `name` where it is known without asking a name server.
    fn known(&self, _name: &Name) -> Option<Result<Resolved, ResolveError>> {
        None
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
            Resolved { addrs, ..Resolved::default() }.bounded(name)
        })
    }
}
