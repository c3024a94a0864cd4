//! Asks the kernel for the route of a packet (RTM_GETROUTE of rtnetlink(7)), and subscribes to changes of addresses and
//! routes.

use crate::seams::OwnAddresses;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Flag NLM_F_REQUEST of linux/netlink.h.
const REQUEST: u16 = 1;
/// Message type NLMSG_ERROR of linux/netlink.h.
const ERROR: u16 = 2;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const HEADER: usize = 16;
/// `struct rtmsg` of linux/rtnetlink.h.
const ROUTE: usize = 12;
/// RTA_DST, RTA_IP_PROTO and RTA_DPORT: a rule of the host may route by protocol and port.
const DESTINATION: u16 = 1;
const PROTOCOL: u16 = 27;
const PORT: u16 = 29;
const TCP: u8 = 6;
/// RTN_LOCAL: delivered here.
const LOCAL: u8 = 2;
/// RTN_ANYCAST: delivered here too, such as the address `prefix::` of a router.
const ANYCAST: u8 = 4;
/// RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE.
const CHANGES: u32 = 0x10 | 0x40 | 0x100 | 0x400;
/// Time limit for an answer of the kernel. It answers at once; no thread may hang for ever if it does not.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of answers to older questions that may lie before the awaited one.
const MAX_STALE: usize = 16;

/// Routes of the network namespace in which the value was made.
#[derive(Debug)]
pub struct KernelRoutes(Mutex<Asked>);

#[derive(Debug)]
struct Asked {
    socket: OwnedFd,
    questions: u32,
}

impl KernelRoutes {
    /// Opens the routes of this process's network.
    pub fn here() -> io::Result<Self> {
        let socket = socket(SocketFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self(Mutex::new(Asked { socket, questions: 0 })))
    }
}

impl OwnAddresses for KernelRoutes {
    fn is_own(&self, to: SocketAddr) -> io::Result<bool> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.questions = asked.questions.wrapping_add(1);
        rustix::net::send(&asked.socket, &question(asked.questions, to), SendFlags::empty())?;
        for _ in 0..MAX_STALE {
            let mut space = [0; 4096];
            let (_, length) = rustix::net::recv(&asked.socket, &mut space[..], RecvFlags::empty())?;
            if let Some(answer) = answer(space.get(..length).unwrap_or_default(), asked.questions) {
                return answer.map_err(io::Error::from);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
        Ok(Some(socket))
    }
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Protocol 0 is NETLINK_ROUTE.
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?)
}

fn question(number: u32, to: SocketAddr) -> Vec<u8> {
    let (family, address) = match to.ip() {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let bits = u8::try_from(address.len() * 8).unwrap_or_default();
    let mut body = vec![0; ROUTE];
    body[0] = u8::try_from(family.as_raw()).unwrap_or_default();
    body[1] = bits;
    for (kind, value) in [(DESTINATION, &address[..]), (PROTOCOL, &[TCP]), (PORT, &to.port().to_be_bytes())] {
        let length = u16::try_from(4 + value.len()).unwrap_or_default();
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(u32::try_from(HEADER + body.len()).unwrap_or_default().to_ne_bytes());
    bytes.extend(GET_ROUTE.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// Reports whether the route leads to this host; `None` if the bytes answer another question.
fn answer(bytes: &[u8], number: u32) -> Option<Result<bool, Errno>> {
    let u16_at = |at: usize| bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map(u16::from_ne_bytes);
    let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
    let (Some(kind), Some(of)) = (u16_at(4), u32_at(8)) else { return Some(Err(Errno::PROTO)) };
    if of != number {
        return None;
    }
    Some(match kind {
        NEW_ROUTE => match bytes.get(HEADER..HEADER + ROUTE) {
            Some(route) => Ok([LOCAL, ANYCAST].contains(&route[7])),
            None => Err(Errno::PROTO),
        },
        ERROR => match u32_at(HEADER).map(|code| Errno::from_raw_os_error(0_i32.wrapping_sub_unsigned(code))) {
            // No route, or no such protocol: no connection is possible either.
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::AFNOSUPPORT | Errno::OPNOTSUPP) => {
                Ok(false)
            }
            Some(errno) => Err(errno),
            None => Err(Errno::PROTO),
        },
        _ => Err(Errno::PROTO),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_host_and_a_documentation_address_is_not() {
        let routes = KernelRoutes::here().unwrap();
        assert!(routes.is_own("127.0.0.1:80".parse().unwrap()).unwrap());
        assert!(routes.is_own("127.9.9.9:80".parse().unwrap()).unwrap());
        assert!(!routes.is_own("203.0.113.9:80".parse().unwrap()).unwrap());
        assert!(!routes.is_own("[2001:db8::9]:80".parse().unwrap()).unwrap());
    }

    #[test]
    fn an_answer_that_is_cut_or_unknown_is_an_error() {
        let route = |kind: u16, number: u32, of: u8| {
            let mut bytes = vec![0; HEADER + ROUTE];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[8..12].copy_from_slice(&number.to_ne_bytes());
            bytes[HEADER + 7] = of;
            bytes
        };
        assert_eq!(answer(&route(NEW_ROUTE, 5, LOCAL), 5), Some(Ok(true)));
        assert_eq!(answer(&route(NEW_ROUTE, 5, ANYCAST), 5), Some(Ok(true)));
        assert_eq!(answer(&route(NEW_ROUTE, 5, 1), 5), Some(Ok(false)));
        assert_eq!(answer(&route(NEW_ROUTE, 4, LOCAL), 5), None);
        assert_eq!(answer(&route(99, 5, LOCAL), 5), Some(Err(Errno::PROTO)));
        for length in 0..HEADER + ROUTE {
            let cut = answer(&route(NEW_ROUTE, 5, 1)[..length], 5);
            assert_eq!(cut, Some(Err(Errno::PROTO)), "{length}");
        }
        let error = |errno: Errno| {
            let mut bytes = route(ERROR, 5, 0);
            bytes[HEADER..HEADER + 4].copy_from_slice(&(-errno.raw_os_error()).to_ne_bytes());
            answer(&bytes, 5)
        };
        assert_eq!(error(Errno::NETUNREACH), Some(Ok(false)));
        assert_eq!(error(Errno::INVAL), Some(Err(Errno::INVAL)));
        assert_eq!(error(Errno::PERM), Some(Err(Errno::PERM)));
    }
}
