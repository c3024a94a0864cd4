//! The one decision. CONNECT, absolute-form HTTP, SOCKS5, transparent TCP and DNS all come here.
//!
//! ```text
//!  attempt ─check_name─▶ denied
//!                 │
//!                 ├─ an address, or an upstream proxy (then check_proxied) ──▶ Permit
//!                 └─▶ NameQuery ─(the egress resolves)─check_addrs─▶ denied
//!                                                           └─────────────▶ Permit ─▶ dial exactly that
//! ```
//!
//! A denied name is never sent to a resolver, since the question alone would carry data out. What was resolved is what
//! is dialled: a second look-up could give another answer (DNS rebinding). The functions are total, and an error on the
//! way is a denial, so nothing is allowed by accident.
//!
//! An answer that mixes public and private addresses is refused as a whole. Dropping the private ones would be as safe
//! for this connection; but such an answer is what rebinding looks like, and a refusal is seen where a drop is not.

use super::behind::check_behind;
use super::bypass::is_proxied;
use super::cause::Cause;
use super::ceiling::{self, narrowed};
use super::host_port;
use super::methods::{Methods, check_seen, plain_http, unseen};
use super::name::Name;
use super::pattern::Pattern;
use super::permit::{Attempt, Basis, Denial, Moment, NameQuery, Next, Permit, RuleRef, Shows};
use super::policy::Policy;
use super::ports::Ports;
use super::proxied::no_loopback;
use super::ranges::{self, Class};
use super::rule::{AddressRule, Program, Rule, address_flag};
use super::speech::Speech;
use super::target::{Host, Port, Target};
use super::who::Who;
use nexus_model::capability::NetMode;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Decides what can be decided without an address.
pub fn check_name(policy: &Policy, attempt: &Attempt, now: Moment) -> Result<Next, Denial> {
    if host_port::is_meant(policy, attempt) {
        return host_port::decide(policy, attempt, now).map(Next::Dial);
    }
    in_force(policy, now, &attempt.target)?;
    match &attempt.target.host {
        Host::Name(name) => {
            let basis = named_attempt(policy, name, attempt)?;
            if is_proxied(policy, &attempt.target) && !basis.private {
                no_loopback(policy, name, &attempt.target)?;
                return Ok(Next::Dial(permit(policy, attempt, None, basis)));
            }
            let port = attempt.target.port;
            let mut rules = policy.allow.matching(name).filter(|rule| rule.ports.contains(port));
            let exact = rules.any(|rule| matches!(rule.pattern, Pattern::Exact(_)));
            Ok(Next::Resolve(NameQuery { attempt: attempt.clone(), name: name.clone(), exact }))
        }
        Host::Address(address) => {
            let basis = literal_basis(policy, *address, &attempt.target)?;
            check_behind(policy, attempt, [*address], false)?;
            check_seen(policy, attempt, basis.shows)?;
            let proxied = is_proxied(policy, &attempt.target) && class_here(policy, *address).is_none();
            let addrs = (!proxied).then(|| vec![socket(*address, attempt.target.port)]);
            Ok(Next::Dial(permit(policy, attempt, addrs, basis)))
        }
    }
}

/// Decides about the addresses that the name of `query` resolved to. The name is decided again, because the policy may
/// have changed since.
pub fn check_addrs(policy: &Policy, query: NameQuery, addrs: &[IpAddr], now: Moment) -> Result<Permit, Denial> {
    let NameQuery { attempt, name, exact: _ } = query;
    in_force(policy, now, &attempt.target)?;
    let port = attempt.target.port;
    let basis = named_attempt(policy, &name, &attempt)?;
    // A private name that is public, or not known here, is the proxy's to look up.
    if is_proxied(policy, &attempt.target) && addrs.iter().all(|address| class_here(policy, *address).is_none()) {
        return Ok(permit(policy, &attempt, None, basis));
    }
    if addrs.is_empty() {
        return Err(Denial::new(Cause::NotResolved, format!("the name {name} has no address")));
    }
    // In canonical order, so that the order of an answer does not choose the reason that is given.
    let mut ordered = addrs.to_vec();
    ordered.sort_unstable();
    for address in ordered {
        resolved_address(policy, address, &attempt.target, basis.private)
            .map_err(|denial| offered(policy, denial, &attempt))?;
    }
    let must_name = check_behind(policy, &attempt, addrs.iter().copied(), sees_name(&basis))?;
    let basis = Basis { must_name, ..basis };
    let mut dialled: Vec<SocketAddr> = Vec::new();
    for address in addrs.iter().map(|address| socket(*address, port)) {
        if !dialled.contains(&address) {
            dialled.push(address);
        }
    }
    Ok(permit(policy, &attempt, Some(dialled), basis))
}

