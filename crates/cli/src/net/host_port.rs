//! `--allow-host-port`: which ports the flag refuses, and which rules should be this flag.
//!
//! ```text
//!  --allow localhost:5432, --allow-private 127.0.0.1:5432 ─▶ refused: inside, that is the sandbox; the message names the flag
//!  --allow-host-port 5432 ─▶ does a process of Nexus listen on 5432 of this machine? ─▶ refused
//! ```

use crate::failure::Failure;
use nexus_policy::net::{
    AnyRule, HostPortError, Pattern, Ports, Source, is_loopback, parse_allow, parse_allow_private, parse_host_port,
};
use nexus_policy::net::{Host, Rule, Target};
use nexus_policy::profile::{NetGrants, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The code of these refusals.
const CODE: &str = "host_port";
/// The state of a listening socket in `/proc/net/tcp` (`TCP_LISTEN`).
const LISTENING: &str = "0A";

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

/// The same about rules of files, as notes: a file may be meant for other programs too.
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

/// Refuses the port of an upstream proxy on this machine: whoever reaches it asks it for anything, and no rule holds. A name
/// that is not resolved now is no reason to refuse here; the egress decides once more for each connection.
pub fn refuse_port_of_proxy(
    ports: &[u16],
    proxy: Option<&Target>,
    own: impl FnOnce() -> Result<Vec<IpAddr>, Failure>,
) -> Result<(), Failure> {
    let Some(proxy) = proxy.filter(|proxy| ports.contains(&proxy.port.number())) else { return Ok(()) };
    let port = proxy.port.number();
    let addresses: Vec<IpAddr> = match &proxy.host {
        Host::Address(address) => vec![*address],
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

/// A port of these with the process of Nexus that listens there.
fn listening_nexus(proc: &Path, ports: &[u16]) -> io::Result<Option<(u16, u32)>> {
    let mut sockets = BTreeMap::new();
    for table in ["net/tcp", "net/tcp6"] {
        match std::fs::read_to_string(proc.join(table)) {
            Ok(text) => sockets.extend(listeners(&text, ports)),
            // Without the protocol nothing listens by it.
            Err(error) if error.kind() == ErrorKind::NotFound && table == "net/tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() {
        return Ok(None);
    }
    let own = std::fs::metadata("/proc/self/exe")?;
    for entry in std::fs::read_dir(proc)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = entry.path();
        if !is_nexus(&path.join("exe"), (own.dev(), own.ino())) {
            continue;
        }
        // A process that is gone, or another user's, is not looked at.
        let Ok(descriptors) = std::fs::read_dir(path.join("fd")) else { continue };
        for descriptor in descriptors.filter_map(Result::ok) {
            let link = std::fs::read_link(descriptor.path()).ok();
            let socket = link.as_ref().and_then(|link| inode(link.as_os_str()));
            if let Some(port) = socket.and_then(|socket| sockets.get(&socket)) {
                return Ok(Some((*port, pid)));
            }
        }
    }
    Ok(None)
}

/// The inodes of the sockets that listen on one of these ports. A line is `N: ADDRESS:PORT REMOTE STATE … INODE …`
/// (proc_net_tcp in the kernel's documentation).
fn listeners(table: &str, ports: &[u16]) -> BTreeMap<u64, u16> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let listens = fields.get(3) == Some(&LISTENING) && ports.contains(&port);
        listens.then_some((fields.get(9)?.parse().ok()?, port))
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Reports whether a process runs this program, or another version of it.
fn is_nexus(exe: &Path, own: (u64, u64)) -> bool {
    let same = std::fs::metadata(exe).is_ok_and(|exe| (exe.dev(), exe.ino()) == own);
    let named = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.strip_suffix(" (deleted)").unwrap_or(name) == "nexus"
    };
    same || std::fs::read_link(exe).is_ok_and(|path| named(&path))
}

/// The number in `socket:[N]`.
fn inode(link: &OsStr) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
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
            assert!(failure.text().contains("use --allow-host-port 5432 "), "{text}: {}", failure.text());
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

    #[test]
    fn the_kernels_table_gives_the_sockets_that_listen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n   \
            1: 0100007F:1538 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n   \
            2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0\n";
        assert_eq!(listeners(table, &[5432]), BTreeMap::from([(4711, 5432)]));
        assert_eq!(listeners(table, &[80, 5432]), BTreeMap::from([(4711, 5432), (4713, 80)]));
        assert_eq!(inode(OsStr::new("socket:[4711]")), Some(4711));
        assert_eq!(inode(OsStr::new("pipe:[4711]")), None);
    }
}
