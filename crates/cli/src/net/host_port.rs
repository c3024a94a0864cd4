//! `--allow-host-port`: which ports the flag refuses, and which rules should be this flag.
//!
//! ```text
//!  --allow localhost:5432, --allow-private 127.0.0.1:5432 ─▶ refused: inside, that is the sandbox; the message
//!                                                              names the flag
//!  --allow-host-port 5432 ─▶ does a process of Nexus listen on 5432 of this machine? ─▶ refused
//! ```

use super::listening::listening_nexus;
use crate::failure::Failure;
use nexus_policy::net::{
    AnyRule, HostPortError, Pattern, Ports, Source, is_loopback, parse_allow, parse_allow_private, parse_host_port,
};
use nexus_policy::net::{Host, Rule, Target};
use nexus_policy::profile::{NetGrants, Sourced};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::Path;

/// The code of these refusals.
const CODE: &str = "host_port";

/// Reads the value of the flag.
pub fn parse(text: &str) -> Result<u16, HostPortError> {
    parse_host_port(text).map(nexus_policy::net::Port::number)
}

/// Refuses flags that name the loopback where it can only be the sandbox's own.
pub fn refuse_loopback_rules(grants: &NetGrants) -> Result<(), Failure> {
    let Some((rule, ports)) = loopback_rules(grants).into_iter().find(|(rule, _)| rule.from.is_flag()) else {
        return Ok(());
    };
    let message = format!("{} {} opens nothing: inside, that is the sandbox itself", rule.from, rule.value);
    Err(Failure::usage(CODE, message, advice(&ports)))
}

/// Describes such rules of files, as notes: a file may be meant for other programs too.
pub fn notes(grants: &NetGrants) -> Vec<String> {
    let of_files = loopback_rules(grants).into_iter().filter(|(rule, _)| !rule.from.is_flag());
    of_files
        .map(|(rule, ports)| {
            format!(
                "{}: {} opens nothing: inside, that is the sandbox itself; {}",
                rule.from,
                rule.value,
                advice(&ports)
            )
        })
        .collect()
}

fn advice(ports: &Ports) -> String {
    let text = ports.to_string();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("use --allow-host-port {text} for a service of this machine")
    } else {
        format!("use --allow-host-port for each port of a service of this machine, not {text}")
    }
}

/// Rules for a loopback address or `localhost`, with their ports. Rules that cannot be read are refused elsewhere.
fn loopback_rules(grants: &NetGrants) -> Vec<(&Sourced<String>, Ports)> {
    let source = || Source::flag("");
    let allow = grants.allow.iter().filter_map(|rule| Some((rule, named(&parse_allow(&rule.value, source()).ok()?)?)));
    let private = grants.allow_private.iter().filter_map(|rule| {
        let ports = match parse_allow_private(&rule.value, source()).ok()? {
            AnyRule::Name(rule) => named(&rule),
            AnyRule::Address(rule) => rule.net.network().is_loopback().then_some(rule.ports),
        };
        Some((rule, ports?))
    });
    allow.chain(private).collect()
}

fn named(rule: &Rule) -> Option<Ports> {
    match &rule.pattern {
        Pattern::Exact(name) if is_loopback(&Host::Name(name.clone())) => Some(rule.ports.clone()),
        Pattern::Exact(_) | Pattern::Below(_) => None,
    }
}

/// Refuses a port on which a process of Nexus listens: a proxy or a published port has more rights than the sandbox.
///
/// Processes of other users cannot be looked at, except by root. A process that begins to listen later is not seen.
pub fn refuse_ports_of_nexus(ports: &[u16]) -> Result<(), Failure> {
    if ports.is_empty() {
        return Ok(());
    }
    let found = listening_nexus(Path::new("/proc"), ports).map_err(|error| {
        let message = format!("The ports of this machine cannot be looked at: {error}");
        Failure::refused(CODE, message, "Without that, --allow-host-port could lead to Nexus itself. Mount /proc.")
    })?;
    let Some((port, pid)) = found else { return Ok(()) };
    let message = format!("Nexus itself listens on port {port} of this machine (process {pid})");
    Err(Failure::refused(CODE, message, "Name the port of a service with --allow-host-port, or end that process."))
}

