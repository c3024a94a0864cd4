//! The resolver of this host, with a real name server behind `/etc/resolv.conf`.
//!
//! Each test is run again in mount and network namespaces of its own: there `/etc/resolv.conf` and `/etc/hosts` are the
//! test's, the name server is on loopback, and every address is local.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

#[path = "system/server.rs"]
mod name_server;

use name_server::{Asked, NameServer};
use nexus_egress::{EventKind, Limits, ResolveError, Resolved, Resolver, System};
use nexus_policy::net::{DenyCode, Target};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::process::resident_kib;
use support::{World, again, echo, eventually, field, input, server, tunnel};

/// Configuration of a patient host: its time-out is longer than any of these tests may take.
const PATIENT: &str = "nameserver 127.0.0.1\nsearch corp.test\noptions ndots:3 timeout:60 attempts:2\n";
const BRIEF: &str = "nameserver 127.0.0.1\nsearch corp.test\noptions ndots:3 timeout:1 attempts:1\n";
/// Hosts file with a comment in Latin-1, which is not UTF-8.
const HOSTS: &[u8] = b"127.0.0.1 localhost\n# caf\xe9\n10.9.8.7 pinned.test\n93.184.216.50 both.test.pinned.test\n\
    10.9.8.8 Two.Test other.test # and.test\nfd00::8 two.test\nfd00::9 quiet.test\n";

/// Works like [`support::outside_of_netns`], with these files in `/etc`.
fn outside(resolv: &str) -> bool {
    if again::is_inner() {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    for (file, content) in [("resolv.conf", resolv.as_bytes()), ("hosts", HOSTS)] {
        std::fs::write(directory.path().join(file), content).unwrap();
    }
    let setup = format!(
        "mount --bind \"$0/resolv.conf\" /etc/resolv.conf && mount --bind \"$0/hosts\" /etc/hosts && {} && exec \"$@\"",
        again::ALL_LOCAL
    );
    again::passes_again(Command::new("unshare").args(["-rnm", "sh", "-c", &setup]).arg(directory.path()));
    true
}

/// Works like [`outside`] with an `/etc` that holds `resolv.conf` alone and that the test may change.
fn outside_with_own_etc() -> bool {
    if again::is_inner() {
        return false;
    }
    let setup = format!(
        "mount -t tmpfs none /etc && printf %s \"$0\" > /etc/resolv.conf && {} && exec \"$@\"",
        again::ALL_LOCAL
    );
    again::passes_again(Command::new("unshare").args(["-rnm", "sh", "-c", &setup, BRIEF]));
    true
}

/// Resolver that several tasks ask in turn, as an egress does.
struct Host {
    system: System,
    runtime: tokio::runtime::Runtime,
}

impl Host {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { system: System::default(), runtime }
    }

    fn ask(&self, name: &str) -> Result<Resolved, ResolveError> {
        let target = Target::parse(&format!("{name}:443")).unwrap();
        self.runtime.block_on(self.system.lookup(target.host.name().unwrap()))
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        let mut found: Vec<String> = self.ask(name).unwrap().addrs.iter().map(IpAddr::to_string).collect();
        found.sort_unstable();
        found
    }
}

fn asked(name: &str, kind: &str, tcp: bool) -> Asked {
    Asked { name: format!("{name}."), kind: kind.into(), tcp }
}

#[test]
fn an_inner_run_without_its_test_is_not_believed() {
    let again = |name: &str| {
        let run = || again::passes_again(&mut Command::new("env"));
        std::thread::Builder::new().name(name.to_owned()).spawn(run).unwrap().join()
    };
    again("no_test_has_this_name").unwrap_err();
    // It runs, and notices that it is in the network namespace of the outer run.
    again("no_search_domain_is_ever_appended").unwrap_err();
}

#[test]
fn exactly_one_test_must_have_passed() {
    let result = |passed, failed, ignored| {
        let word = if failed == 0 { "ok" } else { "FAILED" };
        format!(
            "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 9 filtered out\n"
        )
    };
    assert!(again::one_passed(&format!("running 1 test\n{}", result(1, 0, 0))));
    for wrong in [(0, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1)] {
        assert!(!again::one_passed(&result(wrong.0, wrong.1, wrong.2)), "{wrong:?}");
    }
    assert!(!again::one_passed(""));
    assert!(!again::one_passed(&result(1, 0, 0).repeat(2)));
}

