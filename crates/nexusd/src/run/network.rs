//! The network of a directive, from its capabilities and the built-in groups.

use nexus_model::capability::{NetCapability, NetMode, NetPreset};
use nexus_policy::net::{Budget, builtin_groups};
use nexus_policy::profile::{NetGrants, NetMode as Granted, Origin, Sourced};
use nexus_policy::settings::EgressSettings;
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::{addresses, rules};
use std::time::Duration;

/// The origin of what a directive asks for, in rules and messages.
pub fn origin() -> Origin {
    Origin::Flag("directive".to_owned())
}

/// Returns what a directive is granted.
#[must_use]
pub fn grants(net: &NetCapability) -> NetGrants {
    let mode = match net.mode {
        NetMode::None => return NetGrants::default(),
        NetMode::Allowlist => Granted::Allowlist,
        NetMode::Unrestricted => Granted::Unrestricted,
    };
    let from = origin();
    let allow = net.allow.iter().flatten().map(|rule| Sourced::new(rule.clone(), from.clone())).collect();
    NetGrants { mode: Some(Sourced::new(mode, from)), allow, ..NetGrants::default() }
}

/// Returns the network of a run; `None` without one. A person is asked about connections of the directive's own command alone.
pub fn network(net: &NetCapability, settings: &EgressSettings, may_ask: bool) -> Result<Option<RunNetwork>, String> {
    if net.mode == NetMode::None {
        return Ok(None);
    }
    let ask = net.ask_seconds().map_err(|error| error.to_string())?.filter(|_| may_ask);
    let mut grants = grants(net);
    let mut groups = builtin_groups().map_err(|error| format!("the built-in groups: {error}"))?;
    // Groups of packages come from the settings of a user's package clients, and a territory has no user.
    if net.preset == Some(NetPreset::Loose) {
        let names = groups.keys().filter(|name| name.starts_with("code:"));
        grants.groups = names.map(|name| Sourced::new(name.clone(), origin())).collect();
    }
    let own_addresses =
        addresses::addresses().map_err(|error| format!("the addresses of this host cannot be read: {error}"))?;
    let policy = rules::policy(rules::Sources {
        grants: &grants,
        budget: Budget::default(),
        asks: ask.is_some(),
        settings,
        groups: &groups,
        own_addresses,
    })
    .map_err(|error| error.to_string())?;
    groups.retain(|name, _| grants.groups.iter().any(|group| group.value == *name));
    let upstream = rules::upstream(settings).map_err(|error| error.to_string())?;
    let ask = ask.map(|seconds| Duration::from_secs(u64::from(seconds)));
    Ok(Some(RunNetwork { policy, upstream, ask, notes: Vec::new(), groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> NetCapability {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_directive_reaches_what_it_lists_and_no_more() {
        let none = network(&net(r#"{"mode":"none"}"#), &EgressSettings::default(), true).unwrap();
        assert!(none.is_none());
        let listed = net(r#"{"mode":"allowlist","allow":["example.test:443"]}"#);
        let listed = network(&listed, &EgressSettings::default(), true).unwrap().unwrap();
        assert!(listed.groups.is_empty());
        let loose = net(r#"{"mode":"allowlist","allow":["example.test:443"],"preset":"loose"}"#);
        let loose = network(&loose, &EgressSettings::default(), true).unwrap().unwrap();
        assert!(loose.groups.keys().any(|name| name == "code:github"), "{:?}", loose.groups.keys());
    }

    #[test]
    fn a_directive_that_asks_waits_for_a_person_and_the_clone_of_its_repository_does_not() {
        let asks = net(r#"{"mode":"allowlist","allow":[],"x_ext":{"x_ask_seconds":60}}"#);
        let of = |may_ask| network(&asks, &EgressSettings::default(), may_ask).unwrap().unwrap().ask;
        assert_eq!((of(true), of(false)), (Some(Duration::from_secs(60)), None));
        let silent = net(r#"{"mode":"allowlist","allow":[]}"#);
        assert_eq!(network(&silent, &EgressSettings::default(), true).unwrap().unwrap().ask, None);
    }

    #[test]
    fn an_address_in_the_place_of_a_name_is_refused() {
        for bad in ["127.0.0.1:443", "[::1]:443", "example.test:0", "http://example.test"] {
            let asked = NetCapability {
                mode: NetMode::Allowlist,
                allow: Some(vec![bad.to_owned()]),
                ..NetCapability::default()
            };
            assert!(network(&asked, &EgressSettings::default(), true).is_err(), "{bad}");
        }
    }
}
