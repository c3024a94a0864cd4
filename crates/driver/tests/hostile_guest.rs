//! A guest in hostile hands gets nothing from a session but its end.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_channel::frames::{GuestFrame, TerminalSize, VERSION};
use nexus_driver::fake::{Fake, Script, expectations, held};
use nexus_driver::{Channel, Driver, Event, LEADER, MoreCommand, NotStarted, Sandbox, Session, Stdio};
use nexus_model::network::Network;
use nexus_model::plan::{PlanDraft, Writes};
use nexus_model::proof::ProofItem;
use nexus_model::{ExitStatus, Plan};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };

fn plan() -> Plan {
    Plan::new(PlanDraft::direct(Path::new("/srv/w"), ["wait"], Path::new("/nowhere"))).unwrap()
}

/// Returns a session, and the other end of its channel to send anything on. The exec 2 and the forward 5 are asked for,
/// the exec with a terminal when `terminal` is set.
fn session(terminal: bool) -> (Session, Channel) {
    session_of(terminal, &plan())
}

fn session_of(terminal: bool, plan: &Plan) -> (Session, Channel) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let fake = Fake::new(Script::Obey);
    let of_fake = fake.start(plan, &fake.prepare(plan).unwrap()).unwrap();
    let sandbox = Sandbox { channel: Channel::new(ours), ..of_fake };
    let null = File::open("/dev/null").unwrap();
    let stdio = if terminal { Stdio::Terminal(SIZE) } else { Stdio::Pipes([null.as_fd(); 3]) };
    let mut session = Session::start(&sandbox, plan, stdio).unwrap();
    let command = MoreCommand { argv: vec!["wait".into()], env: Vec::new(), cwd: "/".into() };
    session.exec(2, &command, stdio).unwrap();
    session.forward(5, 80).unwrap();
    // The session outlives the sandbox's value; only the channel counts here.
    sandbox.process.kill().unwrap();
    (session, Channel::new(theirs))
}

type Said = (GuestFrame, Vec<OwnedFd>);

/// The last event of what is said after `Hello`.
fn last(terminal: bool, said: Vec<Said>) -> Event {
    let (mut session, guest) = session(terminal);
    guest.send(&GuestFrame::Hello { version: VERSION }, &[]).unwrap();
    assert!(matches!(session.recv().unwrap(), Event::Up));
    let mut event = None;
    for (frame, descriptors) in said {
        assert!(!matches!(event, Some(Event::NotStarted(_))), "refused too early: {event:?}");
        guest.send(&frame, &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        event = Some(session.recv().unwrap());
    }
    event.unwrap()
}

fn ptmx() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/ptmx").unwrap().into()
}

fn socket(family: AddressFamily) -> OwnedFd {
    rustix::net::socket(family, SocketType::STREAM, None).unwrap()
}

fn started(exec: u32) -> Said {
    (GuestFrame::Started { exec, proof: held(&expectations()) }, Vec::new())
}

/// A start with a part of the proof, or with another one.
fn started_with(change: impl FnOnce(&mut Vec<ProofItem>)) -> Said {
    let mut proof = held(&expectations());
    change(&mut proof);
    (GuestFrame::Started { exec: LEADER, proof }, Vec::new())
}

fn ended(exec: u32) -> Said {
    (GuestFrame::Exited { exec, status: ExitStatus::Code(0), cpu_us: 0, max_rss_bytes: 0 }, Vec::new())
}

fn shown(exec: u32, descriptor: OwnedFd) -> Said {
    (GuestFrame::Terminal { exec }, vec![descriptor])
}

#[test]
fn frames_in_order_are_taken() {
    assert!(matches!(last(false, vec![started(LEADER), ended(LEADER)]), Event::Ended(_)));
    assert!(matches!(last(true, vec![shown(2, ptmx()), started(2), ended(2)]), Event::Command { exec: 2, .. }));
    let forwarded = (GuestFrame::Forwarded { forward: 5 }, vec![socket(AddressFamily::INET)]);
    assert!(matches!(last(false, vec![forwarded]), Event::Forwarded { forward: 5, .. }));
    let failed = (GuestFrame::ForwardFailed { forward: 5, errno: 111 }, Vec::new());
    assert!(matches!(last(false, vec![failed]), Event::ForwardFailed { forward: 5, errno: 111 }));
}