#[test]
fn both_families_are_asked_for_and_an_answer_is_kept_for_the_shorter_ttl() {
    if outside(BRIEF) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    assert_eq!(host.addresses("both.test"), ["2606:2800:220::10", "93.184.216.10"]);
    assert_eq!(names.take(), [asked("both.test", "A", false), asked("both.test", "AAAA", false)]);
    // The addresses of the two have 300 s and 30 s.
    let ttl = host.ask("both.test").unwrap().ttl_s.unwrap();
    assert!((1..=30).contains(&ttl), "{ttl}");
    assert_eq!(names.take(), [], "it is known already");
    for (name, address) in [("v4.test", "93.184.216.10"), ("v6.test", "2606:2800:220::10")] {
        assert_eq!(host.addresses(name), [address]);
        assert_eq!(names.take(), [asked(name, "A", false), asked(name, "AAAA", false)]);
    }
    // One second later it is another question.
    host.ask("second.test").unwrap();
    names.take();
    eventually("the end of one second", || {
        host.ask("second.test").unwrap();
        names.take().contains(&asked("second.test", "A", false))
    });
}

#[test]
fn no_search_domain_is_ever_appended() {
    if outside(BRIEF) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    // With the domain appended each of them exists.
    for name in ["intranet", "gone.test", "a.gone.test"] {
        assert_eq!(host.ask(name), Ok(Resolved::default()), "{name}");
        assert_eq!(names.take(), [asked(name, "A", false), asked(name, "AAAA", false)]);
    }
    assert_eq!(host.addresses("intranet.corp.test"), ["93.184.216.66"]);
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    if outside(BRIEF) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    assert_eq!(host.addresses("big.test").len(), 60);
    assert!(names.take().contains(&asked("big.test", "A", true)));
    // What did not fit into the datagram counts too: the last of these addresses is private.
    let world = World::with(input(&["hidden.test"]), |config| config.resolver = Arc::new(System::default()));
    let (code, head, _) = tunnel(world.http, "hidden.test:443").unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("PRIVATE_DESTINATION")));
}

#[test]
fn a_name_without_an_answer_is_refused_within_a_bounded_time() {
    if outside(BRIEF) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    let started = Instant::now();
    assert_eq!(host.ask("gone.test"), Ok(Resolved::default()));
    for name in ["fails.test", "refused.test", "garbage.test"] {
        let error = host.ask(name).unwrap_err();
        assert!(matches!(&error, ResolveError::Failed { name: about, .. } if about == name), "{error:?}");
    }
    let error = host.ask("silent.test").unwrap_err();
    assert!(matches!(&error, ResolveError::Silent { name: about, .. } if about == "silent.test"), "{error:?}");
    assert!(started.elapsed() < support::TIMEOUT, "{:?}", started.elapsed());
    assert!(names.take().contains(&asked("silent.test", "AAAA", false)));
    // One family answers, the other does not: what is known is all that can be dialled.
    assert_eq!(host.addresses("half.test"), ["93.184.216.10"]);
    let partial = host.ask("half.test").unwrap().partial;
    assert!(matches!(partial, Some(ResolveError::Silent { .. })), "{partial:?}");
}

#[test]
fn a_host_without_descriptors_is_no_name_server_that_fails() {
    if outside(BRIEF) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    assert_eq!(host.addresses("v4.test"), ["93.184.216.10"]);
    names.take();
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let none = rustix::process::Rlimit { current: Some(3), ..before };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
    let error = host.ask("both.test").unwrap_err();
    rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
    assert!(matches!(&error, ResolveError::Local { name, .. } if name == "both.test"), "{error:?}");
    assert_eq!(names.take(), []);
    assert_eq!(host.addresses("both.test").len(), 2);
}

#[test]
fn an_address_without_a_name_server_is_no_error_of_this_host() {
    if outside(BRIEF) {
        return;
    }
    let error = Host::new().ask("both.test").unwrap_err();
    assert!(matches!(&error, ResolveError::Failed { .. } | ResolveError::Silent { .. }), "{error:?}");
    println!("{error:?}");
}

#[test]
fn a_family_that_is_never_answered_holds_the_other_up_briefly() {
    if outside(PATIENT) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    for name in ["half.test", "six-half.test"] {
        let started = Instant::now();
        let address = if name == "half.test" { "93.184.216.10" } else { "2606:2800:220::10" };
        assert_eq!(host.addresses(name), [address]);
        assert!(started.elapsed() < Duration::from_secs(5), "{name}: {:?}", started.elapsed());
    }
    assert!(names.take().contains(&asked("half.test", "AAAA", false)), "both are asked for");
    // As long as the other family's answer holds, it is not asked for again.
    let started = Instant::now();
    let again = host.ask("half.test").unwrap();
    assert!(matches!(again.partial, Some(ResolveError::Silent { .. })), "{again:?}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(names.take(), []);
    let world = World::with(input(&["half.test"]), |config| config.resolver = Arc::new(System::default()));
    let (code, head, _) = tunnel(world.http, "half.test:443").unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("OTHER")), "it is dialled, and nobody listens there");
}

