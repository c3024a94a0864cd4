//! Lists the addresses of this host, which no rule for the public internet opens: a name that leads to one of them reaches
//! the host itself.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns all addresses of the interfaces of this host.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let unknown = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{what} has a line of another form"));
    let mut found = v4(&std::fs::read_to_string("/proc/net/fib_trie")?).ok_or_else(|| unknown("fib_trie"))?;
    match std::fs::read_to_string("/proc/net/if_inet6") {
        Ok(text) => found.extend(v6(&text).ok_or_else(|| unknown("if_inet6"))?),
        // Without the protocol there are no such addresses.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

/// Reads the kernel's own table of routes: below an address stands `/32 host LOCAL` when it is one of ours. `None` for a table
/// that is not understood: an address that is overlooked would count as one of the public internet.
fn v4(trie: &str) -> Option<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut address = None;
    for line in trie.lines() {
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix("|-- ") {
            address = Some(IpAddr::V4(text.trim().parse::<Ipv4Addr>().ok()?));
        } else if line.starts_with("/32 host LOCAL") {
            let address = address?;
            if !found.contains(&address) {
                found.push(address);
            }
        }
    }
    Some(found)
}

/// Reads a table in which a line begins with the address in 32 hexadecimal digits.
fn v6(table: &str) -> Option<Vec<IpAddr>> {
    let address = |line: &str| {
        let digits = line.split_whitespace().next().filter(|digits| digits.len() == 32)?;
        u128::from_str_radix(digits, 16).ok().map(|bits| Ipv6Addr::from(bits).into())
    };
    table.lines().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_give_each_address_once() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 192.0.2.7\n        \
                    /32 host LOCAL\nLocal:\n     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n        \
                    /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(v4(trie), Some(vec![IpAddr::from([192, 0, 2, 7]), IpAddr::from([127, 0, 0, 1])]));
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(v6(table), Some(vec![IpAddr::V6(Ipv6Addr::LOCALHOST)]));
        for other in ["Main:\n  |-- 192.0.2\n", "/32 host LOCAL\n"] {
            assert_eq!(v4(other), None, "{other}");
        }
        assert_eq!(v6("::1 01 80 10 80 lo\n"), None);
    }

    #[test]
    fn this_host_has_its_loopback() {
        assert!(addresses().unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
