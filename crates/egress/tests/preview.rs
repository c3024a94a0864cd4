//! A preview decides as a connection does: behind an upstream proxy, about denied names, and by each way in.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{
    Clock, Config, EventKind, Lookup, OwnAddresses, Preview, ResolveError, Resolved, Resolver, Unrecorded,
    UpstreamProxy, preview,
};
use nexus_model::capability::NetMode;
use nexus_policy::net::{Attempt, Denial, DenyCode, Ingress, Methods, Name, PolicyInput, Target};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use support::{World, input, policy, read_head, server, tunnel};

/// Source of own addresses with 11.22.33.44 alone.
struct OneAddress;

impl OwnAddresses for OneAddress {
    fn is_own(&self, to: SocketAddr) -> io::Result<bool> {
        Ok(to.ip() == IpAddr::from([11, 22, 33, 44]))
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Resolver with these answers, which is silent about all other names.
#[derive(Clone, Default)]
struct Answers(BTreeMap<&'static str, Vec<IpAddr>>);

impl Resolver for Answers {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        let answer = match self.0.get(name.as_str()) {
            Some(addrs) => Ok(Resolved { addrs: addrs.clone(), ..Resolved::default() }),
            None => Err(ResolveError::Silent { name: name.to_string(), why: "no answer in time".into() }),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn seen(config: Config, target: &str, way: Ingress) -> Preview {
    let attempt = Attempt { target: Target::parse(target).unwrap(), way, program: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(preview(config, &attempt)).unwrap()
}

fn config(rules: PolicyInput, resolver: impl Resolver + 'static) -> Config {
    let mut config = Config::new(policy(rules), Clock::start(), Arc::new(Unrecorded));
    config.resolver = Arc::new(resolver);
    config.own_addresses = Some(Arc::new(OneAddress));
    config
}

fn why(outcome: &Result<nexus_policy::net::Permit, Denial>) -> Option<(DenyCode, String)> {
    outcome.as_ref().err().map(|denial| (denial.code, denial.explanation.clone()))
}

#[test]
fn a_preview_behind_an_upstream_proxy_is_the_decision_of_a_connection() {
    let proxy = server("127.0.0.1:0", |mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    });
    let resolver = Answers(BTreeMap::from([
        ("proxy.test", vec![proxy.ip()]),
        ("alias.test", vec![proxy.ip()]),
        ("lo.test", vec![[127, 0, 0, 1].into()]),
        ("priv.test", vec![[10, 77, 0, 5].into()]),
        ("own.test", vec![[11, 22, 33, 44].into()]),
        ("denied.test", vec![[93, 184, 216, 35].into()]),
        ("public.test", vec![[93, 184, 216, 34].into()]),
        ("none.test", Vec::new()),
    ]));
    let port = proxy.port();
    let rules = [
        "-93.184.216.35".to_owned(),
        "+listed.test:1-65535".to_owned(),
        format!("+127.0.0.0/8:{port}"),
        format!("+alias.test:{port}"),
        "+none.test:6000".to_owned(),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let open = || PolicyInput { upstream_proxy: true, mode: Some(NetMode::Unrestricted), ..input(&rules) };
    let listed = ["lo.test:6000", "priv.test:6000", "*.w.test:6000", "silent.test:6000", "public.test:6000"];
    let list = || PolicyInput { upstream_proxy: true, ..input(&listed) };
    let upstream = || Some(UpstreamProxy::parse(&format!("http://proxy.test:{port}")).unwrap());
    let same = |rules: &dyn Fn() -> PolicyInput, targets: &[(String, bool)]| {
        let world = World::with(rules(), |config| {
            config.own_addresses = Some(Arc::new(OneAddress));
            config.resolver = Arc::new(resolver.clone());
            config.upstream_proxy = upstream();
        });
        for (target, passes) in targets {
            let mut config = config(rules(), resolver.clone());
            config.upstream_proxy = upstream();
            let told = why(&seen(config, target, Ingress::Connect).outcome);
            world.events.take();
            let ran = tunnel(world.http, target);
            let denied = world.events.all().into_iter().find(|event| event.event == EventKind::Deny);
            let denied = denied.map(|event| (event.code, event.explanation.unwrap()));
            assert_eq!((ran.is_ok(), &denied), (*passes, &told), "{target}");
            assert_eq!(told.is_none(), *passes, "{target}: {told:?}");
        }
    };
    let of = |hosts: &[&str], port: u16, passes| -> Vec<(String, bool)> {
        hosts.iter().map(|host| (format!("{host}:{port}"), passes)).collect()
    };
    let refused = ["localhost", "lo.test", "priv.test", "own.test", "denied.test", "silent.test", "11.22.33.44"];
    same(&open, &of(&refused, 6000, false));
    same(&open, &of(&["proxy.test", "alias.test", "127.0.0.1", "own.test"], port, false));
    same(&open, &of(&["public.test", "none.test", "93.184.216.34"], 6000, true));
    same(&list, &of(&["lo.test", "priv.test", "gone.w.test", "other.test"], 6000, false));
    // A name that a rule writes out goes to the proxy although no resolver here knows it.
    same(&list, &of(&["silent.test", "public.test"], 6000, true));
}

/// Resolver that never answers.
struct Silent;

impl Resolver for Silent {
    fn lookup<'a>(&'a self, _name: &'a Name) -> Lookup<'a> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn check_gives_a_name_without_an_answer_up() {
    let mut config = config(input(&["a.test"]), Silent);
    config.limits.resolve_time = Duration::from_millis(1);
    let told = why(&seen(config, "a.test:443", Ingress::Connect).outcome).unwrap();
    assert_eq!(told.1, "a.test cannot be resolved: no answer in time");
}

#[test]
fn a_preview_tells_a_tunnel_from_a_request_to_the_proxy() {
    let resolver = Answers(BTreeMap::from([
        ("a.test", vec![[93, 184, 216, 34].into()]),
        ("alias.test", vec![[93, 184, 216, 35].into()]),
        ("bad.test", vec![[93, 184, 216, 35].into()]),
    ]));
    let reading = || PolicyInput { methods: Methods::ReadOnly, ..input(&["a.test:8080", "a.test"]) };
    let open = || PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["-bad.test"]) };
    for (rules, target, tunnel, request) in [
        (&reading as &dyn Fn() -> PolicyInput, "a.test:8080", false, true),
        (&reading, "a.test:443", false, false),
        (&open, "alias.test:8080", false, true),
        (&open, "bad.test:8080", false, false),
        (&open, "a.test:8080", true, true),
    ] {
        for (way, passes) in [(Ingress::Connect, tunnel), (Ingress::HttpAbsolute, request)] {
            let told = seen(config(rules(), resolver.clone()), target, way).outcome;
            assert_eq!(told.is_ok(), passes, "{target} {way:?}: {told:?}");
        }
    }
}

#[test]
fn an_address_of_the_name_service_is_none_to_connect_to() {
    let rules = || input(&["+198.18.0.5:80"]);
    let told = why(&seen(config(rules(), Answers::default()), "198.18.0.5:80", Ingress::Connect).outcome).unwrap();
    let world = World::of(rules());
    let (_, _, body) = tunnel(world.http, "198.18.0.5:80").unwrap_err();
    assert!(String::from_utf8(body).unwrap().contains(&told.1), "{told:?}");
    assert!(told.1.contains("stands for no name any more"), "{told:?}");
}
