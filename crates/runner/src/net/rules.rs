//! Turns grants into the policy that decides: each rule is read once, and keeps who said it.
//!
//! ```text
//!  profiles, flags ─▶ NetGrants ─┐
//!  operator's [egress] ──────────┼─▶ PolicyInput ─build─▶ Policy ─narrow─▶ Policy under the policy documents
//!  groups, the host's addresses ─┘
//! ```

use nexus_egress::{UpstreamError, UpstreamProxy};
use nexus_model::capability::NetMode as Mode;
use nexus_policy::net::{
    AnyRule, Budget, Bypass, Groups, HostPort, MissingSni, Origin as RuleOrigin, Policy, PolicyBound, PolicyError,
    PolicyInput, Port, Program, Rule, RuleError, Source, parse_allow, parse_allow_private, parse_deny, parse_range,
};
use nexus_policy::profile::{NetGrants, NetMode, Origin, Sourced};
use nexus_policy::settings::EgressSettings;
use std::net::IpAddr;

/// The inputs from which the rules are read.
pub struct Sources<'a> {
    /// Profiles and flags, already narrowed.
    pub grants: &'a NetGrants,
    /// Bounds of the bytes and connections of the run.
    pub budget: Budget,
    /// Asks about what no rule allows.
    pub asks: bool,
    /// The operator's settings.
    pub settings: &'a EgressSettings,
    /// The groups that are asked for, by name.
    pub groups: &'a Groups,
    /// The addresses of this host.
    pub own_addresses: Vec<IpAddr>,
}

/// The rules of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A rule cannot be read.
    #[error("{from}: {reason}")]
    Rule {
        /// The flag or file that has the rule.
        from: Origin,
        /// The fault in the rule.
        reason: RuleError,
    },
    /// A group is not known.
    #[error("{from}: there is no group {name:?}")]
    Group {
        /// The flag or file that names the group.
        from: Origin,
        /// The name of the group.
        name: String,
        /// The names of the groups that were read.
        known: Vec<String>,
    },
    /// A port of the host is not a port.
    #[error("{reason}")]
    HostPort {
        /// The fault in the number.
        reason: String,
    },
    /// The operator's settings have a range that cannot be read.
    #[error("{from}: {reason}")]
    Range {
        /// The line of the settings.
        from: Origin,
        /// The fault in the range.
        reason: RuleError,
    },
    /// The operator's settings have a way around the proxy that cannot be read.
    #[error("{from}: {reason}")]
    Bypass {
        /// The line of the settings.
        from: Origin,
        /// The fault in the entry.
        reason: RuleError,
    },
    /// The operator's settings have a proxy that cannot be read. Its text is not shown: it may hold a password.
    #[error("{from}: {reason}")]
    Upstream {
        /// The line of the settings.
        from: Origin,
        /// The fault in the address.
        reason: UpstreamError,
    },
    /// The rules contradict each other.
    #[error("{0}")]
    Contradiction(PolicyError),
}

impl RulesError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rule { .. } | Self::Group { .. } | Self::HostPort { .. } | Self::Contradiction(_) => "net",
            Self::Range { .. } | Self::Bypass { .. } | Self::Upstream { .. } => "config",
        }
    }
}

/// Reads everything and checks it against each other.
pub fn policy(from: Sources<'_>) -> Result<Policy, RulesError> {
    let Sources { grants, budget, asks, settings, groups, own_addresses } = from;
    let mode = mode(grants.granted_mode());
    let mut input = PolicyInput {
        mode: Some(mode),
        missing_sni: settings
            .allow_missing_sni
            .as_ref()
            .map(|allow| if allow.value { MissingSni::Allow } else { MissingSni::Refuse }),
        methods: grants.effective_methods(),
        upstream_proxy: settings.upstream_proxy.is_some(),
        budget,
        ask: asks,
        own_addresses,
        generation: 1,
        ..PolicyInput::default()
    };
    // What a profile lists is in an open network anyway; a list beside the flag that opens it is a contradiction.
    let counts = |rule: &Sourced<String>| mode != Mode::Unrestricted || rule.from.is_flag();
    let counting = |list: &[Sourced<String>]| list.iter().filter(|rule| counts(rule)).cloned().collect::<Vec<_>>();
    input.allow = listed(&counting(&grants.allow), &counting(&grants.groups), groups)?;
    for rule in &grants.allow_private {
        let parsed = parse_allow_private(&rule.value, source(rule)).map_err(|reason| unreadable(rule, reason))?;
        input.allow_any(any_located(parsed));
    }
    for port in &grants.host_ports {
        let text = format!("--allow-host-port {}", port.value);
        let number = Port::new(port.value).map_err(|error| RulesError::HostPort { reason: error.to_string() })?;
        input.host_ports.push(HostPort { port: number, source: Source::flag(text) });
    }
    for rule in &grants.deny {
        input.deny_any(any_located(parse_deny(&rule.value, source(rule)).map_err(|reason| unreadable(rule, reason))?));
    }
    for rule in &settings.deny {
        let said = Source { origin: RuleOrigin::Operator, ..source(rule) };
        input.deny_any(any_located(parse_deny(&rule.value, said).map_err(|reason| unreadable(rule, reason))?));
    }
    for range in &settings.trusted_ranges {
        let parsed =
            parse_range(&range.value).map_err(|reason| RulesError::Range { from: range.from.clone(), reason })?;
        input.trusted_ranges.push(parsed);
    }
    for entry in &settings.upstream_bypass {
        let parsed =
            Bypass::parse(&entry.value).map_err(|reason| RulesError::Bypass { from: entry.from.clone(), reason })?;
        input.upstream_bypass.push(parsed);
    }
    let policy = settings.policies.narrow(Policy::build(input).map_err(RulesError::Contradiction)?);
    let Some(only) = &grants.only else { return Ok(policy) };
    let named = if settings.allow_missing_sni.is_some() { MissingSni::Allow } else { MissingSni::Refuse };
    let rules = listed(&only.allow, &only.groups, groups)?;
    Ok(policy.narrow(&PolicyBound {
        mode: Some(Mode::Allowlist),
        allow: rules.into_iter().map(of_workspace).collect(),
        refuse_given_private: true,
        list_missing_sni: named,
        asks: true,
        ..PolicyBound::default()
    }))
}

