//! Servers behind denied names, in a network that is open otherwise.
//!
//! A denial of a name closes the name. Where everything is open, the same server is reached by its address or by
//! another name too. The egress looks the denied names up, and a decision gets those whose addresses it is about
//! ([`Behind`]):
//!
//! | the connection | to an address behind a denied name |
//! |---|---|
//! | by an address | denied |
//! | by another name, where the egress cannot see which name is asked for | denied |
//! | by another name, with TLS or plain HTTP | must name a host, and one that is not denied |

use super::who::Who;
use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Ingress, RuleRef};
use crate::net::policy::Policy;
use crate::net::policy::behind::Behind;
use crate::net::rules::name::Name;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::rule::Rule;
use crate::net::rules::target::Host;
use nexus_model::capability::NetMode;
use std::borrow::Cow;
use std::net::IpAddr;

impl Policy {
    /// Reports whether denials hold the servers behind denied names too: the network is open, apart from ceilings. The
    /// list of a ceiling does not change that.
    pub fn follows_denials(&self) -> bool {
        self.mode == NetMode::Unrestricted
    }

    /// Returns the denied names whose addresses are to be followed: in an open network those of each rule for one name,
    /// in canonical order. The names below a wildcard are not known.
    pub fn followed(&self) -> impl Iterator<Item = &Name> {
        let rules = if self.follows_denials() { self.deny.rules() } else { &[] };
        let mut last = None;
        rules.iter().filter_map(move |rule| match &rule.pattern {
            Pattern::Exact(name) if last != Some(name) => {
                last = Some(name);
                Some(name)
            }
            Pattern::Exact(_) | Pattern::Below(_) => None,
        })
    }

    /// Returns the rule that denies `name` to this attempt: on its port, for its program.
    pub fn denies<'a>(&'a self, name: &'a Name, attempt: &Attempt) -> Option<&'a Rule> {
        let who = Who::Program(attempt.program.as_ref());
        self.deny.matching(name).filter(|rule| rule.ports.contains(attempt.target.port) && who.is_denied_by(rule)).min()
    }

    /// Returns the policy with the known addresses of denied names; the generation stays.
    pub fn also_behind(&self, behind: &[Behind]) -> Cow<'_, Self> {
        if behind.iter().all(|one| self.behind.contains(one)) {
            return Cow::Borrowed(self);
        }
        let mut more = self.clone();
        more.behind.extend(behind.iter().cloned());
        more.behind.sort();
        more.behind.dedup();
        Cow::Owned(more)
    }
}

/// Decides about addresses that are behind a denied name. Returns true if the connection must name the host that it is
/// for. `sees_name` is true if the egress will see the name on the connection.
pub(super) fn check_behind(
    policy: &Policy,
    attempt: &Attempt,
    addresses: impl IntoIterator<Item = IpAddr>,
    sees_name: bool,
) -> Result<bool, Denial> {
    if policy.behind.is_empty() || !policy.follows_denials() {
        return Ok(false);
    }
    let mut must_name = false;
    for address in addresses {
        let forms = policy.forms(address);
        for behind in &policy.behind {
            if behind.address.is_some_and(|known| !forms.contains(&known)) {
                continue;
            }
            let Some(rule) = policy.denies(&behind.name, attempt) else { continue };
            let by_name =
                matches!(attempt.target.host, Host::Name(_)) && (sees_name || attempt.way == Ingress::HttpAbsolute);
            if !by_name {
                return Err(denied(behind, rule, attempt, address));
            }
            must_name = true;
        }
    }
    Ok(must_name)
}

fn denied(behind: &Behind, rule: &Rule, attempt: &Attempt, address: IpAddr) -> Denial {
    let Behind { name, address: known } = behind;
    let target = &attempt.target;
    let why = match (known, &target.host) {
        (Some(_), Host::Address(_)) => {
            format!("{target} is an address of {name}, which the rule {} denies", rule.source)
        }
        (Some(_), Host::Name(_)) => {
            format!("{target} leads to {address}, an address of {name}, which the rule {} denies", rule.source)
        }
        (None, _) => format!(
            "{target} may be an address of {name}, which the rule {} denies and whose addresses are not known now",
            rule.source
        ),
    };
    Denial::new(Cause::DeniedByRule, why).by(RuleRef::of(rule))
}
