//! Network of a sandbox, and the addresses inside at which it meets the egress.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Network {
    /// Its own loopback and nothing else.
    #[default]
    None,
    /// Its own loopback, and listeners there that the host's egress serves: the only way out.
    Egress,
    /// The same, and the host is shown the sandbox's processes, so that rules can be for one program.
    EgressByProgram,
}

impl Network {
    /// Returns whether the sandbox can reach anything outside through the egress.
    pub fn has_egress(self) -> bool {
        match self {
            Self::None => false,
            Self::Egress | Self::EgressByProgram => true,
        }
    }
}

/// HTTP proxy, on 127.0.0.1 inside.
pub const HTTP_PORT: u16 = 3128;
/// SOCKS5 proxy, on 127.0.0.1 inside.
pub const SOCKS_PORT: u16 = 1080;
/// Name service over UDP and TCP, on 127.0.0.1 inside.
pub const DNS_PORT: u16 = 53;
/// Port on 127.0.0.1 and ::1 inside to which every other TCP connection is redirected.
pub const TRANSPARENT_PORT: u16 = 15_001;
/// The ports inside on which the egress listens for itself, so that no port of the host can be reached there.
pub const INSIDE_PORTS: [u16; 4] = [HTTP_PORT, SOCKS_PORT, DNS_PORT, TRANSPARENT_PORT];
/// The address of every sandbox beside its loopback: the dummy address of RFC 7600, which no machine has.
pub const INSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// First address and prefix length of the IPv4 range from which the name service inside gives out an address for each name.
pub const SYNTHETIC_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// First address and prefix length of the IPv6 range; the last 32 bits count as in the IPv4 one.
pub const SYNTHETIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd6e, 0x6578, 0x7573, 0, 0, 0, 0, 0), 96);
/// Reports whether an address lies in a range of the name service inside: it means a name, or nothing.
pub fn is_synthetic(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            (u32::from(address) ^ u32::from(SYNTHETIC_V4.0)) >> (32 - u32::from(SYNTHETIC_V4.1)) == 0
        }
        IpAddr::V6(address) => {
            (u128::from(address) ^ u128::from(SYNTHETIC_V6.0)) >> (128 - u32::from(SYNTHETIC_V6.1)) == 0
        }
    }
}

/// The most ports of the host's loopback that one sandbox may reach.
pub const MAX_HOST_PORTS: usize = 16;