#[test]
fn what_does_not_belong_here_ends_the_session() {
    let null = || OwnedFd::from(File::open("/dev/null").unwrap());
    let inet = || socket(AddressFamily::INET);
    let forwarded = |forward, descriptors| (GuestFrame::Forwarded { forward }, descriptors);
    let cases: Vec<(&str, bool, Vec<Said>)> = vec![
        ("a terminal that nobody asked for", false, vec![shown(LEADER, ptmx())]),
        ("a terminal that is none", true, vec![shown(LEADER, null())]),
        ("a terminal that is missing", true, vec![(GuestFrame::Terminal { exec: LEADER }, Vec::new())]),
        ("two descriptors", true, vec![(GuestFrame::Terminal { exec: LEADER }, vec![ptmx(), ptmx()])]),
        ("two terminals", true, vec![shown(LEADER, ptmx()), shown(LEADER, ptmx())]),
        ("a start without its terminal", true, vec![started(LEADER)]),
        ("a start without a proof", false, vec![started_with(Vec::clear)]),
        ("a start with a part of the proof", false, vec![started_with(|proof| proof.truncate(1))]),
        (
            "a start with another check in the place of one",
            false,
            vec![started_with(|proof| proof[0] = proof[1].clone())],
        ),
        (
            "a start that expected what it saw",
            false,
            vec![started_with(|proof| (proof[0].expected, proof[0].seen) = ("ok".to_owned(), "ok".to_owned()))],
        ),
        ("a descriptor with a start", false, vec![(started(LEADER).0, vec![null()])]),
        ("two starts", false, vec![started(2), started(2)]),
        ("an end before the start", false, vec![ended(2)]),
        ("two ends", false, vec![started(2), ended(2), ended(2)]),
        ("a command that nobody asked for", false, vec![started(3)]),
        (
            "a failure after the start",
            false,
            vec![started(2), (GuestFrame::ProofFailed { exec: 2, proof: Vec::new() }, Vec::new())],
        ),
        ("a forward that nobody asked for", false, vec![forwarded(6, vec![inet()])]),
        ("a forward answered twice", false, vec![forwarded(5, vec![inet()]), forwarded(5, vec![inet()])]),
        ("a forward to a local socket", false, vec![forwarded(5, vec![socket(AddressFamily::UNIX)])]),
        ("a forward to a file", false, vec![forwarded(5, vec![null()])]),
        ("a forward to nothing", false, vec![forwarded(5, Vec::new())]),
        ("a second greeting", false, vec![(GuestFrame::Hello { version: VERSION }, Vec::new())]),
        ("the end of a time limit that nobody set", false, vec![(GuestFrame::OutOfTime, Vec::new())]),
        ("a layer of a sandbox that stands", false, vec![(GuestFrame::Layer, vec![null()])]),
    ];
    for (what, terminal, said) in cases {
        let event = last(terminal, said);
        assert!(matches!(event, Event::NotStarted(NotStarted::Protocol(_))), "{what}: {event:?}");
    }
}

#[test]
fn the_end_of_a_time_limit_is_reported_once_where_there_is_one() {
    let (mut session, guest) = session(false);
    session.end_within(Duration::from_secs(1), Duration::ZERO).unwrap();
    for _ in 0..2 {
        say(&guest, &GuestFrame::OutOfTime, &[]);
    }
    assert!(matches!(session.recv().unwrap(), Event::OutOfTime));
    assert!(matches!(session.recv().unwrap(), Event::NotStarted(NotStarted::Protocol(_))));
}

/// A `/proc` of a mount of its own, where this process may make one.
fn other_proc() -> Option<OwnedFd> {
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
    let made = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC);
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let made = made.unwrap();
    fsconfig_create(&made).unwrap();
    Some(fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap())
}