/// Decides whether a DNS question for `host` may be answered: on some port it could be allowed to some program.
///
/// The program that asks does not matter: a daemon may ask for others, and a datagram has no holder. No data leaves
/// this way, since the answer is an address that only the egress knows; the connection to it is decided by the program
/// that makes it.
pub fn check_dns(policy: &Policy, host: &Host, now: Moment) -> Result<(), Denial> {
    let target = Target { host: host.clone(), port: Port::HTTPS };
    in_force(policy, now, &target)?;
    let Host::Name(name) = host else {
        return Err(Denial::new(Cause::NameNotAnswered, format!("{host} is an address, not a name")));
    };
    // Where only reading is allowed, a port of TLS does not help.
    let on = |port| match name_basis(policy, name, port, Who::Somebody) {
        Ok(basis) if policy.methods == Methods::ReadOnly && basis.tls => {
            Err(unseen(&Target { port, ..target.clone() }))
        }
        decided => decided,
    };
    let Err(first) = on(Port::HTTPS) else { return Ok(()) };
    // Between two edges of the rules every port gets the same answer, so that trying the edges tries all ports.
    let layers = policy.ceilings.iter().map(|ceiling| &ceiling.allow).chain([&policy.allow, &policy.deny]);
    let edges: BTreeSet<Port> =
        layers.flat_map(|rules| rules.matching(name)).flat_map(|rule| rule.ports.edges()).collect();
    if edges.into_iter().chain([Port::LOWEST, Port::AFTER_HTTPS]).any(|port| on(port).is_ok()) {
        return Ok(());
    }
    Err(Denial { cause: Cause::NameNotAnswered, code: Cause::NameNotAnswered.code(), ..first })
}

/// Reports whether a name that is not answered could be allowed by a question to the user, when some program connects
/// to it.
pub fn may_be_asked(policy: &Policy, host: &Host, now: Moment) -> bool {
    let target = Target { host: host.clone(), port: Port::HTTPS };
    let Host::Name(name) = host else { return false };
    let decided = in_force(policy, now, &target).and_then(|()| name_basis(policy, name, Port::HTTPS, Who::Somebody));
    decided.is_err_and(|denial| denial.cause == Cause::MayAsk)
}

/// Decides whether an open connection may stay under a later policy; a denial means that it is cut.
pub fn recheck(policy: &Policy, permit: &Permit, now: Moment) -> Result<(), Denial> {
    let attempt = permit.attempt();
    if host_port::is_meant(policy, attempt) {
        return host_port::decide(policy, attempt, now).map(drop);
    }
    in_force(policy, now, &attempt.target)?;
    match &attempt.target.host {
        Host::Address(address) => {
            let basis = literal_basis(policy, *address, &attempt.target)?;
            check_behind(policy, attempt, [*address], false)?;
            check_seen(policy, attempt, basis.shows)
        }
        Host::Name(name) => {
            let basis = named_attempt(policy, name, attempt)?;
            for address in permit.addrs.iter().flatten() {
                resolved_address(policy, address.ip(), &attempt.target, basis.private)
                    .map_err(|denial| offered(policy, denial, attempt))?;
            }
            let addresses = permit.addrs.iter().flatten().map(SocketAddr::ip);
            check_behind(policy, attempt, addresses, sees_name(&basis)).map(|_| ())
        }
    }
}

/// Reports whether the egress sees the name that a connection asks for.
fn sees_name(basis: &Basis) -> bool {
    basis.shows != Shows::Nothing
}

/// Denies everything after the end of the policy.
pub(super) fn unexpired(policy: &Policy, now: Moment) -> Result<(), Denial> {
    if policy.expires.is_some_and(|end| now >= end) {
        return Err(Denial::new(Cause::Expired, "the time of the network policy is over"));
    }
    Ok(())
}

