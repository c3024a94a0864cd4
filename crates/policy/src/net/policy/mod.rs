//! A network policy that is ready to decide, and how one is made.
//!
//! ```text
//!  flags, documents, groups ─▶ PolicyInput ─build─▶ Policy ─narrow─▶ Policy (never more)
//!                              any order,  refuses    ▲ │
//!                              any source  conflicts  └─┘ approve, own addresses (generation + 1)
//! ```

pub mod behind;
pub mod bound;
pub mod budget;
pub(in crate::net) mod ceiling;
mod listed;
pub mod methods;
pub mod nat64;

use crate::net::permit::MonotonicMs;
use crate::net::rules::bypass::Bypass;
use crate::net::rules::host_port::HostPort;
use crate::net::rules::rule::{AddressRule, AnyRule, Origin, Rule, Source};
use crate::net::rules::rule_set::RuleSet;
use crate::net::rules::target::{Host, Target};
use behind::Behind;
use bound::{MissingSni, PolicyBound};
use budget::Budget;
use ceiling::Ceiling;
use ipnet::{IpNet, Ipv6Net};
use methods::Methods;
use nexus_model::capability::NetMode;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Everything that makes up a policy, in no order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyInput {
    /// The mode; `None` is "as the rules imply": allowlist if there is any allowance, otherwise none.
    pub mode: Option<NetMode>,
    /// Allowed names; those with `private` may be private.
    pub allow: Vec<Rule>,
    /// Names that are denied.
    pub deny: Vec<Rule>,
    /// Allowed addresses (`--allow-private`).
    pub allow_addresses: Vec<AddressRule>,
    /// Denied addresses and ranges.
    pub deny_addresses: Vec<AddressRule>,
    /// Ports of the host's loopback (`--allow-host-port`).
    pub host_ports: Vec<HostPort>,
    /// Private ranges into which allowed names may resolve; the operator's alone. They open no literals.
    pub trusted_ranges: Vec<IpNet>,
    /// Treatment of a missing TLS name; `None` is "refuse, except in the mode unrestricted".
    pub missing_sni: Option<MissingSni>,
    /// Allowed HTTP methods; of two values the stricter one holds.
    pub methods: Methods,
    /// True if everything goes through the operator's proxy, which then resolves names.
    pub upstream_proxy: bool,
    /// Destinations that go around that proxy.
    pub upstream_bypass: Vec<Bypass>,
    /// Upper bounds for a whole directive.
    pub budget: Budget,
    /// The time at which the policy ends.
    pub expires: Option<MonotonicMs>,
    /// True if a destination that is not listed leads to a question instead of a denial.
    pub ask: bool,
    /// The addresses of this host's interfaces.
    pub own_addresses: Vec<IpAddr>,
    /// Addresses on which the egress itself listens on the host; no rule opens these.
    pub own_listeners: Vec<SocketAddr>,
    /// The generation; a later policy has a higher one.
    pub generation: u64,
}

/// Reason why the parts do not make a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Rules that the mode would ignore: a grant that silently is none, or a limit that silently is none.
    #[error("the mode {mode} takes no allow rules, and there is one: {rule}", mode = mode_name(*.mode))]
    AllowWithoutAllowlist {
        /// The mode of the input.
        mode: NetMode,
        /// The first such rule.
        rule: Source,
    },
    /// A private destination opened by an origin that may not open one.
    #[error("{rule} may not open a private destination: only the operator and the user can")]
    PrivateNotAllowed {
        /// The rule that opens it.
        rule: Source,
    },
    /// A port of the host's loopback opened by something other than a flag of the user.
    #[error("{port} may not open a port of this machine's loopback: only a flag of the user can")]
    HostPortNotAllowed {
        /// The source of the port.
        port: Source,
    },
}

impl PolicyInput {
    /// Adds a rule of `--allow-private`.
    pub fn allow_any(&mut self, rule: AnyRule) {
        match rule {
            AnyRule::Name(rule) => self.allow.push(rule),
            AnyRule::Address(rule) => self.allow_addresses.push(rule),
        }
    }

