//! Decides what a run may reach, from flags, profiles and settings.

use super::args::NetFlags;
use super::host_port;
use crate::failure::Failure;
use crate::profile::caller::caller;
use nexus_egress::UpstreamProxy;
use nexus_policy::net::{Budget, Pattern, Policy, Rule, RuleError, builtin_groups};
use nexus_policy::profile::{Grants, NetGrants, NetMode, Origin};
use nexus_policy::settings::EgressSettings;
use nexus_profiles::{Found, clients};
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::{addresses, rules, variables};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Default time for which a question waits for its answer.
const ASK_TIME: Duration = Duration::from_secs(60);

/// Reads what there is to read; `None` where the run has no network. What clients need inside goes to `found`.
pub fn of(
    grants: &Grants,
    flags: &NetFlags,
    settings: &EgressSettings,
    workspace: &Path,
    found: &mut Found,
) -> Result<Option<RunNetwork>, Failure> {
    refuse_lost_host_ports(flags, &grants.net)?;
    let upstream = rules::upstream(settings)?;
    let ports: Vec<u16> = grants.net.host_ports.iter().map(|port| port.value).collect();
    host_port::refuse_port_of_proxy(&ports, upstream.as_ref().map(UpstreamProxy::target), own_addresses)?;
    if grants.net.effective_mode() == NetMode::None {
        refuse_rules_without_network(flags)?;
        if grants.net.host_ports.is_empty() {
            return Ok(None);
        }
    } else {
        let from = grants.net.mode_from().cloned().unwrap_or(Origin::Standard);
        variables::add(&mut found.env, &from);
    }
    if let Some(most) = settings.max_mode.as_ref().filter(|most| grants.net.effective_mode() > most.value) {
        let message = format!(
            "This run asks for --net {}, and at most --net {} is allowed ({})",
            grants.net.effective_mode().word(),
            most.value.word(),
            most.from
        );
        return Err(Failure::refused("net", message, "Name the destinations, or ask the owner of that file"));
    }
    if let Some(most) = settings.max_mode.as_ref().filter(|most| most.value == NetMode::None)
        && !grants.net.host_ports.is_empty()
    {
        let message = format!("No network is allowed ({}), and a port of the host's loopback is one", most.from);
        return Err(Failure::refused("net", message, "Leave --allow-host-port out, or ask the owner of that file"));
    }
    let mut notes = host_port::notes(&grants.net);
    let mut groups = builtin_groups().map_err(|error| own_fault(&error))?;
    clients::read(&grants.net.groups, &caller(), workspace, &mut groups, found, &mut notes)?;
    let policy = rules::policy(rules::Sources {
        grants: &grants.net,
        budget: Budget { bytes_total: flags.max_egress_bytes, connections: flags.max_connections, ..Budget::default() },
        asks: flags.ask,
        settings,
        groups: &groups,
        own_addresses: own_addresses()?,
    })?;
    notes.extend(closed_by_name_alone(&policy));
    let [_, wanted, _] = grants.net.lists();
    groups.retain(|name, _| wanted.iter().any(|group| group.value == *name));
    let ask = flags.ask.then(|| flags.ask_timeout.map_or(ASK_TIME, Duration::from_millis));
    Ok(Some(RunNetwork { policy, upstream, ask, notes, groups }))
}

/// Lists the rules that count beside the lists of profiles and flags, each with its origin, for `nexus explain`.
pub fn describe(network: &RunNetwork, settings: &EgressSettings) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (name, rules) in &network.groups {
        for rule in rules {
            let from = rule.source.file.clone().unwrap_or_default();
            rows.push((format!("{name}: {}:{}", rule.pattern, rule.ports), from));
        }
    }
    for rule in &settings.deny {
        rows.push((format!("never {}", rule.value), rule.from.to_string()));
    }
    for range in &settings.trusted_ranges {
        rows.push((format!("names may lead into {}", range.value), range.from.to_string()));
    }
    if let Some(proxy) = &settings.upstream_proxy {
        // Its address may hold a password.
        rows.push((
            "everything but private destinations goes through an upstream proxy".to_owned(),
            proxy.from.to_string(),
        ));
        let direct = settings.upstream_bypass.iter();
        rows.extend(direct.map(|entry| (format!("{} goes around it", entry.value), entry.from.to_string())));
    }
    if let Some(missing) = &settings.allow_missing_sni {
        let word = if missing.value { "allowed" } else { "refused" };
        rows.push((
            format!("TLS without a server name, and other than HTTP on port 80, is {word}"),
            missing.from.to_string(),
        ));
    }
    let budget = network.policy.budget();
    rows.extend(budget.bytes_total.map(|bytes| (format!("at most {bytes} bytes"), "--max-egress-bytes".to_owned())));
    rows.extend(budget.connections.map(|most| (format!("at most {most} connections"), "--max-connections".to_owned())));
    rows.extend(
        network.ask.map(|time| {
            (format!("what is not listed is asked about, for {} s each", time.as_secs()), "--ask".to_owned())
        }),
    );
    rows.extend(network.notes.iter().map(|note| (note.clone(), String::new())));
    rows
}

/// Says which denials of an open network do not hold the servers behind their names.
fn closed_by_name_alone(policy: &Policy) -> Option<String> {
    if !policy.follows_denials() {
        return None;
    }
    let all: Vec<&Rule> = policy.denied_names().iter().collect();
    let wide = |rule: &&&Rule| matches!(rule.pattern, Pattern::Below(_)) || policy.upstream_proxy();
    let rule = all.iter().find(wide)?;
    let more = match all.iter().filter(wide).count() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = if policy.upstream_proxy() {
        "the operator's proxy looks the names up"
    } else {
        "the names below it are not known"
    };
    Some(format!(
        "--deny {}{more} closes names and not every way to the servers behind them, since {why}; --deny ADDRESS closes one",
        rule.source
    ))
}

/// Returns the addresses of this host.
pub fn own_addresses() -> Result<Vec<IpAddr>, Failure> {
    addresses::addresses().map_err(|error| {
        let message = format!("the addresses of this host cannot be read: {error}");
        Failure::refused("net", message, "without them the host could not be kept out of reach; mount /proc")
    })
}

/// A file of the workspace can close what a flag opens; the caller of the flag must hear of it.
fn refuse_lost_host_ports(flags: &NetFlags, grants: &NetGrants) -> Result<(), Failure> {
    if flags.allow_host_port.is_empty() || !grants.host_ports.is_empty() {
        return Ok(());
    }
    let message = "--allow-host-port opens a port of this machine, and nexus.yaml of the workspace closes all of them";
    Err(Failure::usage("host_port", message, "leave the flag out, or change the network of nexus.yaml"))
}

/// Refuses flags that open something when there is no network: they would have no effect.
fn refuse_rules_without_network(flags: &NetFlags) -> Result<(), Failure> {
    let given = [
        ("--allow", !flags.allow.is_empty()),
        ("--allow-group", !flags.allow_group.is_empty()),
        ("--allow-private", !flags.allow_private.is_empty()),
        ("--ask", flags.ask),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => {
            let message = format!("{flag} opens something, and there is no network");
            Err(Failure::usage("net", message, "leave --net none out, or the file that closes the network"))
        }
    }
}

fn own_fault(error: &RuleError) -> Failure {
    Failure::refused("internal", format!("the built-in groups: {error}"), "this should not happen; reinstall nexus")
}
