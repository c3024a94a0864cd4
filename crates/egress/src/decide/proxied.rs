//! Checks destinations for the operator's proxy, and attempts to reach the proxy itself.
//!
//! ```text
//!  permit ─┬─ the proxy's own host and port, by name or address ──────────▶ denied
//!          └─ a name for the proxy ─looked up here─┬─ localhost, special, own, denied ─▶ denied
//!                                                  ├─ public ─────────────▶ the proxy gets the name
//!                                                  └─ no address here ─┬─ the proxy is on this host, no rule ─▶ denied
//!                                                                      └─ else ─▶ the proxy gets the name
//! ```
//!
//! A program that reaches the proxy itself can ask it for any target, and no rule here holds. Behind a company's proxy
//! a host often knows no name of the internet, so that a name without an address still goes there. A proxy on this host
//! reaches this host's loopback: such a proxy gets a name without an address here only where a rule names it, since a
//! program inside could choose a name whose name server answers the proxy alone.

use crate::decide::charge::{Charged, Permitted};
use crate::decide::context::DecisionContext;
use crate::decide::denials;
use crate::decide::own::own_among;
use crate::decide::registry::ends;
use crate::decide::state::Shared;
use nexus_policy::net::{
    Attempt, Class, Denial, Host, Next, Permit, Policy, Route, Target, check_name, check_proxied, classify,
    first_asked, the_proxy_itself,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::time::timeout;

impl Shared {
    /// Returns the permit for a target that is an address, after a new decision if the kernel reports it as this
    /// host's.
    pub(crate) async fn literal(
        self: &Arc<Self>,
        attempt: &Attempt,
        permit: Permit,
        context: &mut DecisionContext,
    ) -> Result<Permit, Denial> {
        if let Host::Address(address) = attempt.target.host {
            // A rule for an address is the user's own choice.
            self.know_nat64(&[address], permit.rule().is_some()).await.inspect_err(|_| context.check = None)?;
            self.followed.until_asked(&context.policy, self.limits.resolve_time).await;
            (context.policy, context.at) = (self.registry.policy(), self.clock.now());
            context.behind = self.followed.among(&context.policy, attempt, [address]);
        }
        context.own = own_among(&context.policy, &*self.own, &ends(&permit))?;
        let is_same = context.policy.generation() == permit.generation() && context.policy.nat64().is_empty();
        if context.own.is_empty() && context.behind.is_empty() && is_same {
            return Ok(permit);
        }
        match check_name(&*context.effective()?, attempt, context.at)? {
            Next::Dial(permit) => Ok(permit),
            Next::Resolve(_) => Err(denials::internal("an address was taken for a name".to_owned())),
        }
    }

    /// Refuses a target that leads to the operator's proxy itself, or through it back to this host or to a denied
    /// target.
    pub(crate) async fn not_back_here(
        self: &Arc<Self>,
        permitted: Permitted,
        id: u64,
        context: &mut DecisionContext,
    ) -> Result<Permitted, Denial> {
        let (permit, mut charged, ttl_s) = permitted;
        let Some(proxy) = self.dialer.upstream.as_ref().map(|proxy| &proxy.target) else {
            return Ok((permit, charged, ttl_s));
        };
        // The record does not hold the inputs of these decisions.
        let of_its_own = DecisionContext { check: None, resolved: None, ..context.clone() };
        if let Err(denial) = self.apart_from(proxy, &permit, &mut charged, id, context).await {
            *context = of_its_own;
            return Err(denial);
        }
        Ok((permit, charged, ttl_s))
    }

    async fn apart_from(
        self: &Arc<Self>,
        proxy: &Target,
        permit: &Permit,
        charged: &mut Option<Charged>,
        id: u64,
        context: &DecisionContext,
    ) -> Result<(), Denial> {
        let target = permit.target();
        if proxy == target {
            return Err(the_proxy_itself(target));
        }
        let mut ends = ends(permit);
        let query = match permit.route() {
            Route::Addrs(_) => None,
            Route::ViaProxy(_) => first_asked(&context.policy, permit),
        };
        let by_name = query.is_some();
        if let Some(query) = query {
            let found = if let Some(found) = &context.resolved {
                found.clone()
            } else {
                *charged = Some(self.paid_look_up(permit.attempt(), id, &query, context)?);
                self.known_here(&query).await?
            };
            ends = found.into_iter().map(|address| SocketAddr::new(address, target.port.number())).collect();
        }
        let same_port = proxy.port == target.port;
        let unknown = by_name && ends.is_empty() && permit.rule().is_none();
        let at = if same_port || unknown { self.addresses_of(proxy).await? } else { Vec::new() };
        let mut here = false;
        for address in &at {
            here |= self.is_here(&context.policy, *address)?;
        }
        for end in ends.iter().filter(|_| same_port) {
            let known = context.policy.forms(end.ip());
            let same = at.iter().any(|at| context.policy.forms(at.ip()).iter().any(|form| known.contains(form)));
            if same || (here && self.is_here(&context.policy, *end)?) {
                return Err(the_proxy_itself(target));
            }
        }
        if by_name {
            let own = own_among(&context.policy, &*self.own, &ends)?;
            let found: Vec<IpAddr> = ends.iter().map(SocketAddr::ip).collect();
            check_proxied(&context.policy.also_own(&own), permit, &found, here)?;
        }
        Ok(())
    }

    /// Reports whether an address is this host's own.
    fn is_here(&self, policy: &Policy, address: SocketAddr) -> Result<bool, Denial> {
        let loops = |form: &IpAddr| matches!(classify(*form), Some(Class::Loopback | Class::Unspecified));
        let known = policy.forms(address.ip()).iter().any(|form| loops(form) || policy.is_own(*form));
        Ok(known || !own_among(policy, &*self.own, &[address])?.is_empty())
    }

    /// Returns the addresses of the operator's proxy.
    async fn addresses_of(&self, proxy: &Target) -> Result<Vec<SocketAddr>, Denial> {
        let port = proxy.port.number();
        let name = match &proxy.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
            Host::Name(name) => name,
        };
        let found = timeout(self.limits.resolve_time, self.resolver.lookup(name)).await;
        let addrs = found.ok().and_then(Result::ok).map(|found| found.addrs).unwrap_or_default();
        if addrs.is_empty() {
            // Neither the name nor the address of the proxy may reach the inside.
            return Err(denials::internal("the name of the upstream proxy has no address now"));
        }
        Ok(addrs.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}