    /// Adds a rule of `--deny`.
    pub fn deny_any(&mut self, rule: AnyRule) {
        match rule {
            AnyRule::Name(rule) => self.deny.push(rule),
            AnyRule::Address(rule) => self.deny_addresses.push(rule),
        }
    }
}

impl PolicyInput {
    /// Combines both, for a profile under the flags of its user: rules add up, single values of `nearer` replace.
    #[must_use]
    pub fn and(mut self, nearer: Self) -> Self {
        self.allow.extend(nearer.allow);
        self.deny.extend(nearer.deny);
        self.allow_addresses.extend(nearer.allow_addresses);
        self.deny_addresses.extend(nearer.deny_addresses);
        self.host_ports.extend(nearer.host_ports);
        self.trusted_ranges.extend(nearer.trusted_ranges);
        self.upstream_bypass.extend(nearer.upstream_bypass);
        self.own_addresses.extend(nearer.own_addresses);
        self.own_listeners.extend(nearer.own_listeners);
        Self {
            mode: nearer.mode.or(self.mode),
            missing_sni: nearer.missing_sni.or(self.missing_sni),
            methods: nearer.methods.max(self.methods),
            upstream_proxy: nearer.upstream_proxy || self.upstream_proxy,
            budget: nearer.budget.or(self.budget),
            expires: nearer.expires.or(self.expires),
            ask: nearer.ask || self.ask,
            generation: nearer.generation.max(self.generation),
            ..self
        }
    }
}

/// Returns the name of a mode as it is written.
pub fn mode_name(mode: NetMode) -> &'static str {
    match mode {
        NetMode::None => "none",
        NetMode::Allowlist => "allowlist",
        NetMode::Unrestricted => "unrestricted",
    }
}

/// A policy that is ready to decide. The default one allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub(in crate::net) mode: NetMode,
    pub(in crate::net) allow: RuleSet,
    pub(in crate::net) deny: RuleSet,
    pub(in crate::net) allow_addresses: Vec<AddressRule>,
    pub(in crate::net) deny_addresses: Vec<AddressRule>,
    pub(in crate::net) host_ports: Vec<HostPort>,
    pub(in crate::net) trusted_ranges: Vec<IpNet>,
    pub(in crate::net) ceilings: Vec<Ceiling>,
    pub(in crate::net) refuse_private: bool,
    pub(in crate::net) missing_sni: MissingSni,
    pub(in crate::net) methods: Methods,
    pub(in crate::net) upstream_proxy: bool,
    pub(in crate::net) upstream_bypass: Vec<Bypass>,
    pub(in crate::net) budget: Budget,
    pub(in crate::net) expires: Option<MonotonicMs>,
    pub(in crate::net) ask: bool,
    pub(in crate::net) own_addresses: BTreeSet<IpAddr>,
    pub(in crate::net) behind: Vec<Behind>,
    pub(in crate::net) nat64: BTreeSet<Ipv6Net>,
    pub(in crate::net) own_listeners: Vec<SocketAddr>,
    pub(in crate::net) generation: u64,
}