#[test]
fn a_flood_of_large_answers_holds_little_memory() {
    if outside(BRIEF) {
        return;
    }
    let _names = NameServer::start();
    let host = Host::new();
    let ask = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            assert_eq!(host.addresses(&format!("n{number}.flood.test")), ["10.0.0.5", "fd00::5"]);
        }
        resident_kib()
    };
    // The first ones grow the heap of the name server, which is in this process too.
    let before = ask(0..20);
    let after = ask(20..120);
    println!("{before} KiB, then {after} KiB");
    // Each of the 200 answers takes more than 0.5 MiB where it is kept.
    assert!(after < before + 32 * 1024, "{before} KiB, then {after} KiB");
}

#[test]
fn a_name_with_too_many_addresses_is_refused() {
    if outside(BRIEF) {
        return;
    }
    let _names = NameServer::start();
    let port = server("0.0.0.0:0", echo).port();
    let rules = ["full.test", "many.test", "wide.test"].map(|name| format!("{name}:{port}"));
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let world = World::with(input(&rules), |config| config.resolver = Arc::new(System::default()));
    // Also where the other family has one alone.
    for name in ["many.test", "wide.test"] {
        let (code, head, body) = tunnel(world.http, &format!("{name}:{port}")).unwrap_err();
        let body = String::from_utf8(body).unwrap();
        assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("NAME_NOT_RESOLVED")), "{name}: {body}");
        assert!(body.contains("more than 64 addresses of one family"), "{body}");
    }
    assert!(world.events.lines().iter().skip(1).all(|line| line.len() < 1024), "{:?}", world.events.lines());
    tunnel(world.http, &format!("full.test:{port}")).unwrap();
    let events = world.events.all();
    let allowed = events.iter().find(|event| event.event == EventKind::Allow).unwrap();
    assert_eq!(allowed.addresses.len(), 64);
}

/// A machine that changes networks changes these files.
#[test]
fn the_files_are_read_again_when_they_change() {
    if outside("") {
        return;
    }
    let _names = NameServer::start();
    let host = Host::new();
    let write = |file: &str, text: &str| std::fs::write(file, text).unwrap();
    assert!(matches!(host.ask("v4.test"), Err(ResolveError::Configuration { .. })));
    // An error is not kept.
    write("/etc/resolv.conf", BRIEF);
    assert_eq!(host.addresses("v4.test"), ["93.184.216.10"]);
    write("/etc/resolv.conf", "nameserver 127.0.0.9\noptions timeout:1 attempts:1\n");
    eventually("the server that is away", || host.ask("v6.test").is_err());
    write("/etc/resolv.conf", BRIEF);
    eventually("the server that is there", || host.ask("v6.test").is_ok());
    assert_eq!(host.ask("later.test"), Ok(Resolved::default()));
    write("/etc/hosts", "10.9.8.9 later.test\n");
    eventually("the new name", || host.addresses("later.test") == ["10.9.8.9"]);
    std::fs::File::create("/etc/hosts").unwrap().set_len(33 << 20).unwrap();
    eventually("a file that is too large", || {
        host.ask("v4.test").is_err_and(|error| error.to_string().contains("more than"))
    });
}

#[test]
fn the_egress_waits_for_no_name_server_longer_than_its_limit() {
    if outside(PATIENT) {
        return;
    }
    let names = NameServer::start();
    let world = World::with(input(&["*.example.test", "silent.test", "gone.test", "fails.test"]), |config| {
        config.resolver = Arc::new(System::default());
        config.limits = Limits { resolve_time: Duration::from_secs(1), ..Limits::default() };
    });
    for name in ["gone.test", "fails.test", "silent.test"] {
        let started = Instant::now();
        let (code, head, body) = tunnel(world.http, &format!("{name}:443")).unwrap_err();
        let body = String::from_utf8(body).unwrap();
        assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("NAME_NOT_RESOLVED")), "{name}: {body}");
        assert!(body.contains(name), "{body}");
        assert!(started.elapsed() < Duration::from_secs(10), "{name}: {:?}", started.elapsed());
    }
    names.take();
    let (code, _, _) = tunnel(world.http, "denied.test:443").unwrap_err();
    assert_eq!(code, 403);
    assert_eq!(names.take(), [], "a denied name is never asked about");
    let codes: Vec<DenyCode> = world.events.take().iter().map(|event| event.code).collect();
    assert_eq!(codes[..3], [DenyCode::NameNotResolved; 3]);
}