/// Checks mode and time, before everything else.
fn in_force(policy: &Policy, now: Moment, target: &Target) -> Result<(), Denial> {
    unexpired(policy, now)?;
    if policy.mode == NetMode::None {
        let denial = Denial::new(Cause::NoNetwork, format!("there is no network, so not {target} either"));
        return Err(Denial { allow_with: host_port::flag_for(policy, target), ..denial });
    }
    if policy.ceilings.iter().any(|ceiling| ceiling.mode == NetMode::None) {
        return Err(Denial::new(Cause::NoNetwork, "a narrower policy on top has no network"));
    }
    Ok(())
}

/// Decides whether a name is allowed for `attempt`, and the methods can be seen where they matter. The user is not
/// asked where no answer could open the destination.
pub(super) fn named_attempt(policy: &Policy, name: &Name, attempt: &Attempt) -> Result<Basis, Denial> {
    let basis = name_basis(policy, name, attempt.target.port, Who::Program(attempt.program.as_ref()));
    let shows = match &basis {
        Ok(basis) => basis.shows,
        Err(denial) if denial.cause == Cause::MayAsk => Shows::of(false, attempt.target.port == Port::HTTP),
        Err(_) => return basis,
    };
    check_seen(policy, attempt, shows)?;
    basis
}

/// Decides whether the rules allow a name on a port.
fn name_basis(policy: &Policy, name: &Name, port: Port, who: Who<'_>) -> Result<Basis, Denial> {
    let shown = || format!("{name}:{port}");
    let denies = |rule: &&Rule| rule.ports.contains(port) && who.is_denied_by(rule);
    if let Some(rule) = policy.deny.matching(name).filter(denies).min() {
        let denial = Denial::new(Cause::DeniedByRule, format!("{} is denied by the rule {}", shown(), rule.source));
        return Err(denial.by(RuleRef::of(rule)));
    }
    let demands = ceiling::demands(policy, name, port, who)?;
    let rules = allowing(policy.allow.matching(name), port, who);
    match policy.mode {
        NetMode::None => Err(Denial::new(Cause::NoNetwork, "there is no network")),
        NetMode::Allowlist if rules.is_empty() => Err(not_listed(policy, name, port, who)),
        NetMode::Unrestricted | NetMode::Allowlist => {
            let basis = basis(policy, &rules, port);
            let (tls, http) = (basis.tls || demands.tls, basis.http || demands.http);
            if tls && http {
                return Err(ceiling::contradiction(policy, &shown()));
            }
            let both = Basis { tls, http, refuse_unnamed: demands.named, ..basis };
            demands.question.map_or(Ok(both), Err)
        }
    }
}

/// Reports whether a rule for one program allows something of this name.
pub(super) fn is_somebodys(policy: &Policy, name: &Name) -> bool {
    policy.allow.matching(name).any(|rule| rule.program.is_some())
}

pub(super) fn allowing<'a>(rules: impl Iterator<Item = &'a Rule>, port: Port, who: Who<'_>) -> Vec<&'a Rule> {
    rules.filter(|rule| rule.ports.contains(port) && who.is_allowed_by(rule)).collect()
}

/// Combines the matching rules: the widest about addresses, since each is an allowance.
fn basis(policy: &Policy, rules: &[&Rule], port: Port) -> Basis {
    let speech = Speech::of(rules, port);
    Basis {
        rule: rules.iter().min().map(|rule| RuleRef::of(rule)),
        private: policy.opens_private() && rules.iter().any(|rule| rule.private),
        tls: speech == Speech::Tls,
        http: plain_http(port, speech),
        shows: Shows::of(speech == Speech::Tls, plain_http(port, speech)),
        ..Basis::default()
    }
}

fn not_listed(policy: &Policy, name: &Name, port: Port, who: Who<'_>) -> Denial {
    let for_others = policy.allow.matching(name).filter(|rule| rule.ports.contains(port)).min();
    let same_name = for_others.or(policy.allow.matching(name).min());
    let denial = match same_name {
        Some(rule) if rule.ports.contains(port) => another_program(rule, name, port, who),
        Some(rule) => {
            let why = format!("{name} is allowed on port {}, not on {port}", rule.ports);
            Denial::new(Cause::PortNotListed, why).by(RuleRef::of(rule))
        }
        None => Denial::new(Cause::NotListed, format!("no rule allows {name}:{port}")),
    };
    // A name that is allowed to one program only is offered to the program that asks and to no other.
    let Some(only) = (if is_somebodys(policy, name) { who.suffix() } else { Some(String::new()) }) else {
        return denial;
    };
    let flag = host_port::flag_for(policy, &Target { host: Host::Name(name.clone()), port });
    let denial = Denial { allow_with: flag.map(|flag| flag + &only), ..denial };
    if policy.ask {
        let explanation = format!("{}; somebody can be asked", denial.explanation);
        return Denial { cause: Cause::MayAsk, code: Cause::MayAsk.code(), explanation, ..denial };
    }
    denial
}

