//! Reads what a request asks the proxy to do. Pure.

use super::fields::{overriding_methods, request_fields};
use super::framing::{Body, request_body};
use super::head::{HeadError, Request};
use crate::decide::denials;
use nexus_policy::net::{
    self, Attempt, Denial, Host, Ingress, MonotonicMs, Policy, Port, Target, check_http_host, check_inner_host,
    check_method,
};
use std::fmt::Write;

/// Request that can be carried out, if it is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyRequest {
    /// A tunnel to this target.
    Connect(Target),
    /// A request to pass on.
    Forward(Forward),
}

/// Request that is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) target: Target,
    /// Head for the server.
    pub(crate) head: Vec<u8>,
    pub(crate) method: String,
    /// Methods that fields of the request ask the server to take it for.
    pub(crate) overriding: Vec<String>,
    pub(crate) body: Body,
    /// True if the client's connection ends after this request.
    pub(crate) close: bool,
    pub(crate) websocket: bool,
    /// Host that `Host` names, if it is not the target. In an open network another name may stand there.
    pub(crate) asked: Option<Host>,
    /// Minor version of the client, after `HTTP/1.`.
    pub(crate) minor: u8,
}

impl Forward {
    /// Returns the head for an upstream proxy, with the whole URL; `None` if the proxy has to be asked for a tunnel.
    /// The head has no field that lets the proxy answer in the server's place.
    pub(crate) fn head_for_proxy(&self) -> Option<Vec<u8>> {
        if self.websocket || self.asked.is_some() {
            return None;
        }
        let mut parts = self.head.splitn(3, |byte| *byte == b' ');
        let (method, path, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let mut head = Vec::with_capacity(self.head.len() + 256);
        head.extend_from_slice(method);
        head.extend_from_slice(format!(" http://{}", host(&self.target)).as_bytes());
        head.extend_from_slice(if path == b"*" { b"" } else { path });
        head.push(b' ');
        let lines = rest.split_inclusive(|byte| *byte == b'\n');
        let limits_hops = |line: &&[u8]| line.get(..13).is_some_and(|name| name.eq_ignore_ascii_case(b"max-forwards:"));
        lines.filter(|line| !limits_hops(line)).for_each(|line| head.extend_from_slice(line));
        Some(head)
    }

    /// Decides whether the request may be made with its method, and with each that its fields put in place of it.
    pub(crate) fn check_methods(&self, policy: &Policy) -> Result<(), Denial> {
        let mut methods = std::iter::once(&self.method).chain(&self.overriding);
        methods.try_for_each(|method| check_method(policy, &self.target, method, self.websocket))
    }

    /// Reports whether the request may be sent again when a kept connection turns out to have ended (RFC 9110, 9.2.2).
    pub(crate) fn repeatable(&self) -> bool {
        self.body == Body::None && matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

/// The peer that a client asks.
pub(crate) enum Destination<'a> {
    /// The proxy, with the meaning of an address: one that the DNS stub gave out stands for its name.
    Proxy(&'a dyn Fn(Target) -> Result<Target, Denial>),
    /// The server of an allowed connection.
    Server(TunnelContext<'a>),
}

/// Allowed connection inside of which a request was read: its target is the target of all requests.
pub(crate) struct TunnelContext<'a> {
    pub(crate) attempt: &'a Attempt,
    /// True if each request must name the target itself.
    pub(crate) must_name: bool,
    pub(crate) policy: &'a Policy,
    pub(crate) now: MonotonicMs,
}

/// Request that is answered with an error, after which the connection ends: the end of the request is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) way: Ingress,
    pub(crate) denial: Denial,
}

impl Refused {
    pub(crate) fn head(error: HeadError) -> Self {
        Self { status: error.status(), way: Ingress::HttpAbsolute, denial: denials::malformed(error.to_string()) }
    }

    fn of(way: Ingress, denial: Denial) -> Self {
        Self { status: denial.http_status(), way, denial }
    }
}

/// Reads the target and head of `request`, which was sent `to` the proxy or inside of a connection to its target.
pub(crate) fn proxy_request(request: &Request<'_>, to: &Destination<'_>) -> Result<ProxyRequest, Refused> {
    let body = request_body(request).map_err(Refused::head)?;
    let hosts: Vec<&[u8]> = request.fields.iter().filter(|field| field.is("host")).map(|field| field.value).collect();
    if request.method == "CONNECT" && matches!(to, Destination::Proxy(_)) {
        let refused = |denial| Refused::of(Ingress::Connect, denial);
        let target = target(request.target, None).map_err(refused)?;
        check_http_host(&target, net::Request::Connect, &hosts).map_err(refused)?;
        if body != Body::None {
            return Err(refused(denials::malformed("a CONNECT request has no body")));
        }
        return Ok(ProxyRequest::Connect(target));
    }
    let refused = |denial| Refused::of(Ingress::HttpAbsolute, denial);
    if request.method.eq_ignore_ascii_case("CONNECT") {
        // A proxy or server behind this one may take it for CONNECT, with another target than the one that was decided.
        return Err(refused(denials::malformed(
            "the method CONNECT is written in capitals and asked of this proxy alone",
        )));
    }
    let version = if request.minor == 0 { net::Request::Http10 } else { net::Request::Http11 };
    let Place { target, named, path } = match to {
        Destination::Server(inside) => placed_inside(request, inside, version, &hosts),
        Destination::Proxy(meant) => placed(request.target, version, &hosts, meant),
    }
    .map_err(refused)?;
    let kept = request_fields(request).map_err(Refused::head)?;
    if kept.websocket && body != Body::None {
        return Err(refused(denials::malformed("a request for an upgrade has no body")));
    }

    let mut head = Vec::with_capacity(request.length + 64);
    let path = match path {
        "*" => path.to_owned(),
        "" if request.method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    let mut first = String::new();
    // A write to a string cannot fail.
    if write!(first, "{} {path} HTTP/1.{}\r\nHost: {}\r\n", request.method, request.minor, host(&named)).is_err() {
        return Err(refused(denials::internal("the request could not be written")));
    }
    head.extend_from_slice(first.as_bytes());
    for field in &kept.fields {
        put(&mut head, field.name, field.value);
    }
    match body {
        Body::Length(length) => put(&mut head, b"Content-Length", length.to_string().as_bytes()),
        Body::Chunked => put(&mut head, b"Transfer-Encoding", b"chunked"),
        Body::None if request.fields.iter().any(|field| field.is("content-length")) => {
            put(&mut head, b"Content-Length", b"0");
        }
        Body::None | Body::UntilClose => {}
    }
    if kept.websocket {
        put(&mut head, b"Connection", b"Upgrade");
        put(&mut head, b"Upgrade", b"websocket");
    }
    head.extend_from_slice(b"\r\n");
    let asked = (named != target).then_some(named.host);
    Ok(ProxyRequest::Forward(Forward {
        asked,
        target,
        head,
        method: request.method.to_owned(),
        overriding: overriding_methods(request),
        body,
        close: kept.close,
        websocket: kept.websocket,
        minor: request.minor,
    }))
}

/// Appends one field line.
pub(crate) fn put(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Returns the value of `Host`: without the scheme's own port, as clients write it and servers compare it.
fn host(target: &Target) -> String {
    let text = target.to_string();
    if target.port == Port::HTTP { text.strip_suffix(":80").unwrap_or(&text).to_owned() } else { text }
}

/// Target of a request, the host that its `Host` names, and the path for the server.
struct Place<'a> {
    target: Target,
    named: Target,
    path: &'a str,
}

/// Reads a request to the proxy: the request target alone decides, and `Host` must agree. The server gets the name
/// for which an address stands.
fn placed<'a>(
    text: &'a str,
    version: net::Request,
    hosts: &[&[u8]],
    meant: &dyn Fn(Target) -> Result<Target, Denial>,
) -> Result<Place<'a>, Denial> {
    let Some((authority, path)) = absolute(text)? else {
        return Err(denials::malformed("this is a proxy: it takes CONNECT HOST:PORT and METHOD http://HOST/"));
    };
    let target = target(authority, Some(Port::HTTP))?;
    check_http_host(&target, version, hosts)?;
    let target = meant(target)?;
    Ok(Place { named: target.clone(), target, path })
}

/// Reads a request inside of a connection: the connection's target decides, and every name in the request must agree.
fn placed_inside<'a>(
    request: &Request<'a>,
    inside: &TunnelContext<'_>,
    version: net::Request,
    hosts: &[&[u8]],
) -> Result<Place<'a>, Denial> {
    let allowed = &inside.attempt.target;
    let origin = request.target.starts_with('/') || (request.target == "*" && request.method == "OPTIONS");
    if origin {
        without_fragment(request.target)?;
        let named = check_inner_host(inside.policy, inside.attempt, inside.must_name, version, hosts, inside.now)?;
        return Ok(Place { target: allowed.clone(), named, path: request.target });
    }
    let Some((authority, path)) = absolute(request.target)? else {
        let why = "inside of a connection to a server the request target is a path; a proxy is asked on its own port";
        return Err(denials::malformed(why));
    };
    // The authority takes the place of `Host`, so it has to pass as one.
    target(authority, Some(Port::HTTP))?;
    check_http_host(allowed, net::Request::Http11, &[authority.as_bytes()])?;
    check_http_host(allowed, version, hosts)?;
    Ok(Place { target: allowed.clone(), named: allowed.clone(), path })
}

/// Splits `http://AUTHORITY/PATH` into its two parts; `None` if the target has another form.
fn absolute(target: &str) -> Result<Option<(&str, &str)>, Denial> {
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let Some(rest) = scheme.and(target.get(7..)) else { return Ok(None) };
    without_fragment(rest)?;
    Ok(Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))))
}

fn without_fragment(text: &str) -> Result<(), Denial> {
    if text.contains('#') { Err(denials::malformed("a request target has no fragment")) } else { Ok(()) }
}

/// Parses a target. No message repeats its text: it may carry a password.
fn target(authority: &str, port: Option<Port>) -> Result<Target, Denial> {
    if authority.contains('@') {
        return Err(denials::malformed("the destination carries user information, which is not forwarded"));
    }
    let parsed = match port {
        Some(port) => Target::parse_or(authority, port),
        None => Target::parse(authority),
    };
    parsed.map_err(|why| Denial::unreadable(&why))
}
