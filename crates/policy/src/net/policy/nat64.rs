//! Finds prefixes of NAT64 of the network's own (RFC 6052), and the IPv4 address that an address below one carries.
//!
//! ```text
//!  bits   0        32  40  48  56  64  72  80  88  96      128
//!  /32    | prefix | IPv4 address  | u |      suffix        |
//!  /40    | prefix     | IPv4      | u |v4 |  suffix        |
//!  /48    | prefix         | IPv4  | u | IPv4  | suffix     |
//!  /56    | prefix             |v4 | u | IPv4      | suffix |
//!  /64    | prefix                 | u | IPv4 address  | s. |
//!  /96    | prefix                             | IPv4       |
//! ```
//!
//! A resolver of such a network answers for `ipv4only.arpa`, which has two known IPv4 addresses and no other, with IPv6
//! addresses that carry them (RFC 7050). Only prefixes that were found so count: the last bits of an ordinary address
//! mean nothing. A prefix adds checks and never replaces one: a wrong prefix opens nothing.

use super::Policy;
use crate::net::rules::ranges;
use ipnet::Ipv6Net;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name whose addresses show the prefixes.
pub const DISCOVERY_NAME: &str = "ipv4only.arpa";
/// IPv4 addresses of [`DISCOVERY_NAME`] (RFC 7050, 8.2).
const KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// Maximum number of prefixes of one answer that count.
const MAX_PREFIXES: usize = 16;
/// Lengths of a prefix, each with the octets of the IPv4 address (RFC 6052, 2.2). The octet `u` between them is left out.
const PLACES: [(u8, [usize; 4]); 6] = [
    (32, [4, 5, 6, 7]),
    (40, [5, 6, 7, 9]),
    (48, [6, 7, 9, 10]),
    (56, [7, 9, 10, 11]),
    (64, [9, 10, 11, 12]),
    (96, [12, 13, 14, 15]),
];

fn at(address: Ipv6Addr, places: [usize; 4]) -> Ipv4Addr {
    let octets = address.octets();
    Ipv4Addr::from(places.map(|place| octets.get(place).copied().unwrap_or_default()))
}

/// Returns the prefixes that addresses of [`DISCOVERY_NAME`] show. An address that shows two counts for both.
pub fn nat64_prefixes(addresses: &[IpAddr]) -> BTreeSet<Ipv6Net> {
    let v6 = addresses.iter().filter_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    });
    let shown = |address: Ipv6Addr| {
        let places = PLACES.into_iter().filter(move |(_, places)| KNOWN.contains(&at(address, *places)));
        places.filter_map(move |(bits, _)| Ipv6Net::new(address, bits).ok().map(|net| net.trunc()))
    };
    v6.flat_map(shown).take(MAX_PREFIXES).collect()
}

/// Returns the IPv4 address that `address` carries below `prefix`. A translator may ignore the bits that should be
/// zero.
fn carried(prefix: Ipv6Net, address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (_, places) = PLACES.into_iter().find(|(bits, _)| *bits == prefix.prefix_len())?;
    prefix.contains(&address).then(|| at(address, places))
}

impl Policy {
    /// Returns the policy in a network with these prefixes of NAT64; the generation stays.
    #[must_use]
    pub fn with_nat64(&self, prefixes: BTreeSet<Ipv6Net>) -> Self {
        Self { nat64: prefixes, ..self.clone() }
    }

    /// Returns the known prefixes of NAT64.
    pub fn nat64(&self) -> &BTreeSet<Ipv6Net> {
        &self.nat64
    }

    /// Returns the IPv4 addresses that an address may lead to.
    pub(in crate::net) fn embedded(&self, address: IpAddr) -> Vec<Ipv4Addr> {
        let mut found = ranges::embedded(address);
        if let IpAddr::V6(address) = address {
            found.extend(self.nat64.iter().filter_map(|prefix| carried(*prefix, address)));
        }
        found
    }

    /// Returns the canonical form of an address and the IPv4 addresses that it may lead to.
    pub fn forms(&self, address: IpAddr) -> Vec<IpAddr> {
        let inner = self.embedded(address).into_iter().map(IpAddr::V4);
        [address.to_canonical()].into_iter().chain(inner).collect()
    }
}

#[cfg(test)]
#[path = "nat64_tests.rs"]
mod tests;
