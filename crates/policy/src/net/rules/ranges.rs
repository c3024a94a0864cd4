//! Address ranges that are not simply the public internet.
//!
//! From the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890 and the RFCs beside the entries), the
//! transition mechanisms that carry an IPv4 address inside an IPv6 one, and the addresses at which clouds hand out
//! credentials. A name that resolves into one of them reaches something that its owner did not mean to offer to the
//! sandbox: the host, its network, the cloud's metadata service.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Kind of a special address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// "This host": Linux connects to the own host.
    Unspecified,
    /// The own host.
    Loopback,
    /// Private use, unique local, site-local.
    Private,
    /// Valid on one link only.
    LinkLocal,
    /// Shared by a carrier's customers.
    Cgnat,
    /// Hands out credentials of the machine.
    Metadata,
    /// No TCP peer exists there.
    Multicast,
    /// No TCP peer exists there.
    Broadcast,
    /// Examples in texts.
    Documentation,
    /// Reserved for measurements.
    Benchmarking,
    /// Protocol assignments, anycast services, discard-only, segment routing, reserved.
    Reserved,
    /// An IPv6 address that carries an IPv4 one: mapped, compatible, translated, local-use NAT64, 6to4, Teredo, ISATAP.
    Transition,
    /// Public by its number, but one of this host's own.
    OwnHost,
}

