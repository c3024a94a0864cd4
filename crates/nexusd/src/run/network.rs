//! The network of a directive, from its capabilities and the built-in groups.

use nexus_model::capability::{NetCapability, NetMode, NetPreset};
use nexus_policy::net::{Budget, builtin_groups};
use nexus_policy::profile::{NetGrants, NetMode as Granted, Origin, Sourced};
use nexus_policy::settings::EgressSettings;
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::{addresses, rules};

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

/// Returns the network of a run; `None` without one.
pub fn network(net: &NetCapability, settings: &EgressSettings) -> Result<Option<RunNetwork>, String> {
    if net.mode == NetMode::None {
        return Ok(None);
    }
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
        asks: false,
        settings,
        groups: &groups,
        own_addresses,
    })
    .map_err(|error| error.to_string())?;
    groups.retain(|name, _| grants.groups.iter().any(|group| group.value == *name));
    let upstream = rules::upstream(settings).map_err(|error| error.to_string())?;
    Ok(Some(RunNetwork { policy, upstream, ask: None, notes: Vec::new(), groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> NetCapability {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_directive_reaches_what_it_lists_and_no_more() {
        let none = network(&net(r#"{"mode":"none"}"#), &EgressSettings::default()).unwrap();
        assert!(none.is_none());
        let listed = net(r#"{"mode":"allowlist","allow":["example.test:443"]}"#);
        let listed = network(&listed, &EgressSettings::default()).unwrap().unwrap();
        assert!(listed.groups.is_empty());
        let loose = net(r#"{"mode":"allowlist","allow":["example.test:443"],"preset":"loose"}"#);
        let loose = network(&loose, &EgressSettings::default()).unwrap().unwrap();
        assert!(loose.groups.keys().any(|name| name == "code:github"), "{:?}", loose.groups.keys());
    }

    #[test]
    fn an_address_in_the_place_of_a_name_is_refused() {
        for bad in ["127.0.0.1:443", "[::1]:443", "example.test:0", "http://example.test"] {
            let asked = NetCapability {
                mode: NetMode::Allowlist,
                allow: Some(vec![bad.to_owned()]),
                ..NetCapability::default()
            };
            assert!(network(&asked, &EgressSettings::default()).is_err(), "{bad}");
        }
    }
}
