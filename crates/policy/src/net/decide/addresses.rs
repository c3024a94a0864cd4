//! Decisions about addresses: literals, and what a name resolved to.

use super::demands::narrowed;
use super::flags::private_flag_for;
use crate::net::cause::Cause;
use crate::net::permit::{Denial, Grant, RuleRef, Shows};
use crate::net::policy::Policy;
use crate::net::rules::name::Name;
use crate::net::rules::ports::Ports;
use crate::net::rules::ranges::{self, Class};
use crate::net::rules::rule::{AddressRule, address_flag};
use crate::net::rules::target::{Host, Port, Target};
use nexus_model::capability::NetMode;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Decides whether a target that is an address itself is allowed. Name rules and trusted ranges never open one.
pub(super) fn literal_grant(policy: &Policy, address: IpAddr, target: &Target) -> Result<Grant, Denial> {
    never_open(policy, address, target)?;
    if policy.ceilings.iter().any(|ceiling| ceiling.mode != NetMode::Unrestricted) {
        return Err(narrowed(policy, &target.to_string()));
    }
    let rule = address_rule(policy, address, target.port);
    let (tls, http) = (target.port == Port::HTTPS, target.port == Port::HTTP);
    let grant = Grant { tls, http, shows: Shows::of(tls, http), ..Grant::default() };
    // A flag for this address does not open the one that it carries.
    let admitted =
        || admitted_form(policy, address, target, false).map_err(|denial| Denial { allow_with: None, ..denial });
    if let Some(rule) = rule {
        admitted()?;
        return Ok(Grant { rule: Some(address_ref(rule)), private: true, ..grant });
    }
    if let Some(class) = class_here(policy, address) {
        return Err(special(policy, class, target, address));
    }
    admitted()?;
    match policy.mode {
        NetMode::Unrestricted => Ok(grant),
        NetMode::Allowlist | NetMode::None => {
            let why = format!("no rule allows the address {target}, and rules for names never do");
            let denial = Denial::new(Cause::LiteralNotAllowed, why);
            Err(Denial { allow_with: private_flag_for(policy, target), ..denial })
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
    let inner = policy.embedded(address).into_iter().map(IpAddr::V4);
    let forms: Vec<IpAddr> = [address, address.to_canonical()].into_iter().chain(inner).collect();
    for form in &forms {
        if policy.own_listeners.iter().any(|listener| is_listener(policy, *listener, *form, port)) {
            return Err(Denial::new(Cause::OwnListener, format!("{target} is where the egress itself listens")));
        }
        let denied = |rule: &&AddressRule| rule.net.contains(form) && rule.ports.contains(port);
        if let Some(rule) = policy.deny_addresses.iter().find(denied) {
            let why = format!("{} is denied by the rule {}", reported(target, *form), rule.source);
            return Err(Denial::new(Cause::DeniedByRule, why).by(address_ref(rule)));
        }
    }
    let never = forms.iter().filter_map(|form| ranges::classify(*form)).find(|class| class.is_never());
    never.map_or(Ok(()), |class| Err(special(policy, class, target, address)))
}

/// Checks a form that carries an IPv4 address and was admitted, or is NAT64: what it carries must be open too, for the
/// same target.
fn admitted_form(policy: &Policy, address: IpAddr, target: &Target, private: bool) -> Result<(), Denial> {
    policy
        .embedded(address)
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
pub(super) fn class_here(policy: &Policy, address: IpAddr) -> Option<Class> {
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
    let denial = Denial::new(Cause::Special(class), format!("{}: that is {class}", reported(target, address)));
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
        | Class::OwnHost => Denial { allow_with: private_flag_for(policy, target), ..denial },
    }
}

fn reported(target: &Target, address: IpAddr) -> String {
    match &target.host {
        Host::Address(_) => target.to_string(),
        Host::Name(name) => format!("{name} leads to {}", address_flag(address, &Ports::one(target.port))),
    }
}

fn address_ref(rule: &AddressRule) -> RuleRef {
    RuleRef { source: rule.source.clone(), text: format!("{}:{}", rule.net, rule.ports) }
}

/// Refuses `localhost` and the names below it, which are this host's loopback by definition (RFC 6761, 6.3).
pub(super) fn no_loopback(policy: &Policy, name: &Name, target: &Target) -> Result<(), Denial> {
    let text = name.as_str();
    if text == "localhost" || text.ends_with(".localhost") {
        return Err(special(policy, Class::Loopback, target, IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
    Ok(())
}
