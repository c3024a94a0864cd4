//! `nexus net check`: one destination, decided by the code that decides for a run.

use super::args::{CheckArgs, RuleArgs};
use super::host_port::refuse_loopback_rules;
use crate::args::RunArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::profile::resolution::Resolution;
use crate::terminal::out;
use nexus_egress::{Clock, KernelRoutes, Limits, Resolver, System, behind_now, nat64_now, own_among};
use nexus_policy::net::{
    Attempt, Decision, Denial, Explanation, Host, Ingress, MonotonicMs, Name, Next, Policy, Program, Target,
    check_name, explain_attempt,
};
use nexus_policy::profile::NetGrants;
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::rules;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Decides and prints; 0 is allowed, 1 is not.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let target = Target::parse(&args.target).map_err(|error| {
        let message = format!("{:?} is not a destination: {error}", args.target);
        Failure::usage("target", message, "write HOST:PORT, for example example.com:443")
    })?;
    let attempt = Attempt { target, way: Ingress::Connect, program: program(args)? };
    let (network, grants) = resolved(&args.rules)?;
    refuse_loopback_rules(&grants)?;
    let policy = network.map_or_else(Policy::default, |network| network.policy);
    let now = Clock::start().now();
    let found = if args.resolve.is_empty() { look_up(&policy, &attempt, now)? } else { Ok(args.resolve.clone()) };
    let (addresses, unresolved) = match found {
        Ok(addresses) => (addresses, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    // As a connection would: an address below a prefix of NAT64 is the IPv4 address that it carries.
    let (policy, unknown) = match behind_nat64(&policy, &attempt, &addresses, now)? {
        Ok(known) => (known, None),
        Err(denial) => (policy, Some(denial)),
    };
    let policy = on_this_host(&policy, &attempt.target, &addresses)?;
    let policy = behind_denied_names(policy, &attempt, &addresses, now)?;
    let mut explained = explain_attempt(&policy, &attempt, &addresses, now);
    if let Some(why) = unresolved.filter(|_| explained.decision != Decision::Allow) {
        explained.explanation = why;
    }
    if let Some(denial) = unknown {
        explained = Explanation {
            decision: Decision::Deny,
            code: denial.code,
            rule: None,
            explanation: denial.explanation,
            allow_with: None,
            ..explained
        };
    }
    let text = if args.json { json(&explained)? } else { lines(&explained) };
    out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| failures::not_written("the answer", &error))?;
    Ok(u8::from(explained.decision != Decision::Allow))
}

/// Adds to the policy what the kernel says of the addresses now, as for a connection.
fn on_this_host(policy: &Policy, target: &Target, resolved: &[IpAddr]) -> Result<Policy, Failure> {
    let literal = match target.host {
        Host::Address(address) => Some(address),
        Host::Name(_) => None,
    };
    let sockets: Vec<SocketAddr> =
        resolved.iter().copied().chain(literal).map(|ip| SocketAddr::new(ip, target.port.number())).collect();
    let failed = |why: String| Failure::refused("net", why, "without it the host could not be kept out of reach");
    let routes = KernelRoutes::here()
        .map_err(|error| failed(format!("the kernel cannot be asked which addresses are this host's own: {error}")))?;
    let own = own_among(policy, &routes, &sockets).map_err(|denial| failed(denial.explanation))?;
    Ok(policy.also_own(&own).into_owned())
}

/// Adds the prefixes of NAT64 of this host's network to the policy, as a connection finds them; the inner error is the denial
/// of one whose question has no answer.
fn behind_nat64(
    policy: &Policy,
    attempt: &Attempt,
    resolved: &[IpAddr],
    now: MonotonicMs,
) -> Result<Result<Policy, Denial>, Failure> {
    let (to, is_written) = match (check_name(policy, attempt, now), &attempt.target.host) {
        (Ok(Next::Resolve(query)), _) => (resolved.to_vec(), query.is_exact()),
        (Ok(Next::Dial(permit)), Host::Address(address)) => (vec![*address], permit.rule().is_some()),
        (Ok(Next::Dial(_)) | Err(_), _) => return Ok(Ok(policy.clone())),
    };
    Ok(runtime()?.block_on(nat64_now(policy, &System::default(), &to, is_written)))
}

