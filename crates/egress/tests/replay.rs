//! The record of a run, decided again from nothing except itself.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::rr::Name;
use nexus_egress::{Answer, Approver, Asked, AuditError, Event, EventKind, Sink};
use nexus_policy::net::{
    AnyRule, Attempt, Budget, Denial, Methods, MonotonicMs, Origin, PolicyInput, Replay, ReplayError, Replayed, Source,
    parse_allow, parse_range,
};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::{
    World, connect, enter, eventually, input, policy, read_all, read_head, response, server, status, tunnel,
};

/// Approver that allows `once.test`, for one connection, and denies everything else.
struct Once(String);

impl Approver for Once {
    fn ask<'a>(&'a self, attempt: &'a Attempt, _denial: &'a Denial) -> Asked<'a> {
        let allow = attempt.target.host.to_string() == "once.test";
        Box::pin(async move {
            if !allow {
                return Answer::Deny;
            }
            let source = Source { origin: Origin::Approval, text: self.0.clone(), file: None, line: None };
            Answer::Once(AnyRule::Name(parse_allow(&self.0, source).unwrap()))
        })
    }
}

/// Makes a run with decisions of every kind, under two policies; returns its record.
fn record() -> Vec<Value> {
    let web = server("127.0.0.1:0", |mut stream| {
        while !read_head(&mut stream).is_empty() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let port = web.port();
    let allow = format!("+web.test:{port}");
    let rules = PolicyInput {
        ask: true,
        expires: Some(MonotonicMs(3_600_000)),
        budget: Budget { connections: Some(100), ..Budget::default() },
        trusted_ranges: vec![parse_range("127.0.0.0/8").unwrap()],
        ..input(&[&allow, &format!("+127.0.0.1:{port}"), "public.test", "-no.test"])
    };
    let world =
        World::with(rules.clone(), |config| config.approver = Some(Arc::new(Once(format!("once.test:{port}")))));
    let local: IpAddr = web.ip();
    for name in ["web.test", "once.test"] {
        world.resolver.set(name, &[local]);
    }
    world.resolver.set("public.test", &["10.0.0.1".parse().unwrap()]);
    let at = |host: &str| format!("{host}:{port}");
    let mut kept = connect(world.http);
    for _ in 0..2 {
        write!(kept, "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", at("web.test")).unwrap();
        assert_eq!(response(&mut kept).0, 200);
    }
    let once = tunnel(world.http, &at("once.test")).unwrap();
    let open = enter::by_socks(&world, 3, b"web.test", port).unwrap();
    let literal = tunnel(world.http, &at("127.0.0.1")).unwrap();
    // Denied by a rule, unasked and unanswered, for an address, without an address, as a literal, as no host at all.
    for (host, code) in [
        (at("no.test"), "NOT_IN_ALLOWLIST"),
        (at("other.test"), "APPROVAL_REQUIRED"),
        ("public.test:443".into(), "PRIVATE_DESTINATION"),
        ("127.0.0.1:9".into(), "PRIVATE_DESTINATION"),
        ("a..b:443".into(), "INVALID_DESTINATION"),
    ] {
        assert_eq!(enter::by_connect(&world, &host).unwrap_err(), code, "{host}");
    }
    world.resolver.set("public.test", &[]);
    assert_eq!(enter::by_connect(&world, "public.test:443").unwrap_err(), "NAME_NOT_RESOLVED");
    for name in ["web.test", "no.test", "other.test", "localhost"] {
        enter::by_dns(&world, &Name::from_ascii(name).unwrap()).ok();
    }
    let denied = enter::by_transparent(&world, SocketAddr::from(([9, 9, 9, 9], 80)));
    assert_eq!(denied.ok().and_then(|mut stream| read_all(&mut stream)), None);
    let stricter = PolicyInput { generation: 2, methods: Methods::ReadOnly, ..rules };
    world.egress().reload(policy(stricter)).unwrap();
    write!(kept, "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", at("web.test")).unwrap();
    assert_eq!(status(&read_head(&mut kept)), 200);
    assert_eq!(enter::by_connect(&world, &at("web.test")).unwrap_err(), "METHOD_NOT_ALLOWED");
    drop((kept, once, open, literal));
    eventually("the ends", || {
        let ended = |kind| world.events.all().iter().filter(|event| event.event == kind).count();
        ended(EventKind::Close) + ended(EventKind::Cut) == 4
    });
    world.events.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn replay(record: &[Value]) -> Vec<Result<Replayed, ReplayError>> {
    let mut replay = Replay::default();
    record.iter().map(|line| replay.line(&line.to_string())).collect()
}

#[test]
fn every_decision_of_a_record_comes_out_the_same_again() {
    let record = record();
    let replayed = replay(&record);
    let mut same = 0;
    for (line, replayed) in record.iter().zip(&replayed) {
        let replayed = replayed.as_ref().unwrap_or_else(|error| panic!("{error}: {line}"));
        let event = line["event"].as_str().unwrap();
        if matches!(event, "allow" | "request") {
            assert_eq!(line["addresses"], json!(["127.0.0.1"]), "{line}");
        }
        let decision = matches!(event, "allow" | "deny" | "request" | "dns" | "cut");
        assert_eq!(line["policy"].is_string(), decision || event == "policy", "{line}");
        // What no policy decided: texts that are not host names, the own loopback, and why a connection was cut.
        let aside = matches!(line["host"].as_str().unwrap(), "" | "localhost") || event == "cut";
        let asked_later = event == "dns" && line["host"] == "other.test";
        let expected = match event {
            "policy" => Replayed::Policy,
            _ if !decision || aside || asked_later => Replayed::Other,
            _ => Replayed::Same,
        };
        assert_eq!(*replayed, expected, "{line}");
        same += usize::from(*replayed == Replayed::Same);
    }
    assert_eq!(same, 15, "{record:#?}");
    assert_eq!(record.iter().filter(|line| line["event"] == "policy").count(), 2);
    assert_eq!(record[0]["event"], "policy", "before the first decision");
    assert!(record.iter().any(|line| line["once"].is_object()));
}

#[test]
fn an_altered_record_does_not_come_out() {
    let record = record();
    let policy = record[0].clone();
    for line in record.iter().filter(|line| line["check"].is_string() && line["policy"] == policy["policy"]) {
        let tried = |changed: &Value| replay(&[policy.clone(), changed.clone()]).pop().unwrap();
        assert_eq!(tried(line).unwrap(), Replayed::Same, "{line}");
        let with = |key: &str, value: Value| {
            let mut changed = line.clone();
            changed[key] = value;
            changed
        };
        let other = if line["code"] == "OK" { "NOT_IN_ALLOWLIST" } else { "OK" };
        assert!(matches!(tried(&with("code", json!(other))), Err(ReplayError::Differs { .. })), "{line}");
        assert!(tried(&with("policy", record.last().unwrap()["policy"].clone())).is_err(), "another policy: {line}");
        tried(&with("at", Value::Null)).unwrap_err();
        tried(&with("at", json!(3_600_000))).unwrap_err();
        if line["code"] == "OK" {
            tried(&with("host", json!("no.test"))).unwrap_err();
            if line["event"] != "dns" {
                tried(&with("port", json!(1))).unwrap_err();
                tried(&with("addresses", json!(["169.254.169.254"]))).unwrap_err();
            }
            if line["event"] == "allow" {
                tried(&with("rule", Value::Null)).unwrap_err();
                tried(&with("addresses", json!([]))).unwrap_err();
            }
        } else if line["rule"].is_object() {
            tried(&with("rule", Value::Null)).unwrap_err();
        } else if line["resolved"] == json!(["10.0.0.1"]) {
            tried(&with("resolved", json!(["127.0.0.1"]))).unwrap_err();
        }
    }
    let mut changed = record.clone();
    changed[0]["in_force"]["methods"] = json!("read_only");
    assert!(matches!(replay(&changed)[0], Err(ReplayError::Hash { .. })), "a policy is what its hash says");
    assert!(matches!(replay(&record[1..])[0], Err(ReplayError::NoPolicy)));
}

/// Sink that takes everything except policies until it is set to take them.
#[derive(Default)]
struct NoPolicies {
    takes: AtomicBool,
    kinds: Mutex<Vec<EventKind>>,
}

impl Sink for NoPolicies {
    fn record(&self, event: &Event) -> Result<(), AuditError> {
        if event.event == EventKind::Policy && !self.takes.load(Ordering::SeqCst) {
            return Err(AuditError::Other("made to fail".into()));
        }
        self.kinds.lock().unwrap().push(event.event);
        Ok(())
    }
}

#[test]
fn a_decision_whose_policy_cannot_be_recorded_allows_nothing() {
    let web = server("127.0.0.1:0", |mut stream| drop(read_all(&mut stream)));
    let sink = Arc::new(NoPolicies::default());
    let rules = input(&[&format!("+web.test:{}", web.port())]);
    let world = World::with(rules, |config| config.audit = sink.clone());
    world.resolver.set("web.test", &[web.ip()]);
    let at = format!("web.test:{}", web.port());
    assert_eq!(tunnel(world.http, &at).unwrap_err().0, 500);
    enter::by_dns(&world, &Name::from_ascii("web.test").unwrap()).unwrap_err();
    sink.takes.store(true, Ordering::SeqCst);
    tunnel(world.http, &at).unwrap();
    let kinds = sink.kinds.lock().unwrap().clone();
    assert_eq!(kinds[..3], [EventKind::Deny, EventKind::Policy, EventKind::Allow], "{kinds:?}");
}

#[test]
fn a_policy_too_long_for_the_record_is_recorded_by_its_hash_alone() {
    let names: Vec<String> = (0..4000).map(|number| format!("a-name-that-is-rather-long-{number}.test")).collect();
    let rules: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::of(input(&rules));
    enter::by_connect(&world, "other.test:443").unwrap_err();
    let lines = world.events.lines();
    assert!(lines.iter().all(|line| line.len() < 2000) && lines[0].contains("blake3:"), "{}", lines[0]);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(replay(&lines)[1], Err(ReplayError::NoPolicy)));
}