/// Returns the rules of destinations and groups, as a profile or a workspace's file lists them.
fn listed(allow: &[Sourced<String>], wanted: &[Sourced<String>], groups: &Groups) -> Result<Vec<Rule>, RulesError> {
    let mut rules = Vec::new();
    for rule in allow {
        rules.push(located(parse_allow(&rule.value, source(rule)).map_err(|reason| unreadable(rule, reason))?));
    }
    for group in wanted {
        rules.extend(members(groups, group)?);
    }
    Ok(rules)
}

/// Says that a rule stands in a file of the workspace.
fn of_workspace(rule: Rule) -> Rule {
    Rule { source: Source { origin: RuleOrigin::Workspace, ..rule.source }, ..rule }
}

/// Reads the operator's proxy from the settings.
pub fn upstream(settings: &EgressSettings) -> Result<Option<UpstreamProxy>, RulesError> {
    let Some(proxy) = &settings.upstream_proxy else { return Ok(None) };
    let refuse = |reason| RulesError::Upstream { from: proxy.from.clone(), reason };
    UpstreamProxy::parse(&proxy.value).map(Some).map_err(refuse)
}

/// Returns a program by its real path: the kernel names an executable by that, never by a link to it. What is not
/// there yet stays as it was written.
///
/// Only of what a sandbox shows as it is here: elsewhere a link of this host, which anybody may have made in `/tmp`,
/// is not what lies there inside.
pub fn real(program: Program) -> Program {
    const SHOWN: [&str; 6] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/alternatives/"];
    if !SHOWN.iter().any(|directory| program.0.starts_with(directory)) {
        return program;
    }
    let path = std::fs::canonicalize(&program.0).ok();
    path.and_then(|path| Program::parse(path.to_str()?).ok()).unwrap_or(program)
}

fn located(rule: Rule) -> Rule {
    Rule { program: rule.program.map(real), ..rule }
}

fn any_located(rule: AnyRule) -> AnyRule {
    match rule {
        AnyRule::Name(rule) => AnyRule::Name(located(rule)),
        AnyRule::Address(_) => rule,
    }
}

/// Returns the policy's mode for a profile's mode.
pub fn mode(mode: NetMode) -> Mode {
    match mode {
        NetMode::None => Mode::None,
        NetMode::Allowlist => Mode::Allowlist,
        NetMode::Unrestricted => Mode::Unrestricted,
    }
}

/// Returns the rules of a group, or an error that names what asked for the group.
fn members<'g>(groups: &'g Groups, wanted: &Sourced<String>) -> Result<impl Iterator<Item = Rule> + 'g, RulesError> {
    let Some(rules) = groups.get(&wanted.value) else {
        let known = groups.keys().cloned().collect();
        return Err(RulesError::Group { from: wanted.from.clone(), name: wanted.value.clone(), known });
    };
    Ok(rules.iter().cloned())
}

/// Reads the rule that a person approved; `by` says who, and stands beside the rule wherever it is named.
pub fn approved(text: &str, by: &str) -> Result<AnyRule, RuleError> {
    let source = Source { origin: RuleOrigin::Approval, text: text.to_owned(), file: Some(by.to_owned()), line: None };
    parse_allow(text, source).map(AnyRule::Name)
}

fn source(rule: &Sourced<String>) -> Source {
    let text = rule.value.clone();
    match &rule.from {
        Origin::Flag(_) => Source { origin: RuleOrigin::Flag, text, file: None, line: None },
        Origin::File { name, place } => {
            let line = u32::try_from(place.line).ok().filter(|line| *line > 0);
            Source { origin: RuleOrigin::User, text, file: Some(name.clone()), line }
        }
        Origin::Standard | Origin::Toolchain { .. } | Origin::Auto { .. } => {
            Source { origin: RuleOrigin::User, text, file: Some(rule.from.to_string()), line: None }
        }
    }
}

fn unreadable(rule: &Sourced<String>, reason: RuleError) -> RulesError {
    RulesError::Rule { from: rule.from.clone(), reason }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
