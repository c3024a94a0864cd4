//! Checks that the parts of one request name the same host.
//!
//! A connection that was allowed for one name and then asks the server behind it for another one is domain fronting. A
//! proxy that decides by the `Host` header while it connects by the request target is fooled by a client that writes
//! both.

use super::behind::check_behind;
use super::loopback;
use super::methods::unseen;
use super::names::{is_somebodys, named_attempt};
use crate::net::cause::Cause;
use crate::net::decide::check_name;
use crate::net::permit::{Attempt, Denial, MonotonicMs, Permit};
use crate::net::policy::Policy;
use crate::net::policy::bound::MissingSni;
use crate::net::policy::methods::Methods;
use crate::net::rules::rule::{AnyRule, Source, TCP, parse_allow};
use crate::net::rules::target::{Host, Port, Target};
use std::net::SocketAddr;

/// The beginning of a connection on which TLS was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hello<'a> {
    /// A ClientHello with this outer server name, as its bytes were.
    Sni(&'a [u8]),
    /// A ClientHello without a server name.
    NoSni,
    /// Bytes that are not TLS, or no bytes within the time.
    NotTls,
}

/// Checks that a TLS connection asks for the host that was allowed. Only for permits that expect TLS; others pass.
///
/// In the mode `unrestricted` every name passes that no rule denies. Under an allowlist, and where the same server has
/// a denied name (by the permit, or by what `policy` knows by now), it must be the allowed one. A connection to an address passes only without a
/// server name (TLS has none for addresses, RFC 6066): otherwise the address would stand for every name behind it.
pub fn check_sni(policy: &Policy, permit: &Permit, hello: Hello<'_>, now: MonotonicMs) -> Result<(), Denial> {
    if !permit.expects_tls() {
        return Ok(());
    }
    let target = permit.target();
    let must_name = must_name(policy, permit);
    if must_name && !matches!(hello, Hello::Sni(_)) {
        return Err(unnamed(permit.target()));
    }
    match (hello, &target.host) {
        (Hello::Sni(bytes), host) => {
            let asked = plain_name(bytes)
                .map_err(|why| Denial::new(Cause::OtherSni, format!("the TLS name for {target} {why}")))?;
            if asked == *host {
                return Ok(());
            }
            // An address as a name, or a name that the server does not have, is answered by its first site.
            if policy.is_open() && !must_name {
                let named = Target { host: asked, port: target.port };
                let attempt = Attempt { target: named, ..permit.attempt().clone() };
                return check_name(policy, &attempt, now).map(|_| ());
            }
            let why = format!("the connection was allowed for {host}, and TLS asks for {asked}");
            Err(Denial::new(Cause::OtherSni, why))
        }
        (Hello::NoSni, Host::Address(_)) => Ok(()),
        (Hello::NoSni, Host::Name(_)) => {
            missing(policy, permit, Cause::NoSni, format!("the TLS connection to {target} names no host"))
        }
        (Hello::NotTls, Host::Address(_) | Host::Name(_)) => {
            let why = format!("the connection to {target} does not begin with TLS");
            missing(policy, permit, Cause::NoSni, why)
                .map_err(|denial| Denial { allow_with: tcp_flag(policy, permit), ..denial })
        }
    }
}

/// Reads a TLS name. It goes to the server byte for byte, so it must have the spelling that every server reads as this
/// host: ASCII without a final dot (RFC 6066, 3), in any case. Of other spellings of one name (fullwidth letters, other
/// dots, soft hyphens) a server knows nothing and answers with its first site.
fn plain_name(bytes: &[u8]) -> Result<Host, String> {
    let host = Host::parse_bytes(bytes).map_err(|why| format!("cannot be read: {why}"))?;
    if host.to_string().as_bytes().eq_ignore_ascii_case(bytes) {
        return Ok(host);
    }
    Err(format!("is another spelling of {host}: in TLS a name is written in ASCII and without a dot at its end"))
}

/// Checks that a second ClientHello on one connection, after HelloRetryRequest, names the same host as the first. TLS
/// forbids another name (RFC 8446, 4.1.2), and some servers serve the second one.
pub fn check_second_sni(permit: &Permit, first: Hello<'_>, second: Hello<'_>) -> Result<(), Denial> {
    let target = permit.target();
    let named = |hello| match hello {
        Hello::Sni(bytes) => plain_name(bytes).map(Some),
        Hello::NoSni | Hello::NotTls => Ok(None),
    };
    let why = match (named(first), named(second)) {
        _ if second == Hello::NotTls => {
            format!("the TLS handshake for {target} goes on with something else than a ClientHello")
        }
        (Ok(one), Ok(other)) if one == other => return Ok(()),
        (_, Ok(_)) => format!("the second ClientHello for {target} names another host than the first"),
        (_, Err(why)) => format!("the name in the second ClientHello for {target} {why}"),
    };
    Err(Denial::new(Cause::OtherSni, why))
}

/// Checks whether an open connection that did not name exactly its host may go on: not where `policy` knows by now that
/// the same server has a denied name.
pub fn check_unnamed(policy: &Policy, permit: &Permit) -> Result<(), Denial> {
    if must_name(policy, permit) { Err(unnamed(permit.target())) } else { Ok(()) }
}