impl Class {
    /// Reports whether no rule can ever admit it: there is no honest TCP destination of this kind.
    pub fn is_never(self) -> bool {
        match self {
            Self::Unspecified | Self::Multicast | Self::Broadcast => true,
            Self::Loopback
            | Self::Private
            | Self::LinkLocal
            | Self::Cgnat
            | Self::Metadata
            | Self::Documentation
            | Self::Benchmarking
            | Self::Reserved
            | Self::Transition
            | Self::OwnHost => false,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "the unspecified address, which means this host",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Cgnat => "an address of a carrier's shared range",
            Self::Metadata => "a metadata service, which hands out credentials",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "a documentation address",
            Self::Benchmarking => "a benchmarking address",
            Self::Reserved => "a reserved special-purpose address",
            Self::Transition => "an IPv6 address that carries an IPv4 one",
            Self::OwnHost => "an address of this host",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(head: [u16; 4], tail: [u16; 4], bits: u8) -> Ipv6Net {
    let address = Ipv6Addr::new(head[0], head[1], head[2], head[3], tail[0], tail[1], tail[2], tail[3]);
    Ipv6Net::new_assert(address, bits)
}

/// The first match counts: narrower entries stand before wider ones.
const V4: &[(Ipv4Net, Class)] = &[
    (v4(169, 254, 169, 254, 32), Class::Metadata), // nearly every cloud
    (v4(169, 254, 170, 2, 32), Class::Metadata),   // container credentials, AWS
    (v4(169, 254, 170, 23, 32), Class::Metadata),  // pod identity, AWS
    (v4(169, 254, 42, 42, 32), Class::Metadata),   // Scaleway
    (v4(100, 100, 100, 200, 32), Class::Metadata), // Alibaba
    (v4(168, 63, 129, 16, 32), Class::Metadata),   // wire server, Azure: a public number
    (v4(192, 0, 0, 192, 32), Class::Metadata),     // Oracle
    (v4(0, 0, 0, 0, 8), Class::Unspecified),       // RFC 791
    (v4(10, 0, 0, 0, 8), Class::Private),          // RFC 1918
    (v4(100, 64, 0, 0, 10), Class::Cgnat),         // RFC 6598
    (v4(127, 0, 0, 0, 8), Class::Loopback),        // RFC 1122
    (v4(169, 254, 0, 0, 16), Class::LinkLocal),    // RFC 3927
    (v4(172, 16, 0, 0, 12), Class::Private),       // RFC 1918
    (v4(192, 0, 0, 0, 24), Class::Reserved),       // RFC 6890, protocol assignments
    (v4(192, 0, 2, 0, 24), Class::Documentation),  // RFC 5737
    (v4(192, 31, 196, 0, 24), Class::Reserved),    // RFC 7535, AS112
    (v4(192, 52, 193, 0, 24), Class::Reserved),    // RFC 7450, AMT
    (v4(192, 88, 99, 0, 24), Class::Reserved),     // RFC 7526, 6to4 relay
    (v4(192, 168, 0, 0, 16), Class::Private),      // RFC 1918
    (v4(192, 175, 48, 0, 24), Class::Reserved),    // RFC 7534, AS112
    (v4(198, 18, 0, 0, 15), Class::Benchmarking),  // RFC 2544
    (v4(198, 51, 100, 0, 24), Class::Documentation),
    (v4(203, 0, 113, 0, 24), Class::Documentation),
    (v4(224, 0, 0, 0, 4), Class::Multicast),        // RFC 5771
    (v4(255, 255, 255, 255, 32), Class::Broadcast), // RFC 8190
    (v4(240, 0, 0, 0, 4), Class::Reserved),         // RFC 1112
];

const V6: &[(Ipv6Net, Class)] = &[
    (v6([0xfd00, 0x0ec2, 0, 0], [0, 0, 0, 0x254], 128), Class::Metadata), // AWS
    (v6([0xfd00, 0x0ec2, 0, 0], [0, 0, 0, 0x23], 128), Class::Metadata),  // pod identity, AWS
    (v6([0xfd20, 0x00ce, 0, 0], [0, 0, 0, 0x254], 128), Class::Metadata), // Google
    (v6([0xfd00, 0x0042, 0, 0], [0, 0, 0, 0x42], 128), Class::Metadata),  // Scaleway
    (v6([0xfd00, 0x00c1, 0, 0], [0, 0, 0xa9fe, 0xa9fe], 128), Class::Metadata), // Oracle
    (v6([0, 0, 0, 0], [0, 0, 0, 0], 128), Class::Unspecified),            // RFC 4291
    (v6([0, 0, 0, 0], [0, 0, 0, 1], 128), Class::Loopback),               // RFC 4291
    (v6([0, 0, 0, 0], [0, 0, 0, 0], 96), Class::Transition),              // RFC 4291, compatible
    (v6([0, 0, 0, 0], [0, 0xffff, 0, 0], 96), Class::Transition),         // RFC 4291, mapped
    (v6([0, 0, 0, 0], [0xffff, 0, 0, 0], 96), Class::Transition),         // RFC 2765, translated
    (v6([0x64, 0xff9b, 1, 0], [0, 0, 0, 0], 48), Class::Transition),      // RFC 8215, local-use NAT64
    (v6([0x100, 0, 0, 0], [0, 0, 0, 0], 64), Class::Reserved),            // RFC 6666, discard
    (v6([0x100, 0, 0, 1], [0, 0, 0, 0], 64), Class::Reserved),            // RFC 9780, dummy
    (v6([0x2001, 0, 0, 0], [0, 0, 0, 0], 32), Class::Transition),         // RFC 4380, Teredo
    (v6([0x2001, 2, 0, 0], [0, 0, 0, 0], 48), Class::Benchmarking),       // RFC 5180
    (v6([0x2001, 0, 0, 0], [0, 0, 0, 0], 23), Class::Reserved),           // RFC 2928: AMT, AS112, ORCHID, DRIP
    (v6([0x2001, 0xdb8, 0, 0], [0, 0, 0, 0], 32), Class::Documentation),  // RFC 3849
    (v6([0x2002, 0, 0, 0], [0, 0, 0, 0], 16), Class::Transition),         // RFC 3056, 6to4
    (v6([0x2620, 0x4f, 0x8000, 0], [0, 0, 0, 0], 48), Class::Reserved),   // RFC 7534, AS112
    (v6([0x3fff, 0, 0, 0], [0, 0, 0, 0], 20), Class::Documentation),      // RFC 9637
    (v6([0x5f00, 0, 0, 0], [0, 0, 0, 0], 16), Class::Reserved),           // RFC 9602, segment routing
    (v6([0xfc00, 0, 0, 0], [0, 0, 0, 0], 7), Class::Private),             // RFC 4193
    (v6([0xfe80, 0, 0, 0], [0, 0, 0, 0], 10), Class::LinkLocal),          // RFC 4291
    (v6([0xfec0, 0, 0, 0], [0, 0, 0, 0], 10), Class::Private),            // RFC 3879, site-local
    (v6([0xff00, 0, 0, 0], [0, 0, 0, 0], 8), Class::Multicast),           // RFC 4291
];

/// Returns the class of an address, or `None` for the public internet.
///
/// NAT64 (64:ff9b::/96, RFC 6052) has none: the IPv4 address that it carries decides (`embedded`). Networks with IPv6
/// alone reach every IPv4 server by it.
pub fn classify(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, class)| *class),
        IpAddr::V6(address) => match V6.iter().find(|(net, _)| net.contains(&address)) {
            Some((_, class)) => Some(*class),
            None => is_isatap(address).then_some(Class::Transition),
        },
    }
}