impl Policy {
    /// Checks the parts against each other and makes them a policy.
    pub fn build(input: PolicyInput) -> Result<Self, PolicyError> {
        let any_allowance = !input.allow.is_empty() || !input.allow_addresses.is_empty();
        let mode = input.mode.unwrap_or(if any_allowance || input.ask { NetMode::Allowlist } else { NetMode::None });
        // A private allowance has a meaning beside `unrestricted`, a public one has not.
        let idle = match mode {
            NetMode::Allowlist => None,
            NetMode::Unrestricted => input.allow.iter().find(|rule| !rule.private).map(|rule| &rule.source),
            NetMode::None => {
                let named = input.allow.first().map(|rule| &rule.source);
                named.or(input.allow_addresses.first().map(|rule| &rule.source))
            }
        };
        if let Some(rule) = idle {
            return Err(PolicyError::AllowWithoutAllowlist { mode, rule: rule.clone() });
        }
        for rule in input.allow.iter().filter(|rule| rule.private) {
            may_open_private(&rule.source)?;
        }
        for rule in &input.allow_addresses {
            may_open_private(&rule.source)?;
        }
        if let Some(port) = input.host_ports.iter().find(|port| port.source.origin != Origin::Flag) {
            return Err(PolicyError::HostPortNotAllowed { port: port.source.clone() });
        }
        Ok(Self {
            mode,
            allow: RuleSet::of(input.allow),
            deny: RuleSet::of(input.deny),
            allow_addresses: sorted(input.allow_addresses),
            deny_addresses: sorted(input.deny_addresses),
            host_ports: sorted(input.host_ports),
            trusted_ranges: sorted(input.trusted_ranges),
            ceilings: Vec::new(),
            refuse_private: false,
            missing_sni: input.missing_sni.unwrap_or(match mode {
                NetMode::Unrestricted => MissingSni::Allow,
                NetMode::None | NetMode::Allowlist => MissingSni::Refuse,
            }),
            methods: input.methods,
            upstream_proxy: input.upstream_proxy,
            upstream_bypass: sorted(input.upstream_bypass),
            budget: input.budget,
            expires: input.expires,
            ask: input.ask,
            own_addresses: input.own_addresses.into_iter().map(|address| address.to_canonical()).collect(),
            behind: Vec::new(),
            nat64: BTreeSet::new(),
            own_listeners: sorted(input.own_listeners),
            generation: input.generation,
        })
    }

    /// Returns the policy under one more ceiling. The result never allows anything that `self` does not.
    #[must_use]
    pub fn narrow(&self, by: &PolicyBound) -> Self {
        let mut narrow = self.clone();
        narrow.ceilings.extend(Ceiling::of(by));
        narrow.deny = RuleSet::of(self.deny.rules().iter().chain(&by.deny).cloned());
        narrow.deny_addresses = sorted(self.deny_addresses.iter().chain(&by.deny_addresses).cloned());
        narrow.refuse_private |= by.refuse_private;
        narrow.missing_sni = self.missing_sni.max(by.missing_sni.unwrap_or(MissingSni::Allow));
        narrow.methods = self.methods.max(by.methods);
        narrow.budget = self.budget.min(by.budget);
        narrow.expires = match (self.expires, by.expires) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        narrow
    }

    /// Returns the mode that holds: the narrowest of the policy and its ceilings.
    pub fn mode(&self) -> NetMode {
        let rank = |mode: &NetMode| match mode {
            NetMode::None => 0,
            NetMode::Allowlist => 1,
            NetMode::Unrestricted => 2,
        };
        self.ceilings.iter().map(|ceiling| ceiling.mode).chain([self.mode]).min_by_key(rank).unwrap_or_default()
    }

    /// Reports whether the rules for private destinations hold: no ceiling closes them.
    pub(in crate::net) fn opens_private(&self) -> bool {
        !self.refuse_private && !self.ceilings.iter().any(|ceiling| ceiling.refuse_given_private)
    }

    /// Reports whether `target` goes through the upstream proxy, as far as the lists say.
    pub(in crate::net) fn is_proxied(&self, target: &Target) -> bool {
        self.upstream_proxy && !self.upstream_bypass.iter().any(|entry| entry.matches(target))
    }

    /// Returns the policy with one more allowance that was given meanwhile, under the next generation.
    pub fn approve(&self, rule: AnyRule) -> Result<Self, PolicyError> {
        let mut more = self.clone();
        more.generation = self.generation.saturating_add(1);
        let (source, opens_private) = match &rule {
            AnyRule::Name(rule) => (&rule.source, rule.private),
            AnyRule::Address(rule) => (&rule.source, true),
        };
        if opens_private {
            may_open_private(source)?;
        }
        match (self.mode, &rule) {
            (NetMode::None, _) | (NetMode::Unrestricted, AnyRule::Name(Rule { private: false, .. })) => {
                return Err(PolicyError::AllowWithoutAllowlist { mode: self.mode, rule: source.clone() });
            }
            (NetMode::Allowlist, _)
            | (NetMode::Unrestricted, AnyRule::Address(_) | AnyRule::Name(Rule { private: true, .. })) => {}
        }
        match rule {
            AnyRule::Name(rule) => {
                more.ceilings = self.ceilings.iter().map(|ceiling| ceiling.with_answer(&rule)).collect();
                more.allow = RuleSet::of(self.allow.rules().iter().cloned().chain([rule]));
            }
            AnyRule::Address(rule) => {
                more.allow_addresses = sorted(self.allow_addresses.iter().cloned().chain([rule]));
            }
        }
        Ok(more)
    }

