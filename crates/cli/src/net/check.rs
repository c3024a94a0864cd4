//! `nexus net check`: one destination, decided by the code that decides for a run.

use super::args::{CheckArgs, RuleArgs};
use super::host_port::refuse_loopback_rules;
use crate::args::RunArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::profile::resolution::Resolution;
use crate::terminal::out;
use nexus_egress::{
    Clock, Config, Lookup, Preview, ResolveError, Resolved, Resolver, System, Unrecorded, UpstreamProxy, preview,
};
use nexus_policy::net::{
    Attempt, Cause, Decision, Explanation, Ingress, Name, Policy, Program, Target, explain_outcome,
};
use nexus_policy::profile::NetGrants;
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::rules;
use std::net::IpAddr;
use std::sync::Arc;

/// Decides about one destination, prints the decision, and returns 0 if it is allowed, otherwise 1.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let target = Target::parse(&args.target).map_err(|error| {
        let message = format!("{:?} is not a destination: {error}", args.target);
        Failure::usage("target", message, "write HOST:PORT, for example example.com:443")
    })?;
    let attempt = Attempt { target, way: Ingress::Connect, program: program(args)? };
    let (network, grants) = resolved(&args.rules)?;
    refuse_loopback_rules(&grants)?;
    let (policy, upstream) = network.map_or_else(Default::default, |network| (network.policy, network.upstream));
    let checker = Checker { policy: Arc::new(policy), upstream, given: given(args, &attempt.target) };
    let explained = checker.by_every_ingress(&attempt)?;
    let text = if args.json { json(&explained)? } else { lines(&explained) };
    out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| failures::not_written("the answer", &error))?;
    Ok(u8::from(explained.decision != Decision::Allow))
}

/// The network of a run, and the addresses that the user gave for the name.
struct Checker {
    policy: Arc<Policy>,
    upstream: Option<UpstreamProxy>,
    given: Option<Given>,
}

impl Checker {
    /// Decides about a tunnel, and where the way in could matter, about a request to the proxy too.
    fn by_every_ingress(&self, attempt: &Attempt) -> Result<Explanation, Failure> {
        let (tunnel, cause) = self.by_ingress(attempt)?;
        if !matches!(cause, Some(Cause::Method | Cause::DeniedByRule)) {
            return Ok(tunnel);
        }
        let (request, _) = self.by_ingress(&Attempt { way: Ingress::HttpAbsolute, ..attempt.clone() })?;
        if request.decision != Decision::Allow {
            return Ok(tunnel);
        }
        let explanation = format!(
            "{}, by requests of plain HTTP to the proxy and by nothing else ({})",
            request.explanation, tunnel.explanation
        );
        Ok(Explanation { explanation, only_by: Some(Ingress::HttpAbsolute), ..request })
    }

    /// Decides as a run would now, with the cause of a denial.
    fn by_ingress(&self, attempt: &Attempt) -> Result<(Explanation, Option<Cause>), Failure> {
        let mut config = Config::new(Arc::clone(&self.policy), Clock::start(), Arc::new(Unrecorded));
        config.upstream_proxy.clone_from(&self.upstream);
        if let Some(given) = &self.given {
            config.resolver = Arc::new(given.clone());
        }
        let decided = runtime()?.block_on(preview(config, attempt)).map_err(|error| {
            Failure::refused("net", error.to_string(), "a run would not have a network here either")
        })?;
        let Preview { policy, outcome, resolved } = decided;
        let cause = outcome.as_ref().err().map(|denial| denial.cause);
        Ok((explain_outcome(&policy, &attempt.target, outcome, &resolved), cause))
    }
}

/// Resolver with the addresses of `--resolve` for one name; other names are asked for as in a run.
#[derive(Clone)]
struct Given {
    name: Name,
    addresses: Vec<IpAddr>,
    others: Arc<System>,
}

impl Resolver for Given {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        match self.known(name) {
            Some(known) => Box::pin(std::future::ready(known)),
            None => self.others.lookup(name),
        }
    }

    fn known(&self, name: &Name) -> Option<Result<Resolved, ResolveError>> {
        if *name == self.name {
            return Some(Ok(Resolved { addrs: self.addresses.clone(), ..Resolved::default() }));
        }
        self.others.known(name)
    }
}

fn given(args: &CheckArgs, target: &Target) -> Option<Given> {
    let name = target.host.name().filter(|_| !args.resolve.is_empty())?;
    Some(Given { name: name.clone(), addresses: args.resolve.clone(), others: Arc::default() })
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
