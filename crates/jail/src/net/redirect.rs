//! Routes and one nf_tables table that bring every TCP connection to the transparent listener.
//!
//! ```text
//!  connect(8.8.8.8:443) ─▶ route: "local default dev lo" ─▶ nat output: redirect to 127.0.0.1:TRANSPARENT
//!  connect(127.0.0.1:*), connect([::1]:*), connect(192.0.0.8:*) ─▶ accepted as they are: its own servers stay its own
//!  sendto(8.8.8.8:53/udp) ─▶ delivered locally, nobody listens ─▶ ECONNREFUSED at once (no QUIC, no foreign resolver)
//! ```
//! Numbers are those of linux/rtnetlink.h and linux/netfilter/nf_tables.h.

use super::netlink::{Attribute, Messages, exchange};
use nexus_model::network::TRANSPARENT_PORT;
use rustix::net::{Protocol, netlink};
use std::io;

/// Protocol 0 is the default of its family.
const NETLINK_ROUTE: Option<Protocol> = None;
const TABLE: &str = "nexus";
const CHAIN: &str = "output";
const IPV4: u8 = libc::AF_INET as u8;
const IPV6: u8 = libc::AF_INET6 as u8;
/// RT_SCOPE_HOST: known to this machine alone.
const SCOPE_HOST: u8 = 254;
/// `lo` is the first device of every network namespace.
const LOOPBACK: u32 = 1;

/// Resolvers that are asked for what this machine can use (AI_ADDRCONFIG, getaddrinfo(3)) find no IPv4 address for a
/// machine that has 127.0.0.1 alone.
const DUMMY: [u8; 4] = nexus_model::network::INSIDE_ADDRESS.octets();

/// Writes the routes and the rules of this network namespace; `ipv6` where it has that protocol.
pub fn redirect(ipv6: bool) -> io::Result<()> {
    let mut messages = routes(ipv6);
    dummy_address(&mut messages);
    exchange(NETLINK_ROUTE, &messages)?;
    exchange(Some(netlink::NETFILTER), &rules())
}

/// `local default dev lo`: every address is one of ours.
///
/// A socket that is connected to an address has 127.0.0.1 as its own. Without that source IPv4 would take the destination, and
/// a program that asks for its own address in this way (a UDP connect) would find a foreign one. IPv6 takes `::1` without help.
fn routes(ipv6: bool) -> Messages {
    const NEW_ROUTE: u16 = 24;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const TYPE_LOCAL: u8 = 2;
    const DEVICE: u16 = 4;
    const SOURCE: u16 = 7;
    let mut messages = Messages::default();
    for family in [IPV4, IPV6].into_iter().take(1 + usize::from(ipv6)) {
        let fixed = [family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
        let mut attributes = vec![Attribute::bytes(DEVICE, &LOOPBACK.to_ne_bytes())];
        if family == IPV4 {
            attributes.push(Attribute::bytes(SOURCE, &std::net::Ipv4Addr::LOCALHOST.octets()));
        }
        messages.create(NEW_ROUTE, &fixed, &attributes);
    }
    messages
}

fn dummy_address(messages: &mut Messages) {
    const NEW_ADDRESS: u16 = 20;
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let mut fixed = [IPV4, 32, 0, SCOPE_HOST, 0, 0, 0, 0];
    fixed[4..].copy_from_slice(&LOOPBACK.to_ne_bytes());
    messages.create(NEW_ADDRESS, &fixed, &[ADDRESS, LOCAL].map(|kind| Attribute::bytes(kind, &DUMMY)));
}

const SUBSYSTEM: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// Both protocols in one table.
const FAMILY_INET: u8 = 1;
/// The first register of an expression.
const REGISTER: u32 = 1;

fn rules() -> Messages {
    let header = [FAMILY_INET, 0, 0, 0];
    let batch = [0, 0, 0, 10];
    let mut messages = Messages::default();
    messages.add_frame(BATCH_BEGIN, &batch);
    messages.create(NEW_TABLE, &header, &[Attribute::name(1, TABLE)]);
    messages.create(NEW_CHAIN, &header, &chain());
    let ipv4_loopback = [family_is(IPV4), payload(16, 1), equals(&[127]), accept()];
    let dummy = [family_is(IPV4), payload(16, 4), equals(&DUMMY), accept()];
    let ipv6_loopback = [family_is(IPV6), payload(24, 16), equals(&std::net::Ipv6Addr::LOCALHOST.octets()), accept()];
    for expressions in [&ipv4_loopback.concat(), &dummy.concat(), &ipv6_loopback.concat(), &to_the_listener()] {
        let list = Attribute::nested(4, expressions);
        messages.append(NEW_RULE, &header, &[Attribute::name(1, TABLE), Attribute::name(2, CHAIN), list]);
    }
    messages.add_frame(BATCH_END, &batch);
    messages
}

/// `type nat hook output priority dstnat; policy accept`
fn chain() -> [Attribute; 5] {
    const LOCAL_OUT: u32 = 3;
    const DESTINATION_NAT: i32 = -100;
    const ACCEPT: u32 = 1;
    let hook = [Attribute::number(1, LOCAL_OUT), Attribute::bytes(2, &DESTINATION_NAT.to_be_bytes())];
    [
        Attribute::name(1, TABLE),
        Attribute::name(3, CHAIN),
        Attribute::nested(4, &hook),
        Attribute::number(5, ACCEPT),
        Attribute::name(7, "nat"),
    ]
}

/// `meta l4proto tcp redirect to :TRANSPARENT_PORT`
fn to_the_listener() -> Vec<Attribute> {
    const PROTOCOL: u32 = 16;
    let port = Attribute::nested(2, &[Attribute::bytes(1, &TRANSPARENT_PORT.to_be_bytes())]);
    let load_port = expression("immediate", &[Attribute::number(1, REGISTER), port]);
    let redirect = expression("redir", &[Attribute::number(1, REGISTER)]);
    [meta(PROTOCOL), equals(&[libc::IPPROTO_TCP as u8]), load_port, redirect].concat()
}

fn family_is(family: u8) -> Vec<Attribute> {
    const FAMILY: u32 = 15;
    [meta(FAMILY), equals(&[family])].concat()
}

fn meta(key: u32) -> Vec<Attribute> {
    expression("meta", &[Attribute::number(1, REGISTER), Attribute::number(2, key)])
}

/// Loads bytes of the network header.
fn payload(offset: u32, length: u32) -> Vec<Attribute> {
    const NETWORK_HEADER: u32 = 1;
    let parts = [(1, REGISTER), (2, NETWORK_HEADER), (3, offset), (4, length)];
    expression("payload", &parts.map(|(kind, value)| Attribute::number(kind, value)))
}

/// Goes on with the next rule unless the register holds this.
fn equals(value: &[u8]) -> Vec<Attribute> {
    const EQUAL: u32 = 0;
    let data = Attribute::nested(3, &[Attribute::bytes(1, value)]);
    expression("cmp", &[Attribute::number(1, REGISTER), Attribute::number(2, EQUAL), data])
}

fn accept() -> Vec<Attribute> {
    const VERDICT_REGISTER: u32 = 0;
    const ACCEPT: u32 = 1;
    let verdict = Attribute::nested(2, &[Attribute::number(1, ACCEPT)]);
    expression("immediate", &[Attribute::number(1, VERDICT_REGISTER), Attribute::nested(2, &[verdict])])
}

fn expression(name: &str, data: &[Attribute]) -> Vec<Attribute> {
    vec![Attribute::nested(1, &[Attribute::name(1, name), Attribute::nested(2, data)])]
}
