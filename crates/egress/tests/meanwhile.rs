//! Changes between two steps of one attempt: another policy during a look-up and during the recording, and an audit log
//! that takes nothing after the budget was charged.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{AuditError, Egress, Event, EventKind, Lookup, Resolved, Resolver, Sink};
use nexus_policy::net::{Budget, Name, Policy, PolicyInput};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use support::{Memory, World, echo, eventually, field, input, policy, server, tunnel};

/// Policy that is put in force once, when a step of the egress asks for it.
#[derive(Default)]
struct Swap {
    egress: OnceLock<Arc<Egress>>,
    next: Mutex<Option<Arc<Policy>>>,
}

impl Swap {
    fn now(&self) {
        // A step of an attempt that came before the egress was handed over changes nothing.
        let Some(egress) = self.egress.get() else { return };
        if let Some(next) = self.next.lock().unwrap().take() {
            egress.reload(next).unwrap();
        }
    }

    fn arm(&self, next: PolicyInput) {
        *self.next.lock().unwrap() = Some(policy(next));
    }

    fn is_armed(&self) -> bool {
        self.next.lock().unwrap().is_some()
    }
}

/// Resolver that gives every name one address, and puts the next policy in force meanwhile.
struct SwapInLookup(Arc<Swap>, IpAddr);

impl Resolver for SwapInLookup {
    fn lookup<'a>(&'a self, _name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            self.0.now();
            Ok(Resolved { addrs: vec![self.1], ..Resolved::default() })
        })
    }
}

/// Sink that records in memory, and puts the next policy in force while it records an allowance.
struct SwapInRecord(Arc<Swap>, Arc<Memory>);

impl Sink for SwapInRecord {
    fn record(&self, event: &Event) -> Result<(), AuditError> {
        if event.event == EventKind::Allow {
            self.0.now();
        }
        self.1.record(event)
    }
}

/// Egress that the steps above can reach, with its record.
struct Scene {
    swap: Arc<Swap>,
    http: SocketAddr,
    events: Arc<Memory>,
    egress: Arc<Egress>,
}

fn scene(first: PolicyInput, upstream: SocketAddr, in_lookup: bool) -> Scene {
    let (swap, events) = (Arc::new(Swap::default()), Arc::new(Memory::default()));
    let mut world = World::with(first, |config| {
        if in_lookup {
            config.audit = events.clone();
            config.resolver = Arc::new(SwapInLookup(swap.clone(), upstream.ip()));
        } else {
            config.audit = Arc::new(SwapInRecord(swap.clone(), events.clone()));
        }
    });
    world.resolver.set("*", &[upstream.ip()]);
    let egress = Arc::new(world.egress.take().unwrap());
    assert!(swap.egress.set(egress.clone()).is_ok());
    Scene { swap, http: world.http, events, egress }
}

/// Starts a server that counts its connections.
fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = server("127.0.0.1:0", move |stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        echo(stream);
    });
    (address, count)
}

#[test]
fn addresses_are_evaluated_by_the_policy_after_the_look_up() {
    let (upstream, connected) = counting();
    let one = format!("one.test:{}", upstream.port());
    let (private, public) = (format!("+{one}"), one.clone());
    let kinds = |scene: &Scene| scene.events.all().iter().map(|event| event.event).collect::<Vec<_>>();
    // The policy that arrives during the look-up closes the private address: nothing is ever recorded as allowed.
    let closing = scene(input(&[&private]), upstream, true);
    closing.swap.arm(PolicyInput { generation: 2, ..input(&[&public]) });
    let (code, head, _) = tunnel(closing.http, &one).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("PRIVATE_DESTINATION")));
    assert!(!closing.swap.is_armed());
    assert_eq!(kinds(&closing), [EventKind::Deny]);
    assert_eq!(connected.load(Ordering::SeqCst), 0);
    // The other way round it opens it.
    let opening = scene(input(&[&public]), upstream, true);
    opening.swap.arm(PolicyInput { generation: 2, ..input(&[&private]) });
    tunnel(opening.http, &one).unwrap();
    assert_eq!(kinds(&opening)[0], EventKind::Allow);
}

#[test]
fn a_connection_is_entered_under_the_policy_that_is_in_force_then() {
    let (upstream, connected) = counting();
    let one = format!("one.test:{}", upstream.port());
    let rule = format!("+{one}");
    let first = PolicyInput {
        budget: Budget { open_connections: Some(1), ..Budget::default() },
        ..input(&[&rule, "+two.test:1-65535"])
    };
    let scene = scene(first.clone(), upstream, false);
    scene.swap.arm(PolicyInput { generation: 2, budget: first.budget, ..input(&["+two.test:1-65535"]) });
    let (code, head, _) = tunnel(scene.http, &one).unwrap_err();
    assert!(!scene.swap.is_armed(), "the policy came between the decision and the entry");
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("NOT_IN_ALLOWLIST")));
    assert_eq!((connected.load(Ordering::SeqCst), scene.egress.summary().open), (0, 0));
    // What was refused there holds no place of the budget.
    tunnel(scene.http, &format!("two.test:{}", upstream.port())).unwrap();
}

#[test]
fn a_refusal_after_the_charge_gives_the_place_back() {
    let upstream = server("127.0.0.1:0", echo);
    let one = format!("one.test:{}", upstream.port());
    let budget = Budget { open_connections: Some(1), ..Budget::default() };
    let world = World::of(PolicyInput { budget, ..input(&[&format!("+{one}")]) });
    world.resolver.set("*", &[upstream.ip()]);
    world.events.fail(true);
    for _ in 0..3 {
        assert_eq!(tunnel(world.http, &one).unwrap_err().0, 500);
    }
    world.events.fail(false);
    let open = tunnel(world.http, &one).unwrap();
    let (code, head, _) = tunnel(world.http, &one).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (429, Some("LIMIT_EXCEEDED")), "there is one place");
    drop(open);
    eventually("the place of a connection that ended", || tunnel(world.http, &one).is_ok());
}