/// Refuses the port of an upstream proxy on this machine: a client of that proxy asks it for anything, and no rule
/// holds. A name that does not resolve now is not refused here; the egress decides again for each connection.
pub fn refuse_port_of_proxy(
    ports: &[u16],
    proxy: Option<&Target>,
    own: impl FnOnce() -> Result<Vec<IpAddr>, Failure>,
) -> Result<(), Failure> {
    let Some(proxy) = proxy.filter(|proxy| ports.contains(&proxy.port.number())) else { return Ok(()) };
    let port = proxy.port.number();
    let addresses: Vec<IpAddr> = match &proxy.host {
        Host::Address(address) => vec![*address],
        // Known without a look-up, for which a C library may load modules of the host.
        here if is_loopback(here) => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        Host::Name(name) => {
            let found = (name.as_str(), port).to_socket_addrs();
            found.map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
        }
    };
    let own = own()?;
    let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified() || own.contains(&address);
    if !addresses.iter().any(|address| is_here(address.to_canonical())) {
        return Ok(());
    }
    let message =
        format!("port {port} of this machine is the upstream proxy of config.toml, which would open anything");
    Err(Failure::refused(CODE, message, "Name the port of another service with --allow-host-port."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::profile::Origin;

    fn grants(allow: &[&str], private: &[&str]) -> NetGrants {
        let list = |texts: &[&str], flag: &str| {
            texts.iter().map(|text| Sourced::new((*text).to_owned(), Origin::Flag(flag.to_owned()))).collect()
        };
        NetGrants {
            allow: list(allow, "--allow"),
            allow_private: list(private, "--allow-private"),
            ..NetGrants::default()
        }
    }

    #[test]
    fn a_flag_for_the_loopback_is_refused_and_names_the_right_one() {
        for text in ["localhost:5432", "LOCALHOST.:5432", "127.0.0.1:5432", "[::1]:5432", "0x7f000001:5432"] {
            let failure = refuse_loopback_rules(&grants(&[], &[text])).unwrap_err();
            assert!(failure.text().contains("Use --allow-host-port 5432 "), "{text}: {}", failure.text());
        }
        let failure = refuse_loopback_rules(&grants(&["localhost:5432"], &[])).unwrap_err();
        assert!(failure.text().contains("--allow localhost:5432 opens nothing"), "{}", failure.text());
        for ranges in ["127.0.0.0/8:80,81", "127.0.0.0/8:*"] {
            let failure = refuse_loopback_rules(&grants(&[], &[ranges])).unwrap_err();
            assert!(failure.text().contains("for each port"), "{}", failure.text());
        }
        let others = grants(&["db.localhost:80", "a.test"], &["10.0.0.1:80", "devbox:5432", "0.0.0.0/0:80"]);
        refuse_loopback_rules(&others).unwrap();
        assert!(notes(&others).is_empty());
    }

    #[test]
    fn the_port_of_the_upstream_proxy_is_refused_where_it_is_here() {
        let own = || Ok(vec![IpAddr::from([11, 22, 33, 44])]);
        let refused = |ports: &[u16], proxy: &str| {
            refuse_port_of_proxy(ports, Some(&Target::parse(proxy).unwrap()), own).is_err()
        };
        for proxy in ["127.0.0.1:3128", "127.8.0.1:3128", "[::1]:3128", "11.22.33.44:3128", "localhost:3128"] {
            assert!(refused(&[80, 3128], proxy), "{proxy}");
            assert!(!refused(&[80], proxy), "{proxy}");
        }
        assert!(!refused(&[3128], "11.22.33.45:3128"));
        refuse_port_of_proxy(&[3128], None, own).unwrap();
    }
}