    /// Returns the same policy on a host whose addresses changed, under the next generation.
    #[must_use]
    pub fn on_host(&self, addresses: &[IpAddr], listeners: &[SocketAddr]) -> Self {
        Self {
            own_addresses: addresses.iter().map(IpAddr::to_canonical).collect(),
            own_listeners: sorted(listeners.iter().copied()),
            generation: self.generation.saturating_add(1),
            ..self.clone()
        }
    }

    /// Reports whether `address` is known as one of this host's own.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own_addresses.contains(&address.to_canonical())
    }

    /// Returns the policy on a host that has these addresses too; the generation stays.
    pub fn also_own(&self, addresses: &[IpAddr]) -> Cow<'_, Self> {
        if addresses.iter().all(|address| self.is_own(*address)) {
            return Cow::Borrowed(self);
        }
        let mut more = self.clone();
        more.own_addresses.extend(addresses.iter().map(IpAddr::to_canonical));
        Cow::Owned(more)
    }

    /// Returns the same policy under another generation, for a policy whose sources were read again.
    #[must_use]
    pub fn numbered(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// Reports whether only denials hold names back, here and in every ceiling.
    pub fn is_open(&self) -> bool {
        let ceilings = self.ceilings.iter().map(|ceiling| ceiling.mode);
        ceilings.chain([self.mode]).all(|mode| mode == NetMode::Unrestricted)
    }

    /// Reports whether some rule is for one program, so that it matters which program connects.
    pub fn names_programs(&self) -> bool {
        let ceilings = self.ceilings.iter().map(|ceiling| &ceiling.allow);
        ceilings.chain([&self.allow, &self.deny]).any(|rules| rules.rules().iter().any(|rule| rule.program.is_some()))
    }

    /// Reports whether a rule for one program is about this host, on whichever port, so that it matters which program
    /// connects.
    pub fn minds_program(&self, host: &Host) -> bool {
        let Host::Name(name) = host else { return false };
        let ceilings = self.ceilings.iter().map(|ceiling| &ceiling.allow);
        ceilings.chain([&self.allow, &self.deny]).any(|rules| rules.matching(name).any(|rule| rule.program.is_some()))
    }

    /// Returns the HTTP methods that may be used.
    pub fn methods(&self) -> Methods {
        self.methods
    }

    /// Returns the upper bounds.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the time at which the policy ends.
    pub fn expires(&self) -> Option<MonotonicMs> {
        self.expires
    }

    /// Returns the policy's generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reports whether everything goes through the operator's proxy.
    pub fn upstream_proxy(&self) -> bool {
        self.upstream_proxy
    }

    /// Returns the ports of the host's loopback that are open, in ascending order.
    pub fn host_ports(&self) -> &[HostPort] {
        &self.host_ports
    }

    /// Reports whether the egress listens on the host itself, and so serves programs of the host.
    pub fn serves_this_host(&self) -> bool {
        !self.own_listeners.is_empty()
    }

    /// Returns the allowed names, in canonical order.
    pub fn allowed_names(&self) -> &[Rule] {
        self.allow.rules()
    }

    /// Returns the denied names, in canonical order.
    pub fn denied_names(&self) -> &[Rule] {
        self.deny.rules()
    }

    /// Returns the allowed addresses, in canonical order.
    pub fn allowed_addresses(&self) -> &[AddressRule] {
        &self.allow_addresses
    }
}

fn may_open_private(source: &Source) -> Result<(), PolicyError> {
    let origin: Origin = source.origin;
    if origin.may_open_private() { Ok(()) } else { Err(PolicyError::PrivateNotAllowed { rule: source.clone() }) }
}

fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    items.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