/// Returns the canonical form of an address and the IPv4 addresses that it may lead to.
pub fn forms(address: IpAddr) -> Vec<IpAddr> {
    [address.to_canonical()].into_iter().chain(embedded(address).into_iter().map(IpAddr::V4)).collect()
}

/// Returns the IPv4 addresses that a transition form may lead to; each is checked too where such a form is admitted at
/// all.
pub fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return Vec::new() };
    let s = address.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let tail = pair(s[6], s[7]);
    let mut found = Vec::new();
    let ends_in_v4 = [
        v6([0, 0, 0, 0], [0, 0, 0, 0], 96),
        v6([0, 0, 0, 0], [0, 0xffff, 0, 0], 96),
        v6([0, 0, 0, 0], [0xffff, 0, 0, 0], 96),
        v6([0x64, 0xff9b, 0, 0], [0, 0, 0, 0], 96),
        v6([0x64, 0xff9b, 1, 0], [0, 0, 0, 0], 96),
    ];
    let is_plain = matches!(classify(IpAddr::V6(address)), Some(Class::Loopback | Class::Unspecified));
    if !is_plain && (ends_in_v4.iter().any(|net| net.contains(&address)) || is_isatap(address)) {
        found.push(tail);
    }
    match s {
        [0x2002, high, low, ..] => found.push(pair(high, low)),
        // Teredo: the server in clear, the client with its bits flipped (RFC 4380).
        [0x2001, 0, high, low, ..] => found.extend([pair(high, low), pair(!s[6], !s[7])]),
        // Local-use NAT64 with the 48-bit prefix itself puts the address around the u octet (RFC 6052, 2.2).
        [0x64, 0xff9b, 1, first, second, third, ..] if (first, second, third) != (0, 0, 0) => {
            found.push(Ipv4Addr::from(
                (u32::from(first) << 16) | (u32::from(second & 0xff) << 8) | u32::from(third >> 8),
            ));
        }
        _ => {}
    }
    found
}

/// Reports whether an address is ISATAP (RFC 5214): `0000:5efe` or `0200:5efe` before the IPv4 address, under any
/// prefix.
fn is_isatap(address: Ipv6Addr) -> bool {
    let s = address.segments();
    (s[4] == 0 || s[4] == 0x200) && s[5] == 0x5efe
}

/// Reports whether `net` is one address only.
pub(in crate::net) fn is_single(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_by_both_families() {
        for service in [
            "169.254.169.254",
            "169.254.42.42",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:42::42",
            "fd00:c1::a9fe:a9fe",
        ] {
            assert_eq!(classify(service.parse().unwrap()), Some(Class::Metadata), "{service}");
        }
        for beside in ["fd00:42::43", "fd00:c1::a9fe:a9ff", "fd00:42::"] {
            assert_eq!(classify(beside.parse().unwrap()), Some(Class::Private), "{beside}");
        }
    }
}