/// Returns the denial for a target that `rule` allows, but not to this program.
fn another_program(rule: &Rule, name: &Name, port: Port, who: Who<'_>) -> Denial {
    let only = rule.program.as_ref().map_or_else(|| "another program".to_owned(), Program::to_string);
    let found = match who {
        Who::Program(Some(program)) => format!("this is {program}"),
        Who::Program(None) | Who::Somebody => "it is not known which program this is".to_owned(),
    };
    let why = format!("{name}:{port} is allowed for {only}, and {found}");
    Denial::new(Cause::OtherProgram, why).by(RuleRef::of(rule))
}

/// Decides whether a target that is an address itself is allowed. Name rules and trusted ranges never open one.
fn literal_basis(policy: &Policy, address: IpAddr, target: &Target) -> Result<Basis, Denial> {
    never_open(policy, address, target)?;
    if policy.ceilings.iter().any(|ceiling| ceiling.mode != NetMode::Unrestricted) {
        return Err(narrowed(policy, &target.to_string()));
    }
    let rule = address_rule(policy, address, target.port);
    let (tls, http) = (target.port == Port::HTTPS, target.port == Port::HTTP);
    let basis = Basis { tls, http, shows: Shows::of(tls, http), ..Basis::default() };
    if let Some(rule) = rule {
        admitted_form(policy, address, target, false)?;
        return Ok(Basis { rule: Some(address_ref(rule)), private: true, ..basis });
    }
    if let Some(class) = class_here(policy, address) {
        return Err(special(policy, class, target, address));
    }
    // A flag for this address would not open the one that it carries.
    admitted_form(policy, address, target, false).map_err(|denial| Denial { allow_with: None, ..denial })?;
    match policy.mode {
        NetMode::Unrestricted => Ok(basis),
        NetMode::Allowlist | NetMode::None => {
            let why = format!("no rule allows the address {target}, and rules for names never do");
            let denial = Denial::new(Cause::LiteralNotAllowed, why);
            Err(Denial { allow_with: host_port::private_flag_for(policy, target), ..denial })
        }
    }
}

/// Decides whether an allowed name may lead to `address`.
pub(super) fn resolved_address(policy: &Policy, address: IpAddr, target: &Target, private: bool) -> Result<(), Denial> {
    never_open(policy, address, target)?;
    let Some(class) = class_here(policy, address) else { return admitted_form(policy, address, target, private) };
    let trusted = policy.trusted_ranges.iter().any(|range| range.contains(&address)) && !policy.refuse_private;
    let by_range = trusted || address_rule(policy, address, target.port).is_some();
    let open = match class {
        // A wide range or a rule for a name is not meant to give the machine's credentials away: only a rule for
        // exactly this address is.
        Class::Metadata => address_rule(policy, address, target.port).is_some(),
        Class::Loopback
        | Class::Private
        | Class::LinkLocal
        | Class::Cgnat
        | Class::Documentation
        | Class::Benchmarking
        | Class::Reserved
        | Class::Transition
        | Class::OwnHost => private || by_range,
        Class::Unspecified | Class::Multicast | Class::Broadcast => false,
    };
    if !open {
        return Err(special(policy, class, target, address));
    }
    admitted_form(policy, address, target, private)
}