/// Two TCP listeners, the name service, and two more.
fn listeners() -> Vec<OwnedFd> {
    let tcp = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    vec![tcp(), tcp(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(), tcp(), tcp()]
}

fn say(guest: &Channel, frame: &GuestFrame, descriptors: &[OwnedFd]) {
    guest.send(frame, &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
}

#[test]
fn listeners_and_a_layer_come_when_the_plan_asks_for_them_and_once() {
    let null = || vec![OwnedFd::from(File::open("/dev/null").unwrap())];
    let asking = || {
        let mut draft = PlanDraft::direct(Path::new("/srv/w"), ["wait"], Path::new("/nowhere"));
        draft.network = Network::Egress;
        draft.workspace.writes = Writes::MemoryLayer { bytes: 1 << 20 };
        Plan::new(draft).unwrap()
    };
    let up = GuestFrame::Hello { version: VERSION };
    let refused = |event: Event| assert!(matches!(event, Event::NotStarted(NotStarted::Protocol(_))), "{event:?}");
    for (frame, descriptors) in [(GuestFrame::Listeners, listeners()), (GuestFrame::Layer, null())] {
        let (mut session, guest) = session(false);
        say(&guest, &frame, &descriptors);
        refused(session.recv().unwrap());
    }
    let (mut session, guest) = session_of(false, &asking());
    say(&guest, &GuestFrame::Listeners, &listeners());
    assert!(matches!(session.recv().unwrap(), Event::Listeners(_)));
    say(&guest, &GuestFrame::Layer, &null());
    assert!(matches!(session.recv().unwrap(), Event::Layer(_)));
    say(&guest, &up, &[]);
    assert!(matches!(session.recv().unwrap(), Event::Up));
    say(&guest, &GuestFrame::Listeners, &listeners());
    refused(session.recv().unwrap());
    let (mut session, guest) = session_of(false, &asking());
    say(&guest, &GuestFrame::Listeners, &listeners());
    session.recv().unwrap();
    say(&guest, &GuestFrame::Listeners, &listeners());
    refused(session.recv().unwrap());
    // Where the host is to know the processes, it takes a /proc for them and nothing else, least of all its own.
    let by_program = || {
        let mut draft = PlanDraft::direct(Path::new("/srv/w"), ["wait"], Path::new("/nowhere"));
        draft.network = Network::EgressByProgram;
        Plan::new(draft).unwrap()
    };
    for first in ["/proc", "/proc/self", "/tmp", "/proc/self/net/tcp", "/dev/null"] {
        let (mut session, guest) = session_of(false, &by_program());
        let first = OwnedFd::from(File::open(first).unwrap());
        say(&guest, &GuestFrame::Listeners, &std::iter::once(first).chain(listeners()).collect::<Vec<_>>());
        refused(session.recv().unwrap());
    }
    let (mut session, guest) = session_of(false, &by_program());
    say(&guest, &GuestFrame::Listeners, &listeners());
    refused(session.recv().unwrap());
    // A /proc of another mount, and a socket that asks about sockets.
    let netlink = |protocol| {
        let kind = rustix::net::SocketType::DGRAM;
        rustix::net::socket(rustix::net::AddressFamily::NETLINK, kind, protocol).unwrap()
    };
    for (sockets, taken) in [
        (netlink(Some(rustix::net::netlink::SOCK_DIAG)), true),
        (netlink(None), false),
        (OwnedFd::from(File::open("/dev/null").unwrap()), false),
    ] {
        let Some(proc) = other_proc() else { break };
        let (mut session, guest) = session_of(false, &by_program());
        let all: Vec<OwnedFd> = [proc, sockets].into_iter().chain(listeners()).collect();
        say(&guest, &GuestFrame::Listeners, &all);
        let heard = session.recv().unwrap();
        assert_eq!(matches!(&heard, Event::Listeners(all) if all.processes.is_some()), taken, "{heard:?}");
    }
    // A network whose listeners no process holds would be unwatched.
    let (mut session, guest) = session_of(false, &asking());
    say(&guest, &up, &[]);
    refused(session.recv().unwrap());
}

#[test]
fn nothing_is_believed_before_the_greeting() {
    for (frame, descriptors) in [started(LEADER), started(2), ended(LEADER), shown(LEADER, ptmx())] {
        let (mut session, guest) = session(true);
        guest.send(&frame, &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        let event = session.recv().unwrap();
        assert!(matches!(event, Event::NotStarted(NotStarted::Protocol(_))), "{event:?}");
    }
}

#[test]
fn a_guest_that_stops_in_the_middle_of_a_frame_stops_no_other() {
    let (mut session, guest) = session(false);
    for piece in [&[9][..], &[0, 0], &[0], &[2, 2]] {
        rustix::io::write(&guest, piece).unwrap();
        assert!(session.hear_ready().unwrap().is_none());
    }
}

#[test]
fn a_socket_for_names_comes_once_and_only_without_an_egress() {
    let datagram = || vec![OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap())];
    let refused = |event: Event| assert!(matches!(event, Event::NotStarted(NotStarted::Protocol(_))), "{event:?}");
    let (mut first, guest) = session(false);
    say(&guest, &GuestFrame::Names, &datagram());
    assert!(matches!(first.recv().unwrap(), Event::Names(_)));
    say(&guest, &GuestFrame::Names, &datagram());
    refused(first.recv().unwrap());
    let stream = || vec![OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap())];
    let file = || vec![OwnedFd::from(File::open("/dev/null").unwrap())];
    for other in [stream(), file(), Vec::new()] {
        let (mut session, guest) = session(false);
        say(&guest, &GuestFrame::Names, &other);
        refused(session.recv().unwrap());
    }
    let mut draft = PlanDraft::direct(Path::new("/srv/w"), ["wait"], Path::new("/nowhere"));
    draft.network = Network::Egress;
    let (mut with_egress, guest) = session_of(false, &Plan::new(draft).unwrap());
    say(&guest, &GuestFrame::Names, &datagram());
    refused(with_egress.recv().unwrap());
}
