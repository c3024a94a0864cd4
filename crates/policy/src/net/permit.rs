//! Permission as a value: what only the decision can make, and what the dialler asks for.

use crate::net::cause::{Cause, DenyCode};
use crate::net::rules::rule::{Program, Rule, Source};
use crate::net::rules::target::{Host, Target};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A point on the caller's monotonic clock, in milliseconds. A wall clock that is set back must not prolong a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MonotonicMs(pub u64);

impl MonotonicMs {
    /// Returns the point `ms` milliseconds later, at most the end of time.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Way by which an attempt came in. Only a policy that limits methods decides by it: not every way shows them. DNS
/// questions have no port and come in through [`super::check_dns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ingress {
    /// An HTTP CONNECT request.
    Connect,
    /// HTTP with an absolute request target.
    HttpAbsolute,
    /// A SOCKS5 request.
    Socks5,
    /// A redirected TCP connection.
    Transparent,
    /// A listener inside that stands for a port of the host's loopback.
    HostPort,
}

/// A connection that a program inside wants to make.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The host and port that it wants to reach.
    pub target: Target,
    /// The way it came in.
    pub way: Ingress,
    /// The program that connects, where it is known.
    pub program: Option<Program>,
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// The place where the rule was written.
    pub source: Source,
    /// The rule in canonical form.
    pub text: String,
}

impl RuleRef {
    pub(in crate::net) fn of(rule: &Rule) -> Self {
        let by = rule.program.as_ref().map(|program| format!("@{}", program.0)).unwrap_or_default();
        Self { source: rule.source.clone(), text: rule.place() + &by }
    }
}

/// Refusal with what a person needs: the reason, the rule, and the flag that would allow it where one may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{explanation}")]
pub struct Denial {
    /// The exact reason.
    pub cause: Cause,
    /// The code of the contract for the cause.
    pub code: DenyCode,
    /// The rule that decided, if one did.
    pub rule: Option<Box<RuleRef>>,
    /// One sentence without a full stop.
    pub explanation: String,
    /// The flag of `nexus run` that would allow it, such as `--allow example.com:443`.
    pub allow_with: Option<String>,
}

impl Denial {
    pub(in crate::net) fn new(cause: Cause, explanation: impl Into<String>) -> Self {
        Self { cause, code: cause.code(), rule: None, explanation: explanation.into(), allow_with: None }
    }

    pub(in crate::net) fn by(self, rule: RuleRef) -> Self {
        Self { rule: Some(Box::new(rule)), ..self }
    }

    pub(in crate::net) fn allow_with(self, flag: impl Into<String>) -> Self {
        Self { allow_with: Some(flag.into()), ..self }
    }

    /// Returns the denial of a request that cannot be read as a destination.
    pub fn unreadable(why: &impl std::error::Error) -> Self {
        Self::new(Cause::Unreadable, why.to_string())
    }

    /// Returns the status for HTTP.
    pub fn http_status(&self) -> u16 {
        self.code.http_status()
    }

    /// Returns the reply for SOCKS5.
    pub fn socks_reply(&self) -> u8 {
        self.code.socks_reply()
    }
}

/// View that the policy alone gives the egress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::net) enum Shows {
    /// The egress sees neither names nor requests.
    #[default]
    Nothing,
    /// The name in TLS.
    Name,
    /// The requests of HTTP, each with its name and method.
    Requests,
}

impl Shows {
    pub(in crate::net) fn of(tls: bool, http: bool) -> Self {
        match (tls, http) {
            (true, _) => Self::Name,
            (false, true) => Self::Requests,
            (false, false) => Self::Nothing,
        }
    }
}

/// Grounds on which a name or address was let through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::net) struct Grant {
    pub(in crate::net) rule: Option<RuleRef>,
    pub(in crate::net) private: bool,
    pub(in crate::net) tls: bool,
    /// True if HTTP without TLS is expected.
    pub(in crate::net) http: bool,
    /// The view of the egress by the demands of the policy alone, apart from its ceilings: a demand of a ceiling opens
    /// nothing.
    pub(in crate::net) shows: Shows,
    /// True if the connection must name its host, since the same server has a denied name too.
    pub(in crate::net) must_name: bool,
    /// True if a ceiling refuses the connection where it does not begin with TLS or HTTP as expected.
    pub(in crate::net) refuse_unnamed: bool,
}

/// A name that may be resolved. Only [`super::check_name`] makes one, so no name is resolved before it is allowed.
#[derive(Debug)]
pub struct NameQuery {
    pub(in crate::net) attempt: Attempt,
    pub(in crate::net) name: super::rules::name::Name,
    pub(in crate::net) exact: bool,
}

impl NameQuery {
    /// Returns the name to ask the resolver for; see [`super::Name::fqdn`].
    pub fn name(&self) -> &super::rules::name::Name {
        &self.name
    }

    /// Reports whether a rule names exactly this host. Otherwise the program inside chose the name, and the question
    /// can carry data.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the attempt that the name is resolved for.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }
}

/// Step that follows a name check that did not deny.
#[derive(Debug)]
pub enum Next {
    /// Resolve it, then ask [`super::check_addrs`].
    Resolve(NameQuery),
    /// Nothing is to be resolved: an address, or everything goes through the operator's proxy.
    Dial(Permit),
}

/// Destination of the connection that a permit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// Exactly these addresses, in this order of preference.
    Addrs(&'a [SocketAddr]),
    /// The operator's upstream proxy gets the target and resolves it: the addresses were not checked.
    ViaProxy(&'a Target),
}

/// Permission to dial. Its fields are private and no function outside of this module's parent makes one.
#[derive(Debug)]
pub struct Permit {
    pub(in crate::net) attempt: Attempt,
    pub(in crate::net) addrs: Option<Vec<SocketAddr>>,
    pub(in crate::net) grant: Grant,
    pub(in crate::net) generation: u64,
    pub(in crate::net) expires: Option<MonotonicMs>,
}

impl Permit {
    /// Returns the addresses to dial, or the target for the upstream proxy.
    pub fn route(&self) -> Route<'_> {
        match &self.addrs {
            Some(addrs) => Route::Addrs(addrs),
            None => Route::ViaProxy(&self.attempt.target),
        }
    }

    /// Returns the host and port that were allowed.
    pub fn target(&self) -> &Target {
        &self.attempt.target
    }

    /// Returns the host that was allowed.
    pub fn host(&self) -> &Host {
        &self.attempt.target.host
    }

    /// Returns the attempt that was allowed.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Returns the rule that allowed it; `None` where the mode did.
    pub fn rule(&self) -> Option<&RuleRef> {
        self.grant.rule.as_ref()
    }

    /// Reports whether the first bytes must be a ClientHello, to be given to [`super::check_sni`].
    pub fn expects_tls(&self) -> bool {
        self.grant.tls
    }

    /// Reports whether HTTP without TLS is spoken on it, so that every request inside is to be decided.
    pub fn expects_http(&self) -> bool {
        // The listener of a host port carries any bytes.
        self.attempt.way != Ingress::HostPort && self.grant.http
    }

    /// Reports whether the connection must name exactly its host, since the same server has a denied name too.
    pub fn must_name(&self) -> bool {
        self.grant.must_name
    }

    /// Reports whether the addresses were checked; if not, the record must say so.
    pub fn addresses_checked(&self) -> bool {
        self.addrs.is_some()
    }

    /// Returns the generation of the policy that allowed it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the time at which the permit and its connections end.
    pub fn expires(&self) -> Option<MonotonicMs> {
        self.expires
    }
}
