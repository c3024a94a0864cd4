//! Holds the policy in force and every open connection under it.
//!
//! Both stand behind one lock, so that a new policy and a new connection cannot miss each other: either the connection
//! is seen by the reload, or it is checked against the new policy when it is entered.

use crate::decide::context::InForce;
use crate::decide::facts::denied_addresses::Followed;
use crate::decide::own::own_among;
use crate::seams::OwnAddresses;
use nexus_policy::net::{
    AnyRule, Behind, Denial, Host, Ipv6Net, MonotonicMs, Permit, Policy, Route, check_method, check_unnamed, recheck,
};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;

/// Facts beside the policy that decisions about addresses use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learned {
    /// Addresses of this host beside those of the policy.
    pub(crate) own: Vec<IpAddr>,
    /// Known facts about denied names behind the addresses.
    pub(crate) behind: Vec<Behind>,
}

/// Returns the addresses that `permit` leads to, as far as they are known: also an address that the proxy connects to.
pub(crate) fn ends(permit: &Permit) -> Vec<SocketAddr> {
    match (permit.route(), permit.host()) {
        (Route::Addrs(addrs), _) => addrs.to_vec(),
        (Route::ViaProxy(target), Host::Address(address)) => vec![SocketAddr::new(*address, target.port.number())],
        (Route::ViaProxy(_), Host::Name(_)) => Vec::new(),
    }
}

/// Open connection with its permit.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) permit: Permit,
    /// Rule that a person gave for this connection alone.
    pub(crate) once: Option<AnyRule>,
    /// Latest facts about the addresses of the connection.
    learned: Mutex<Learned>,
    /// True if the connection has become a tunnel that is not inspected.
    opaque: AtomicBool,
    /// True if nothing on it named exactly its host before it became a tunnel.
    unnamed: AtomicBool,
    why: OnceLock<Denial>,
    wake: Notify,
}

impl Entry {
    pub(crate) fn new(permit: Permit, once: Option<AnyRule>, learned: Learned) -> Self {
        let (why, wake) = (OnceLock::new(), Notify::new());
        let (opaque, unnamed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { permit, once, learned: Mutex::new(learned), opaque, unnamed, why, wake }
    }

    /// Returns the latest facts about the addresses of the connection.
    pub(crate) fn learned(&self) -> Learned {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the facts about the addresses of the connection again.
    pub(crate) fn learn(&self, policy: &Policy, own: &dyn OwnAddresses, followed: &Followed) -> Result<(), Denial> {
        let addrs = ends(&self.permit);
        if !addrs.is_empty() {
            let behind = followed.among(policy, self.permit.attempt(), addrs.iter().map(SocketAddr::ip));
            let learned = Learned { own: own_among(policy, own, &addrs)?, behind };
            *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = learned;
        }
        Ok(())
    }

    /// Checks that `policy` still allows the connection.
    pub(crate) fn evaluate(&self, policy: &Policy, now: MonotonicMs) -> Result<(), Denial> {
        if self.opaque.load(Ordering::Acquire) {
            check_method(policy, self.permit.target(), "", true)?;
        }
        let with_rule = self.once.as_ref().and_then(|rule| policy.approve(rule.clone()).ok());
        let policy = with_rule.map_or(Cow::Borrowed(policy), Cow::Owned);
        self.with_learned(&policy, |policy| {
            recheck(policy, &self.permit, now)?;
            if self.unnamed.load(Ordering::Acquire) { check_unnamed(policy, &self.permit) } else { Ok(()) }
        })
    }

    /// Asks `policy` together with the latest facts about the addresses of the connection.
    pub(crate) fn with_learned<T>(&self, policy: &Policy, ask: impl FnOnce(&Policy) -> T) -> T {
        let learned = self.learned();
        ask(&policy.also_own(&learned.own).also_behind(&learned.behind))
    }

    /// Marks the connection as not inspected from now on. The caller then reads the policy, which may forbid that.
    pub(crate) fn close_eyes(&self) {
        self.opaque.store(true, Ordering::Release);
    }

    /// Marks the connection as one that did not name exactly its host. The caller then evaluates it again: what was
    /// learned meanwhile may forbid that.
    pub(crate) fn stay_unnamed(&self) {
        self.unnamed.store(true, Ordering::Release);
    }

    /// Ends the connection; the first reason stays.
    pub(crate) fn cut(&self, why: Denial) {
        // A second reason changes nothing, so its refusal is not a failure.
        if self.why.set(why).is_ok() {
            self.wake.notify_waiters();
        }
    }

    /// Returns the reason of the cut, if the connection was cut.
    pub(crate) fn why(&self) -> Option<Denial> {
        self.why.get().cloned()
    }

    /// Waits until the connection is cut, and returns the reason.
    pub(crate) async fn until_cut(&self) -> Denial {
        loop {
            let woken = self.wake.notified();
            if let Some(why) = self.why() {
                return why;
            }
            woken.await;
        }
    }
}

/// Error of a policy that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The policy is older than the one in force and arrived late.
    #[error("policy {offered} is older than policy {present}, which is in force")]
    Older {
        /// Generation in force.
        present: u64,
        /// Generation that was offered.
        offered: u64,
    },
    /// Two different policies have the same number.
    #[error("policy {generation} is in force with other content: a changed policy needs a higher number")]
    Differs {
        /// Generation of both policies.
        generation: u64,
    },
    /// The policy wants the operator's proxy, and none is configured.
    #[error("the policy sends everything through an upstream proxy, and none is configured")]
    NoUpstream,
}

#[derive(Debug)]
struct Inner {
    policy: Arc<InForce>,
    open: HashMap<u64, Arc<Entry>>,
}

/// Maximum number of prefixes of NAT64 that are kept: those of the networks that this host joins one after the other.
const MAX_NAT64: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry(Mutex<Inner>);

impl Registry {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self(Mutex::new(Inner { policy: Arc::new(InForce::new(policy)), open: HashMap::new() }))
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn policy(&self) -> Arc<InForce> {
        Arc::clone(&self.inner().policy)
    }