/// Reports whether a connection must name exactly its host: by its permit, or by what `policy` knows by now of denied
/// names behind its addresses.
fn must_name(policy: &Policy, permit: &Permit) -> bool {
    // No name is denied behind a port of the host's loopback that the user opened.
    if loopback::is_meant(policy, permit.attempt()) {
        return false;
    }
    let addresses = permit.addrs.iter().flatten().map(SocketAddr::ip);
    permit.grant.must_name || check_behind(policy, permit.attempt(), addresses, true).unwrap_or(true)
}

/// Returns the denial of a connection that may be for a denied name of the same server and names no host.
fn unnamed(target: &Target) -> Denial {
    let why = format!("the server of {target} has a denied name too, and the connection names no host");
    Denial::new(Cause::NoSni, why)
}

fn missing(policy: &Policy, permit: &Permit, cause: Cause, why: String) -> Result<(), Denial> {
    match policy.missing_sni {
        MissingSni::Allow if !permit.grant.refuse_unnamed => Ok(()),
        MissingSni::Allow | MissingSni::Refuse => Err(Denial::new(cause, why)),
    }
}

/// Checks whether a connection on which HTTP was expected may be something else. A connection that names no host
/// follows the same setting as TLS without a name. Where only reading is allowed it is denied, since its methods cannot
/// be seen.
pub fn check_not_http(policy: &Policy, permit: &Permit) -> Result<(), Denial> {
    let target = permit.target();
    if policy.methods == Methods::ReadOnly {
        return Err(unseen(target));
    }
    if must_name(policy, permit) {
        return Err(unnamed(permit.target()));
    }
    let why = format!("the connection to {target} does not begin with an HTTP request");
    missing(policy, permit, Cause::NoHttp, why)
        .map_err(|denial| Denial { allow_with: tcp_flag(policy, permit), ..denial })
}

/// Kind of request that carries the `Host` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// CONNECT: some clients leave the port out of `Host`, which then is the target's.
    Connect,
    /// Plain HTTP 1.1: `Host` is required; without a port it is 80.
    Http11,
    /// Plain HTTP 1.0: `Host` may be missing.
    Http10,
}

/// Checks that a request inside of a connection for `attempt` asks for the host that was allowed, and returns the
/// target that its `Host` names.
///
/// In the mode `unrestricted` another name passes that no rule denies, on the same port. As for TLS, under an allowlist
/// and where the connection `must_name` its host ([`Permit::must_name`]) it must be the target itself.
pub fn check_inner_host(
    policy: &Policy,
    attempt: &Attempt,
    must_name: bool,
    request: Request,
    hosts: &[&[u8]],
    now: MonotonicMs,
) -> Result<Target, Denial> {
    let target = &attempt.target;
    if must_name && hosts.is_empty() {
        return Err(unnamed(target));
    }
    if let ([header], true) = (hosts, policy.is_open() && !must_name)
        && let Some(named) = named(header, Port::HTTP).filter(|named| named.port == target.port && named != target)
    {
        let other = Attempt { target: named.clone(), ..attempt.clone() };
        return check_name(policy, &other, now).map(|_| named);
    }
    check_http_host(target, request, hosts).map(|()| target.clone())
}

fn named(header: &[u8], default: Port) -> Option<Target> {
    std::str::from_utf8(header).ok().and_then(|text| Target::parse_or(text, default).ok())
}

/// Checks that the `Host` headers of a request (all of them, in order) name the target that was allowed.
pub fn check_http_host(target: &Target, request: Request, hosts: &[&[u8]]) -> Result<(), Denial> {
    let refuse = |why: String| Err(Denial::new(Cause::Disagree, why));
    let header = match (hosts, request) {
        ([one], Request::Connect | Request::Http11 | Request::Http10) => one,
        ([], Request::Connect | Request::Http10) => return Ok(()),
        ([], Request::Http11) => return refuse("the request has no Host header".into()),
        ([_, _, ..], Request::Connect | Request::Http11 | Request::Http10) => {
            return refuse("the request has more than one Host header".into());
        }
    };
    let default = match request {
        Request::Connect => target.port,
        Request::Http11 | Request::Http10 => Port::HTTP,
    };
    match named(header, default) {
        Some(named) if named == *target => Ok(()),
        Some(named) => refuse(format!("the request is for {target}, and its Host header says {named}")),
        None => refuse(format!("the request is for {target}, and its Host header cannot be read")),
    }
}

/// Returns the flag that does without TLS or HTTP for the destination of a permit; `None` where it would not help.
pub(super) fn tcp_flag(policy: &Policy, permit: &Permit) -> Option<String> {
    let attempt = permit.attempt();
    let name = attempt.target.host.name()?;
    let only = if is_somebodys(policy, name) { attempt.program.as_ref()?.suffix()? } else { String::new() };
    let value = format!("{}{TCP}{only}", attempt.target);
    let rule = parse_allow(&value, Source::flag(&value)).ok()?;
    let with = policy.approve(AnyRule::Name(rule)).ok()?;
    let grant = named_attempt(&with, name, attempt).ok()?;
    let helps = !grant.tls && !grant.http;
    // A rule that opens a private destination has the same host and port, and another flag.
    let flag = if permit.grant.private { "--allow-private" } else { "--allow" };
    helps.then(|| format!("{flag} {value}"))
}
