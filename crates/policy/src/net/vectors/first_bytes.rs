//! The second table: what a client says on a connection that was allowed, and whether it agrees with it.

use super::rules::{DEFAULT, OPEN, Rules};
use crate::net::cause::DenyCode;
use crate::net::decide::agree::{Hello, Request, check_inner_host, check_not_http, check_sni};
use crate::net::decide::methods::check_method;
use crate::net::decide::{check_addrs, check_name};
use crate::net::permit::{Attempt, Denial, Ingress, MonotonicMs, Next, Permit};
use crate::net::policy::Policy;
use crate::net::policy::bound::MissingSni;
use crate::net::policy::methods::Methods;
use crate::net::rules::target::Target;
use nexus_model::capability::NetMode;

/// One HTTP request of a case.
#[derive(Debug, Clone, Copy)]
pub struct HttpQuestion {
    /// The HTTP method.
    pub method: &'static str,
    /// The request target; one that begins with `/` is given its `http://HOST:PORT` where a proxy is asked.
    pub target: &'static str,
    /// The values of its `Host` fields.
    pub hosts: &'static [&'static str],
    /// True if the request asks for a WebSocket.
    pub upgrade: bool,
}

/// Bytes that the client sends on a connection.
#[derive(Debug, Clone, Copy)]
pub enum FirstBytes {
    /// A ClientHello with this name.
    Sni(&'static str),
    /// A ClientHello without a name.
    NoSni,
    /// Bytes that are neither TLS nor valid HTTP/1.
    Raw(&'static [u8]),
    /// Requests of HTTP/1.1, one after the other.
    Http(&'static [HttpQuestion]),
}

/// One case. Everything that is sent passes, except the last.
#[derive(Debug, Clone, Copy)]
pub struct Agree {
    /// The id of the vector.
    pub id: &'static str,
    /// The rules of the case.
    pub rules: Rules,
    /// The host that the connection is for.
    pub host: &'static str,
    /// The port of the host.
    pub port: u16,
    /// The bytes that the client sends.
    pub first_bytes: FirstBytes,
    /// The code for the last that is sent, or for the connection, by CONNECT, SOCKS5 and redirection.
    pub expect: DenyCode,
    /// The code for absolute-form requests, where the same can be sent to a proxy.
    pub absolute: Option<DenyCode>,
}

impl Agree {
    /// The addresses that the resolver answers.
    pub const ANSWERS: &'static [&'static str] = &["11.22.33.45"];

    /// Returns the target as `HOST:PORT`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the code of the decision about a connection that comes in by `way`.
    pub fn decide(&self, way: Ingress) -> Result<DenyCode, Box<dyn std::error::Error>> {
        let policy = self.rules.policy()?;
        let attempt = Attempt { target: Target::parse(&self.authority())?, way, program: None };
        let mut addresses = Vec::new();
        for text in Self::ANSWERS {
            addresses.push(text.parse()?);
        }
        let permit = match check_name(&policy, &attempt, MonotonicMs(0)) {
            Ok(Next::Dial(permit)) => Ok(permit),
            Ok(Next::Resolve(query)) => check_addrs(&policy, query, &addresses, MonotonicMs(0)),
            Err(denial) => Err(denial),
        };
        let said = permit.and_then(|permit| self.said(&policy, &permit));
        Ok(said.map_or_else(|denial| denial.code, |()| DenyCode::Ok))
    }

    fn said(&self, policy: &Policy, permit: &Permit) -> Result<(), Denial> {
        let hello = match self.first_bytes {
            FirstBytes::Sni(name) => Hello::Sni(name.as_bytes()),
            FirstBytes::NoSni => Hello::NoSni,
            FirstBytes::Raw(_) if permit.expects_http() => return check_not_http(policy, permit),
            FirstBytes::Http(asks) if permit.expects_http() => {
                return asks.iter().try_for_each(|ask| asked(policy, permit, ask));
            }
            FirstBytes::Raw(_) | FirstBytes::Http(_) => Hello::NotTls,
        };
        check_sni(policy, permit, hello, MonotonicMs(0))
    }
}

/// Checks a request as far as the decision goes; other forms of a request target are the reader's to check.
fn asked(policy: &Policy, permit: &Permit, ask: &HttpQuestion) -> Result<(), Denial> {
    let hosts: Vec<&[u8]> = ask.hosts.iter().map(|host| host.as_bytes()).collect();
    check_inner_host(policy, permit.attempt(), permit.must_name(), Request::Http11, &hosts, MonotonicMs(0))?;
    check_method(policy, permit.target(), ask.method, ask.upgrade)
}

const WEB: Rules = Rules { allow: &["example.test:80,443,8080", "*.allowed.test:80"], ..DEFAULT };
const LAX: Rules = Rules { missing_sni: Some(MissingSni::Allow), ..WEB };
const LITERAL: Rules = Rules { allow_private: &["10.0.0.5:80,443"], ..WEB };
const OPEN_DENY: Rules = Rules { mode: NetMode::Unrestricted, deny: &["bad.test", "example.test:81"], ..OPEN };
const READ: Rules = Rules { methods: Methods::ReadOnly, ..WEB };
const READ_LAX: Rules = Rules { missing_sni: Some(MissingSni::Allow), ..READ };
const READ_OPEN: Rules = Rules { methods: Methods::ReadOnly, ..OPEN };

use DenyCode::{InvalidDestination as BAD, MethodNotAllowed as METHOD, NotInAllowlist as LIST, Ok as OK};
use DenyCode::{PortNotAllowed as PORT, SniMismatch as SNI};

const HELLO: &[u8] = b"SSH-2.0-x\r\n";
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const fn get(hosts: &'static [&'static str]) -> HttpQuestion {
    HttpQuestion { method: "GET", target: "/", hosts, upgrade: false }
}

const fn by(method: &'static str) -> HttpQuestion {
    HttpQuestion { method, ..get(&["example.test"]) }
}

const fn to(target: &'static str, hosts: &'static [&'static str]) -> HttpQuestion {
    HttpQuestion { target, ..get(hosts) }
}

const fn tls(rules: Rules, host: &'static str, first_bytes: FirstBytes, expect: DenyCode) -> Agree {
    Agree { id: "I03", rules, host, port: 443, first_bytes, expect, absolute: None }
}

const fn raw(rules: Rules, port: u16, first_bytes: &'static [u8], expect: DenyCode) -> Agree {
    Agree {
        id: "I02",
        rules,
        host: "example.test",
        port,
        first_bytes: FirstBytes::Raw(first_bytes),
        expect,
        absolute: None,
    }
}

/// Makes a case that begins like HTTP and must not be taken for HTTP.
const fn smuggled(first_bytes: &'static [u8]) -> Agree {
    Agree { id: "I08", ..raw(WEB, 80, first_bytes, BAD) }
}

/// Makes a case with the same outcome by every way.
const fn web(id: &'static str, rules: Rules, asks: &'static [HttpQuestion], expect: DenyCode) -> Agree {
    let first_bytes = FirstBytes::Http(asks);
    Agree { id, rules, host: "example.test", port: 80, first_bytes, expect, absolute: Some(expect) }
}

const fn absolute(case: Agree, absolute: Option<DenyCode>) -> Agree {
    Agree { absolute, ..case }
}

const fn at(host: &'static str, port: u16, case: Agree) -> Agree {
    Agree { host, port, ..case }
}

/// All cases of names that must agree.
pub const AGREE: &[Agree] = &[
    // I03: the TLS name.
    tls(DEFAULT, "example.test", FirstBytes::Sni("example.test"), OK),
    tls(DEFAULT, "example.test", FirstBytes::Sni("EXAMPLE.test"), OK),
    // The server gets the name as it was written.
    tls(DEFAULT, "example.test", FirstBytes::Sni("example.test."), SNI),
    tls(DEFAULT, "example.test", FirstBytes::Sni("\u{ff45}xample.test"), SNI),
    tls(DEFAULT, "example.test", FirstBytes::Sni("example\u{3002}test"), SNI),
    tls(DEFAULT, "example.test", FirstBytes::Sni("exam\u{ad}ple.test"), SNI),
    tls(DEFAULT, "example.test", FirstBytes::Sni("other.test"), SNI),
    tls(DEFAULT, "example.test", FirstBytes::Sni("a.allowed.test"), SNI),
    tls(DEFAULT, "example.test", FirstBytes::NoSni, SNI),
    tls(DEFAULT, "example.test", FirstBytes::Raw(HELLO), SNI),
    absolute(tls(DEFAULT, "example.test", FirstBytes::Http(&[get(&["example.test:443"])]), SNI), Some(SNI)),
    tls(LAX, "example.test", FirstBytes::NoSni, OK),
    tls(LAX, "example.test", FirstBytes::Raw(HELLO), OK),
    tls(LAX, "example.test", FirstBytes::Sni("other.test"), SNI),
    tls(LITERAL, "10.0.0.5", FirstBytes::NoSni, OK),
    tls(LITERAL, "10.0.0.5", FirstBytes::Sni("example.test"), SNI),
    tls(LITERAL, "10.0.0.5", FirstBytes::Raw(HELLO), SNI),
    absolute(tls(LITERAL, "10.0.0.5", FirstBytes::Http(&[get(&["10.0.0.5:443"])]), SNI), Some(SNI)),
    tls(OPEN_DENY, "good.test", FirstBytes::Sni("other.test"), OK),
    tls(OPEN_DENY, "good.test", FirstBytes::Sni("bad.test"), LIST),
    tls(OPEN_DENY, "11.22.33.45", FirstBytes::Sni("bad.test"), LIST),
    // I02: Host and the connection.
    web("I02", WEB, &[get(&["example.test"])], OK),
    web("I02", WEB, &[get(&["EXAMPLE.test.:80"])], OK),
    web("I02", WEB, &[get(&["other.test"])], BAD),
    web("I02", WEB, &[get(&["a.allowed.test"])], BAD),
    web("I02", WEB, &[get(&["example.test:81"])], BAD),
    web("I02", WEB, &[get(&["example.test", "example.test"])], BAD),
    web("I02", WEB, &[get(&["example.test", "other.test"])], BAD),
    web("I02", WEB, &[get(&["example.test, other.test"])], BAD),
    web("I02", WEB, &[get(&["other.test@example.test"])], BAD),
    web("I02", WEB, &[get(&[""])], BAD),
    web("I02", WEB, &[get(&[])], BAD),
    web("I02", LAX, &[get(&["other.test"])], BAD),
    web("I02", WEB, &[to("http://example.test/a", &["example.test"])], OK),
    web("I02", WEB, &[to("http://example.test/a", &["other.test"])], BAD),
    absolute(web("I02", WEB, &[to("http://a.allowed.test/", &["a.allowed.test"])], BAD), Some(OK)),
    absolute(web("I02", WEB, &[to("http://other.test/", &["other.test"])], BAD), Some(LIST)),
    absolute(web("I02", WEB, &[to("http://example.test:81/", &["example.test:81"])], BAD), Some(PORT)),
    // An opaque port: what is said there is the server's alone, while a request to the proxy is always read.
    absolute(at("example.test", 8080, web("I02", WEB, &[get(&["other.test"])], OK)), Some(BAD)),
    raw(WEB, 80, HELLO, BAD),
    raw(WEB, 80, HTTP2, BAD),
    raw(LAX, 80, HELLO, OK),
    raw(LAX, 80, HTTP2, OK),
    raw(WEB, 8080, HELLO, OK),
    at("10.0.0.5", 80, web("I02", LITERAL, &[get(&["10.0.0.5"])], OK)),
    at("10.0.0.5", 80, web("I02", LITERAL, &[get(&["example.test"])], BAD)),
    // In an open network a name may carry another one, unless that is denied. A request to the proxy names its host.
    absolute(at("good.test", 80, web("I02", OPEN_DENY, &[get(&["other.test"])], OK)), Some(BAD)),
    absolute(at("11.22.33.45", 80, web("I02", OPEN_DENY, &[get(&["other.test"])], OK)), Some(BAD)),
    absolute(at("good.test", 80, web("I02", OPEN_DENY, &[get(&["bad.test"])], LIST)), Some(BAD)),
    absolute(at("11.22.33.45", 80, web("I02", OPEN_DENY, &[get(&["BAD.test."])], LIST)), Some(BAD)),
    at("good.test", 80, web("I02", OPEN_DENY, &[get(&["good.test:81"])], BAD)),
    at("good.test", 80, web("I02", OPEN_DENY, &[get(&["other.test", "good.test"])], BAD)),
    // I04: each request of a kept connection.
    web("I04", WEB, &[get(&["example.test"]), get(&["example.test"])], OK),
    web("I04", WEB, &[get(&["example.test"]), get(&["other.test"])], BAD),
    web("I04", WEB, &[by("HEAD"), by("OPTIONS"), get(&["a.allowed.test"])], BAD),
    absolute(at("good.test", 80, web("I04", OPEN_DENY, &[get(&["good.test"]), get(&["bad.test"])], LIST)), Some(BAD)),
    // I08: what two programs could read in two ways.
    smuggled(
        b"POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    smuggled(b"POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"),
    smuggled(b"POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: +4\r\n\r\nabcd"),
    smuggled(b"POST / HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    smuggled(b"POST / HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    smuggled(b"GET / HTTP/1.1\r\nHost: example.test\r\nX: a\r\n folded\r\n\r\n"),
    smuggled(b"GET / HTTP/1.1\r\nHost: example.test\r\nX: a\rb\r\n\r\n"),
    smuggled(b"GET / HTTP/1.1\r\nHost: example.test\r\nX: a\0b\r\n\r\n"),
    smuggled(b"GET / HTTP/1.1\nHost: example.test\n\n"),
    smuggled(b"GET  / HTTP/1.1\r\nHost: example.test\r\n\r\n"),
    smuggled(b"GET / HTTP/1.2\r\nHost: example.test\r\n\r\n"),
    smuggled(
        b"GET / HTTP/1.1\r\nHost: example.test\r\nUpgrade: h2c\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ),
    smuggled(
        b"GET / HTTP/1.1\r\nHost: example.test\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAA\r\n\r\n",
    ),
    smuggled(b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"),
    // I05: reading only.
    web("I05", READ, &[by("GET"), by("HEAD"), by("OPTIONS")], OK),
    web("I05", READ, &[by("POST")], METHOD),
    web("I05", READ, &[by("GET"), by("DELETE")], METHOD),
    web("I05", READ, &[by("get")], METHOD),
    web("I05", READ, &[by("GETX")], METHOD),
    web("I05", READ, &[HttpQuestion { upgrade: true, ..by("GET") }], METHOD),
    web("I05", READ, &[get(&["other.test"])], BAD),
    web("I05", WEB, &[by("DELETE")], OK),
    absolute(web("I05", READ, &[to("http://other.test/", &["other.test"])], BAD), Some(LIST)),
    Agree { id: "I05", ..raw(READ, 80, HELLO, METHOD) },
    Agree { id: "I05", ..raw(READ_LAX, 80, HELLO, METHOD) },
    Agree { id: "I05", ..raw(READ_LAX, 80, HTTP2, METHOD) },
    Agree { id: "I05", ..tls(READ, "example.test", FirstBytes::Sni("example.test"), METHOD) },
    Agree { id: "I05", ..tls(READ_LAX, "example.test", FirstBytes::NoSni, METHOD) },
    Agree { id: "I05", ..tls(READ, "other.test", FirstBytes::Sni("other.test"), LIST) },
    Agree { id: "I05", ..raw(READ, 8080, HELLO, METHOD) },
    at("example.test", 8080, absolute(web("I05", READ, &[get(&["example.test:8080"])], METHOD), Some(OK))),
    Agree { id: "I05", ..tls(READ_OPEN, "11.22.33.45", FirstBytes::NoSni, METHOD) },
    at("11.22.33.45", 80, web("I05", READ_OPEN, &[get(&["11.22.33.45"])], OK)),
    at("11.22.33.45", 80, web("I05", READ_OPEN, &[HttpQuestion { method: "PUT", ..get(&["11.22.33.45"]) }], METHOD)),
];