/// Denies what no allowance opens: the egress itself, addresses without an honest peer, and what a rule denies.
pub(super) fn never_open(policy: &Policy, address: IpAddr, target: &Target) -> Result<(), Denial> {
    let port = target.port;
    let inner = ranges::embedded(address).into_iter().map(IpAddr::V4);
    let forms: Vec<IpAddr> = [address, address.to_canonical()].into_iter().chain(inner).collect();
    for form in &forms {
        if policy.own_listeners.iter().any(|listener| is_listener(policy, *listener, *form, port)) {
            return Err(Denial::new(Cause::OwnListener, format!("{target} is where the egress itself listens")));
        }
        let denied = |rule: &&AddressRule| rule.net.contains(form) && rule.ports.contains(port);
        if let Some(rule) = policy.deny_addresses.iter().find(denied) {
            let why = format!("{} is denied by the rule {}", told(target, *form), rule.source);
            return Err(Denial::new(Cause::DeniedByRule, why).by(address_ref(rule)));
        }
    }
    let never = forms.iter().filter_map(|form| ranges::classify(*form)).find(|class| class.is_never());
    never.map_or(Ok(()), |class| Err(special(policy, class, target, address)))
}

/// Checks a form that carries an IPv4 address and was admitted, or is NAT64: what it carries must be open too, for the
/// same target.
fn admitted_form(policy: &Policy, address: IpAddr, target: &Target, private: bool) -> Result<(), Denial> {
    ranges::embedded(address)
        .into_iter()
        .try_for_each(|inner| resolved_address(policy, IpAddr::V4(inner), target, private))
}

/// Reports whether `address` and `port` reach a listener. One on the wildcard address is reached through each address
/// of the host.
fn is_listener(policy: &Policy, listener: SocketAddr, address: IpAddr, port: Port) -> bool {
    if listener.port() != port.number() {
        return false;
    }
    let anywhere = listener.ip().is_unspecified();
    let own = policy.own_addresses.contains(&address) || ranges::classify(address) == Some(Class::Loopback);
    listener.ip().to_canonical() == address || (anywhere && own)
}

/// Returns the class of an address on this host.
fn class_here(policy: &Policy, address: IpAddr) -> Option<Class> {
    let own = policy.own_addresses.contains(&address.to_canonical());
    ranges::classify(address).or(own.then_some(Class::OwnHost))
}

/// Returns the allowance for an address on a port. A metadata service needs one for exactly its address.
fn address_rule(policy: &Policy, address: IpAddr, port: Port) -> Option<&AddressRule> {
    let exact = ranges::classify(address) == Some(Class::Metadata);
    policy.allow_addresses.iter().filter(|_| policy.opens_private()).find(|rule| {
        rule.net.contains(&address) && rule.ports.contains(port) && (!exact || ranges::is_single(&rule.net))
    })
}

pub(super) fn special(policy: &Policy, class: Class, target: &Target, address: IpAddr) -> Denial {
    let denial = Denial::new(Cause::Special(class), format!("{}: that is {class}", told(target, address)));
    match class {
        // For the first three no flag helps; for the others none should be offered for copying, since it would open
        // more than it looks like.
        Class::Unspecified | Class::Multicast | Class::Broadcast | Class::Metadata | Class::Transition => denial,
        Class::Loopback
        | Class::Private
        | Class::LinkLocal
        | Class::Cgnat
        | Class::Documentation
        | Class::Benchmarking
        | Class::Reserved
        | Class::OwnHost => Denial { allow_with: host_port::private_flag_for(policy, target), ..denial },
    }
}

fn told(target: &Target, address: IpAddr) -> String {
    match &target.host {
        Host::Address(_) => target.to_string(),
        Host::Name(name) => format!("{name} leads to {}", address_flag(address, &Ports::one(target.port))),
    }
}

fn address_ref(rule: &AddressRule) -> RuleRef {
    RuleRef { source: rule.source.clone(), text: format!("{}:{}", rule.net, rule.ports) }
}

fn socket(address: IpAddr, port: Port) -> SocketAddr {
    SocketAddr::new(address, port.number())
}

/// Limits the flag that a denial offers: for a name with a rule for one program, the flag is for this program only.
pub(super) fn offered(policy: &Policy, denial: Denial, attempt: &Attempt) -> Denial {
    if !attempt.target.host.name().is_some_and(|name| is_somebodys(policy, name)) {
        return denial;
    }
    let only = attempt.program.as_ref().and_then(Program::suffix);
    let allow_with = denial.allow_with.zip(only).map(|(flag, only)| flag + &only);
    Denial { allow_with, ..denial }
}

pub(super) fn permit(policy: &Policy, attempt: &Attempt, addrs: Option<Vec<SocketAddr>>, basis: Basis) -> Permit {
    Permit { attempt: attempt.clone(), addrs, basis, generation: policy.generation, expires: policy.expires }
}
