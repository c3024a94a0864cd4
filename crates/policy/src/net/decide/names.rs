//! Decisions about names: denials, ceilings, allowances.

use super::demands::{contradiction, demands};
use super::flags::flag_for;
use super::methods::check_seen;
use super::speech::{Speech, plain_http};
use super::who::{Who, allowing};
use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Grant, RuleRef, Shows};
use crate::net::policy::Policy;
use crate::net::rules::name::Name;
use crate::net::rules::rule::{Program, Rule};
use crate::net::rules::target::{Host, Port, Target};
use nexus_model::capability::NetMode;

/// Decides whether a name is allowed for `attempt`, and the methods can be seen where they matter. The user is not
/// asked where no answer could open the destination.
pub(super) fn named_attempt(policy: &Policy, name: &Name, attempt: &Attempt) -> Result<Grant, Denial> {
    let grant = name_grant(policy, name, attempt.target.port, Who::Program(attempt.program.as_ref()));
    let shows = match &grant {
        Ok(grant) => grant.shows,
        Err(denial) if denial.cause == Cause::MayAsk => Shows::of(false, attempt.target.port == Port::HTTP),
        Err(_) => return grant,
    };
    check_seen(policy, attempt, shows)?;
    grant
}

/// Decides whether the rules allow a name on a port.
pub(super) fn name_grant(policy: &Policy, name: &Name, port: Port, who: Who<'_>) -> Result<Grant, Denial> {
    let shown = || format!("{name}:{port}");
    let denies = |rule: &&Rule| rule.ports.contains(port) && who.is_denied_by(rule);
    if let Some(rule) = policy.deny.matching(name).filter(denies).min() {
        let denial = Denial::new(Cause::DeniedByRule, format!("{} is denied by the rule {}", shown(), rule.source));
        return Err(denial.by(RuleRef::of(rule)));
    }
    let demands = demands(policy, name, port, who)?;
    let rules = allowing(policy.allow.matching(name), port, who);
    match policy.mode {
        NetMode::None => Err(Denial::new(Cause::NoNetwork, "there is no network")),
        NetMode::Allowlist if rules.is_empty() => Err(not_listed(policy, name, port, who)),
        NetMode::Unrestricted | NetMode::Allowlist => {
            let grant = grant(policy, &rules, port);
            let (tls, http) = (grant.tls || demands.tls, grant.http || demands.http);
            if tls && http {
                return Err(contradiction(policy, &shown()));
            }
            let both = Grant { tls, http, refuse_unnamed: demands.named, ..grant };
            demands.question.map_or(Ok(both), Err)
        }
    }
}

/// Reports whether a rule for one program allows something of this name.
pub(super) fn is_somebodys(policy: &Policy, name: &Name) -> bool {
    policy.allow.matching(name).any(|rule| rule.program.is_some())
}

/// Combines the matching rules: the widest about addresses, since each is an allowance.
fn grant(policy: &Policy, rules: &[&Rule], port: Port) -> Grant {
    let speech = Speech::of(rules, port);
    Grant {
        rule: rules.iter().min().map(|rule| RuleRef::of(rule)),
        private: policy.opens_private() && rules.iter().any(|rule| rule.private),
        tls: speech == Speech::Tls,
        http: plain_http(port, speech),
        shows: Shows::of(speech == Speech::Tls, plain_http(port, speech)),
        ..Grant::default()
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
    let flag = flag_for(policy, &Target { host: Host::Name(name.clone()), port });
    let denial = Denial { allow_with: flag.map(|flag| flag + &only), ..denial };
    if policy.ask {
        let explanation = format!("{}; a person can be asked", denial.explanation);
        return Denial { cause: Cause::MayAsk, code: Cause::MayAsk.code(), explanation, ..denial };
    }
    denial
}

/// Returns the denial for a target that `rule` allows, but not to this program.
fn another_program(rule: &Rule, name: &Name, port: Port, who: Who<'_>) -> Denial {
    let only = rule.program.as_ref().map_or_else(|| "another program".to_owned(), Program::to_string);
    let found = match who {
        Who::Program(Some(program)) => format!("this is {program}"),
        Who::Program(None) | Who::AnyProgram => "it is not known which program this is".to_owned(),
    };
    let why = format!("{name}:{port} is allowed for {only}, and {found}");
    Denial::new(Cause::OtherProgram, why).by(RuleRef::of(rule))
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
