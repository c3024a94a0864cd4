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

mod addresses;
pub mod agree;
mod behind;
mod demands;
mod flags;
mod force;
mod loopback;
pub mod methods;
mod names;
pub mod proxied;
mod speech;
mod who;

use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Grant, MonotonicMs, NameQuery, Next, Permit, Shows};
use crate::net::policy::Policy;
use crate::net::policy::methods::Methods;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::target::{Host, Port, Target};
use addresses::{class_here, literal_grant, no_loopback, resolved_address};
use behind::check_behind;
use force::{in_force, permit};
use methods::{check_seen, unseen};
use names::{name_grant, named_attempt, offered};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use who::Who;

/// Decides what can be decided without an address.
pub fn check_name(policy: &Policy, attempt: &Attempt, now: MonotonicMs) -> Result<Next, Denial> {
    if loopback::is_meant(policy, attempt) {
        return loopback::decide(policy, attempt, now).map(Next::Dial);
    }
    in_force(policy, now, &attempt.target)?;
    match &attempt.target.host {
        Host::Name(name) => {
            let grant = named_attempt(policy, name, attempt)?;
            if policy.is_proxied(&attempt.target) && !grant.private {
                no_loopback(policy, name, &attempt.target)?;
                return Ok(Next::Dial(permit(policy, attempt, None, grant)));
            }
            let port = attempt.target.port;
            let mut rules = policy.allow.matching(name).filter(|rule| rule.ports.contains(port));
            let exact = rules.any(|rule| matches!(rule.pattern, Pattern::Exact(_)));
            Ok(Next::Resolve(NameQuery { attempt: attempt.clone(), name: name.clone(), exact }))
        }
        Host::Address(address) => {
            let grant = literal_grant(policy, *address, &attempt.target)?;
            check_behind(policy, attempt, [*address], false)?;
            check_seen(policy, attempt, grant.shows)?;
            let proxied = policy.is_proxied(&attempt.target) && class_here(policy, *address).is_none();
            let addrs = (!proxied).then(|| vec![socket(*address, attempt.target.port)]);
            Ok(Next::Dial(permit(policy, attempt, addrs, grant)))
        }
    }
}

/// Decides about the addresses that the name of `query` resolved to. The name is decided again, because the policy may
/// have changed since.
pub fn check_addrs(policy: &Policy, query: NameQuery, addrs: &[IpAddr], now: MonotonicMs) -> Result<Permit, Denial> {
    let NameQuery { attempt, name, exact: _ } = query;
    in_force(policy, now, &attempt.target)?;
    let port = attempt.target.port;
    let grant = named_attempt(policy, &name, &attempt)?;
    // A private name that is public, or not known here, is the proxy's to look up.
    if policy.is_proxied(&attempt.target) && addrs.iter().all(|address| class_here(policy, *address).is_none()) {
        return Ok(permit(policy, &attempt, None, grant));
    }
    if addrs.is_empty() {
        return Err(Denial::new(Cause::NotResolved, format!("the name {name} has no address")));
    }
    // In canonical order, so that the order of an answer does not choose the reason that is given.
    let mut ordered = addrs.to_vec();
    ordered.sort_unstable();
    for address in ordered {
        resolved_address(policy, address, &attempt.target, grant.private)
            .map_err(|denial| offered(policy, denial, &attempt))?;
    }
    let must_name = check_behind(policy, &attempt, addrs.iter().copied(), sees_name(&grant))?;
    let grant = Grant { must_name, ..grant };
    let mut dialled: Vec<SocketAddr> = Vec::new();
    for address in addrs.iter().map(|address| socket(*address, port)) {
        if !dialled.contains(&address) {
            dialled.push(address);
        }
    }
    Ok(permit(policy, &attempt, Some(dialled), grant))
}

/// Decides whether a DNS question for `host` may be answered: on some port it could be allowed to some program.
///
/// The program that asks does not matter: a daemon may ask for others, and a datagram has no holder. No data leaves
/// this way, since the answer is an address that only the egress knows; the connection to it is decided by the program
/// that makes it.
pub fn check_dns(policy: &Policy, host: &Host, now: MonotonicMs) -> Result<(), Denial> {
    let target = Target { host: host.clone(), port: Port::HTTPS };
    in_force(policy, now, &target)?;
    let Host::Name(name) = host else {
        return Err(Denial::new(Cause::NameNotAnswered, format!("{host} is an address, not a name")));
    };
    // Where only reading is allowed, a port of TLS does not help.
    let on = |port| match name_grant(policy, name, port, Who::AnyProgram) {
        Ok(grant) if policy.methods == Methods::ReadOnly && grant.tls => {
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
pub fn may_be_asked(policy: &Policy, host: &Host, now: MonotonicMs) -> bool {
    let target = Target { host: host.clone(), port: Port::HTTPS };
    let Host::Name(name) = host else { return false };
    let decided = in_force(policy, now, &target).and_then(|()| name_grant(policy, name, Port::HTTPS, Who::AnyProgram));
    decided.is_err_and(|denial| denial.cause == Cause::MayAsk)
}

/// Decides whether an open connection may stay under a later policy; a denial means that it is cut.
pub fn recheck(policy: &Policy, permit: &Permit, now: MonotonicMs) -> Result<(), Denial> {
    let attempt = permit.attempt();
    if loopback::is_meant(policy, attempt) {
        return loopback::decide(policy, attempt, now).map(drop);
    }
    in_force(policy, now, &attempt.target)?;
    match &attempt.target.host {
        Host::Address(address) => {
            let grant = literal_grant(policy, *address, &attempt.target)?;
            check_behind(policy, attempt, [*address], false)?;
            check_seen(policy, attempt, grant.shows)
        }
        Host::Name(name) => {
            let grant = named_attempt(policy, name, attempt)?;
            for address in permit.addrs.iter().flatten() {
                resolved_address(policy, address.ip(), &attempt.target, grant.private)
                    .map_err(|denial| offered(policy, denial, attempt))?;
            }
            let addresses = permit.addrs.iter().flatten().map(SocketAddr::ip);
            check_behind(policy, attempt, addresses, sees_name(&grant)).map(|_| ())
        }
    }
}

/// Reports whether the egress sees the name that a connection asks for.
fn sees_name(grant: &Grant) -> bool {
    grant.shows != Shows::Nothing
}

fn socket(address: IpAddr, port: Port) -> SocketAddr {
    SocketAddr::new(address, port.number())
}