#[test]
fn a_private_address_behind_an_alias_or_beside_a_public_one_is_never_dialled() {
    if outside(BRIEF) {
        return;
    }
    let _names = NameServer::start();
    let open = server("0.0.0.0:0", echo);
    let reached = TcpListener::bind("0.0.0.0:443").unwrap();
    reached.set_nonblocking(true).unwrap();
    let port = open.port();
    let rules = ["alias.test", "far.test", "mixed.test", "six.test", "mapped.test", "pinned.test", "loop.test"];
    let also = [format!("v4.test:{port}"), format!("good.test:{port}")];
    let rules: Vec<&str> = rules.into_iter().chain(also.iter().map(String::as_str)).collect();
    let world = World::with(input(&rules), |config| config.resolver = Arc::new(System::default()));
    // The address comes in the same answer, by a second question, as one of several, in the other family, in another
    // form, or from the hosts file.
    for name in ["alias.test", "far.test", "mixed.test", "six.test", "mapped.test", "pinned.test"] {
        let (code, head, body) = tunnel(world.http, &format!("{name}:443")).unwrap_err();
        let body = String::from_utf8(body).unwrap();
        assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("PRIVATE_DESTINATION")), "{name}: {body}");
    }
    // An alias of itself leads nowhere.
    let (code, head, _) = tunnel(world.http, "loop.test:443").unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("NAME_NOT_RESOLVED")));
    assert!(reached.accept().is_err(), "nobody was dialled");
    assert!(world.events.take().iter().all(|event| event.event == EventKind::Deny));
    // The harmless twins: an address, and an alias of one, that are public.
    for name in ["v4.test", "good.test"] {
        tunnel(world.http, &format!("{name}:{port}")).unwrap();
        let events = world.events.all();
        let allowed = events.iter().find(|event| event.event == EventKind::Allow && event.host == name).unwrap();
        assert_eq!(allowed.addresses, ["93.184.216.10".parse::<IpAddr>().unwrap()], "{name}");
    }
}

#[test]
fn a_name_of_the_hosts_file_has_what_stands_there_and_no_server_is_asked_about_it() {
    if outside(PATIENT) {
        return;
    }
    let names = NameServer::start();
    let host = Host::new();
    // The server would add something, or never answer.
    for (name, addresses) in [
        ("pinned.test", &["10.9.8.7"][..]),
        ("two.test", &["10.9.8.8", "fd00::8"]),
        ("other.test", &["10.9.8.8"]),
        ("quiet.test", &["fd00::9"]),
        ("localhost", &["127.0.0.1"]),
    ] {
        assert_eq!(host.addresses(name), addresses, "{name}");
    }
    assert_eq!(names.take(), []);
    assert_eq!(host.addresses("both.test"), ["2606:2800:220::10", "93.184.216.10"], "only the whole name counts");
    assert_eq!(host.ask("and.test"), Ok(Resolved::default()));
}

#[test]
fn a_hosts_file_that_cannot_be_read_refuses_every_name() {
    if outside_with_own_etc() {
        return;
    }
    let names = NameServer::start();
    let hosts = Path::new("/etc/hosts");
    let refused = |what: &str| {
        let error = Host::new().ask("v4.test").unwrap_err();
        let is_told = matches!(&error, ResolveError::Configuration { why } if why.contains("/etc/hosts"));
        assert!(is_told, "{what}: {error:?}");
        assert_eq!(names.take(), [], "{what}: what the operator pinned could stand in there");
    };
    std::fs::create_dir(hosts).unwrap();
    refused("a directory");
    std::fs::remove_dir(hosts).unwrap();
    std::os::unix::fs::symlink("hosts", hosts).unwrap();
    refused("a link to itself");
    std::fs::remove_file(hosts).unwrap();
    // A machine without such a file has nothing pinned.
    assert_eq!(Host::new().addresses("v4.test"), ["93.184.216.10"]);
    std::fs::write(hosts, "10.9.8.7 v4.test\n").unwrap();
    assert_eq!(Host::new().addresses("v4.test"), ["10.9.8.7"]);
}

#[test]
fn a_look_up_takes_no_more_sockets_than_are_kept_for_it() {
    if outside("nameserver 127.0.0.1\nnameserver 127.0.0.2\nnameserver 127.0.0.3\noptions timeout:1 attempts:2\n") {
        return;
    }
    // They take the questions and say nothing.
    let _silent: Vec<_> =
        (1..=3).map(|last| std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], 53))).unwrap()).collect();
    let before = support::process::open_descriptors();
    let asking = std::thread::spawn(|| Host::new().ask("silent.test"));
    let mut most = 0;
    while !asking.is_finished() {
        most = most.max(support::process::open_descriptors().saturating_sub(before));
    }
    asking.join().unwrap().unwrap_err();
    println!("{most} descriptors");
    // Three are those of the runtime, and one may be the file that is read.
    assert!((4..=12 + 5).contains(&most), "{most}");
}
