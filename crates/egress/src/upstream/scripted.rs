//! A resolver for tests.

use crate::seams::{Lookup, ResolveError, Resolved, Resolver};
use nexus_policy::net::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

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
    pub fn repair(&self, name: &str) {
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
