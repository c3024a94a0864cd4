//! The network that a sandbox with an egress has: every connection out ends at a listener that the host holds.
//!
//! Without the test harness, because a launcher must have one thread. Runs as this user and, as root, again as an
//! ordinary one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../tests/support/free_user.rs"]
mod free_user;

use nexus_driver::{Driver, Event, Listeners, Session, Stdio};
use nexus_driver_namespace::Namespace;
use nexus_model::network::Network;
use nexus_model::plan::PlanDraft;
use nexus_model::{ExitStatus, Limits, Plan};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::net::sockopt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

/// Script that runs inside; its exit code is the number of failed checks.
const INSIDE: &str = include_str!("network/inside.py");

fn plan(workspace: &Path) -> Plan {
    let words = ["/usr/bin/python3", "-c", INSIDE];
    let mut draft = PlanDraft::direct(workspace, words, Path::new("/proc/self/task/no-such"));
    draft.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    draft.network = Network::Egress;
    draft.limits = Limits::defaults(16 << 20);
    Plan::new(draft).unwrap()
}

fn blocking(fd: OwnedFd) -> OwnedFd {
    rustix::fs::fcntl_setfl(&fd, OFlags::empty()).unwrap();
    fd
}

/// Answers each connection with where it was meant to go.
fn tell_destinations(listener: &TcpListener, connections: usize) {
    for _ in 0..connections {
        let (mut stream, _) = listener.accept().unwrap();
        let destination: SocketAddr = if listener.local_addr().unwrap().is_ipv4() {
            sockopt::ip_original_dst(&stream).unwrap().into()
        } else {
            sockopt::ipv6_original_dst(&stream).unwrap().into()
        };
        stream.write_all(destination.to_string().as_bytes()).unwrap();
    }
}

fn greet(listener: &TcpListener, text: &str) {
    let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
    stream.write_all(text.as_bytes()).unwrap();
}

/// Serves what the script asks for, in its order, and then lets go of everything.
fn serve(listeners: Listeners) {
    let tcp = |fd| TcpListener::from(blocking(fd));
    let transparent_ipv6 = listeners.transparent_ipv6.map(tcp);
    let ipv6 = transparent_ipv6.map(|listener| thread::spawn(move || tell_destinations(&listener, 1)));
    tell_destinations(&tcp(listeners.transparent), 3);
    if let Some(thread) = ipv6 {
        thread.join().unwrap();
    }
    let dns = UdpSocket::from(blocking(listeners.dns_udp));
    let mut question = [0u8; 512];
    let (length, from) = dns.recv_from(&mut question).unwrap();
    dns.send_to(&question[..length], from).unwrap();
    greet(&tcp(listeners.dns_tcp), "dns");
    greet(&tcp(listeners.http), "http");
    let socks = tcp(listeners.socks);
    let (mut stream, _) = socks.accept().unwrap();
    drop((dns, socks));
    // Only now is nothing left that listens; the script waits for this.
    stream.write_all(b"all closed").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
}

fn every_way_out_ends_at_a_listener(workspace: &Path) -> Result<(), String> {
    let driver = Namespace::with_defaults();
    let plan = plan(workspace);
    let handle = driver.prepare(&plan).unwrap();
    let sandbox = driver.start(&plan, &handle).unwrap();
    let null = File::open("/dev/null").unwrap();
    let out = std::io::stdout();
    let stdio = Stdio::Pipes([null.as_fd(), out.as_fd(), out.as_fd()]);
    let mut session = Session::start(&sandbox, &plan, stdio).unwrap();
    let mut server = None;
    loop {
        match session.recv().unwrap() {
            Event::Listeners(listeners) => server = Some(thread::spawn(move || serve(listeners))),
            Event::Up | Event::Names(_) | Event::Started(_) | Event::OutOfTime => {}
            Event::Ended(ended) if ended.status == ExitStatus::Code(0) => break,
            other => return Err(format!("{other:?}")),
        }
    }
    sandbox.process.wait().unwrap();
    server.ok_or("no listeners came")?.join().map_err(|_| "the server inside the test failed".to_owned())
}

fn report(name: &str, result: &Result<(), String>) -> bool {
    match result {
        Ok(()) => println!("test {name} ... ok"),
        Err(why) => println!("test {name} ... FAILED\n  {why}"),
    }
    result.is_ok()
}

/// The same program as an ordinary user.
fn as_ordinary_user() -> Result<(), String> {
    let user = free_user::ordinary_user()?.to_string();
    let ids = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    let program = std::env::current_exe().unwrap();
    let status = Command::new("setpriv").args(ids).arg(program).arg("--once").status().unwrap();
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        println!("every_way_out_ends_at_a_listener: test\nevery_way_out_of_an_ordinary_user_ends_at_a_listener: test");
        return ExitCode::SUCCESS;
    }
    let workspace = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = std::fs::canonicalize(workspace.path()).unwrap();
    if std::env::args().any(|argument| argument == "--once") {
        return match every_way_out_ends_at_a_listener(&path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let mut failed = 0;
    let mut passed = 0;
    let mut count = |good: bool| if good { passed += 1 } else { failed += 1 };
    count(report("every_way_out_ends_at_a_listener", &every_way_out_ends_at_a_listener(&path)));
    if rustix::process::geteuid().is_root() {
        count(report("every_way_out_of_an_ordinary_user_ends_at_a_listener", &as_ordinary_user()));
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