/// Adds to the policy what is known of denied names behind the addresses, as for a connection. Looks each denied name
/// up, and only where that could decide.
fn behind_denied_names(
    policy: Policy,
    attempt: &Attempt,
    resolved: &[IpAddr],
    now: MonotonicMs,
) -> Result<Policy, Failure> {
    if policy.followed().next().is_none() || check_name(&policy, attempt, now).is_err() {
        return Ok(policy);
    }
    let literal = match attempt.target.host {
        Host::Address(address) => Some(address),
        Host::Name(_) => None,
    };
    let addresses: Vec<IpAddr> = resolved.iter().copied().chain(literal).collect();
    let resolver = Arc::new(System::default());
    let found = behind_now(&policy, resolver, Limits::default().resolve_time, attempt, &addresses);
    let behind = runtime()?.block_on(found);
    Ok(policy.also_behind(&behind).into_owned())
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::refused("net", format!("the resolver cannot be started: {error}"), "give addresses with --resolve")
    })
}

/// Returns the program by its real path, as in the rules.
fn program(args: &CheckArgs) -> Result<Option<Program>, Failure> {
    let Some(path) = &args.program else { return Ok(None) };
    let program = Program::parse(path).map_err(|error| {
        let message = format!("{path:?} is not a program: {error}");
        Failure::usage("program", message, "write its whole path, for example /usr/bin/curl")
    })?;
    Ok(Some(rules::real(program)))
}

/// Returns the network that `nexus run` would have with these rules, and what they grant.
pub fn resolved(rules: &RuleArgs) -> Result<(Option<RunNetwork>, NetGrants), Failure> {
    let places = crate::host::state_dir()?;
    let workspace = crate::host::workspace(rules.workspace.as_deref(), &places)?;
    let args = RunArgs::of_rules(rules);
    let resolution = Resolution::of(&args, &workspace, &places)?;
    Ok((resolution.network, resolution.grants.net))
}

/// Asks the resolver of the egress, and only for a name that the rules let through: a question tells others its name.
fn look_up(policy: &Policy, attempt: &Attempt, now: MonotonicMs) -> Result<Result<Vec<IpAddr>, String>, Failure> {
    let Ok(Next::Resolve(query)) = check_name(policy, attempt, now) else { return Ok(Ok(Vec::new())) };
    let runtime = runtime()?;
    // As long as a run waits.
    let limit = Limits::default().resolve_time;
    Ok(runtime.block_on(answer_within(limit, query.name(), &System::default())))
}

/// Asks `resolver` for the addresses of `name`, and gives up after `limit`.
async fn answer_within(limit: Duration, name: &Name, resolver: &dyn Resolver) -> Result<Vec<IpAddr>, String> {
    match tokio::time::timeout(limit, resolver.lookup(name)).await {
        Ok(found) => found.map(|found| found.addrs).map_err(|error| error.to_string()),
        Err(_) => Err(format!("{name} cannot be resolved: no answer in time")),
    }
}

fn json(explained: &Explanation) -> Result<String, Failure> {
    let mut text = serde_json::to_string(explained)
        .map_err(|error| Failure::refused("internal", error.to_string(), "this should not happen"))?;
    text.push('\n');
    Ok(text)
}

fn lines(explained: &Explanation) -> String {
    let decision = match explained.decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
        Decision::Ask => "the user would be asked",
    };
    let mut lines = vec![format!("{decision}: {}", explained.explanation)];
    if explained.decision != Decision::Allow {
        lines.push(format!("code: {}", explained.code));
    }
    lines.extend(explained.rule.iter().map(|rule| format!("rule: {}", rule.source)));
    lines.extend(explained.addresses.iter().map(|one| {
        let class = one.class.map(|class| format!(" ({class})")).unwrap_or_default();
        let inner: Vec<_> = one.leads_to.iter().map(ToString::to_string).collect();
        let leads = if inner.is_empty() { String::new() } else { format!(", leads to {}", inner.join(" and ")) };
        format!("address: {}{class}{leads}", one.address)
    }));
    lines.extend(explained.allow_with.iter().map(|flag| format!("allow it with: {flag}")));
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_egress::{Lookup, Scripted};

    struct Silent;

    impl Resolver for Silent {
        fn lookup<'a>(&'a self, _name: &'a Name) -> Lookup<'a> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn check_gives_a_name_without_an_answer_up() {
        let name = Name::parse("a.test").unwrap();
        let runtime = runtime().unwrap();
        let within = |limit, resolver: &dyn Resolver| runtime.block_on(answer_within(limit, &name, resolver));
        let silent = within(Duration::from_millis(1), &Silent).unwrap_err();
        assert_eq!(silent, "a.test cannot be resolved: no answer in time");
        let known = Scripted::default();
        known.set("a.test", &["93.184.216.34".parse().unwrap()]);
        assert_eq!(within(Duration::from_secs(600), &known).unwrap().len(), 1);
    }
}