    pub(crate) fn open(&self) -> usize {
        self.inner().open.len()
    }

    /// Returns every open connection.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.inner().open.values().map(Arc::clone).collect()
    }

    /// Enters a connection, unless the policy that is in force by now forbids it.
    pub(crate) fn enter(&self, id: u64, entry: Arc<Entry>, now: MonotonicMs) -> Result<(), Denial> {
        let mut inner = self.inner();
        // A permit for one connection has a number of its own, which a policy that came meanwhile may have too.
        let has_learned = !inner.policy.nat64().is_empty();
        if has_learned || entry.once.is_some() || inner.policy.generation() != entry.permit.generation() {
            entry.evaluate(&inner.policy, now)?;
        }
        inner.open.insert(id, entry);
        Ok(())
    }

    pub(crate) fn leave(&self, id: u64) {
        self.inner().open.remove(&id);
    }

    /// Puts `policy` in force and cuts the connections that it forbids. When this returns, all of them know it. Returns
    /// their number.
    pub(crate) fn reload(&self, policy: Arc<Policy>, now: MonotonicMs) -> Result<usize, ReloadError> {
        let mut inner = self.inner();
        let nat64 = inner.policy.nat64();
        let policy = if nat64.is_empty() { policy } else { Arc::new(policy.with_nat64(nat64.clone())) };
        let (present, offered) = (inner.policy.generation(), policy.generation());
        if offered < present {
            return Err(ReloadError::Older { present, offered });
        }
        if offered == present {
            let same = *inner.policy.policy == *policy;
            return if same { Ok(0) } else { Err(ReloadError::Differs { generation: present }) };
        }
        Ok(inner.put(policy, now))
    }

    /// Adds prefixes of NAT64 to the policy in force and cuts what it then forbids. Known prefixes stay: an answer must
    /// not displace them.
    pub(crate) fn learn_nat64(&self, found: &BTreeSet<Ipv6Net>, now: MonotonicMs) {
        let mut inner = self.inner();
        let known = inner.policy.nat64();
        let room = MAX_NAT64.saturating_sub(known.len());
        let new: Vec<Ipv6Net> = found.difference(known).copied().take(room).collect();
        if new.is_empty() {
            return;
        }
        let policy = Arc::new(inner.policy.with_nat64(known.iter().copied().chain(new).collect()));
        inner.put(policy, now);
    }
}

impl Inner {
    /// Puts `policy` in force; returns the number of connections that it cuts.
    fn put(&mut self, policy: Arc<Policy>, now: MonotonicMs) -> usize {
        self.policy = Arc::new(InForce::new(policy));
        let mut cut = 0;
        for entry in self.open.values() {
            if let Err(why) = entry.evaluate(&self.policy, now) {
                entry.cut(why);
                cut += 1;
            }
        }
        cut
    }
}
