//! Thousands of idle tunnels and hundreds of slow clients do not keep a new one waiting.
//!
//! `NEXUS_SOAK_TUNNELS` sets the number of tunnels (default 600, the promise is 5,000), a tenth of it are slow clients.
//! The clients live in a process of their own, since both ends of everything would not fit into one's descriptors.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{Config, FileSink, Limits};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::process::{raise_descriptors, resident_kib};
use support::{World, connect, echo, eventually, input, tunnel};

const NAME: &str = "idle_tunnels_and_slow_clients_keep_no_other_client_waiting";

/// Opens tunnels and slow heads in the other process, reports them, and holds them until its input ends.
fn hold(proxy: SocketAddr, authority: &str, tunnels: usize) {
    let held: Vec<TcpStream> = (0..tunnels).map(|_| tunnel(proxy, authority).unwrap()).collect();
    let slow: Vec<TcpStream> = (0..tunnels / 10)
        .map(|_| {
            let mut client = connect(proxy);
            client.write_all(b"GET http://slow.test/ HTTP/1.1\r\nX: ").unwrap();
            client
        })
        .collect();
    println!("\nholding {} and {}", held.len(), slow.len());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn idle_tunnels_and_slow_clients_keep_no_other_client_waiting() {
    let tunnels: usize = std::env::var("NEXUS_SOAK_TUNNELS").map_or(600, |text| text.parse().unwrap());
    let descriptors = raise_descriptors();
    if let Ok(to) = std::env::var("NEXUS_SOAK_HOLD") {
        let (proxy, authority) = to.split_once(' ').unwrap();
        return hold(proxy.parse().unwrap(), authority, tunnels);
    }
    assert!(tunnels as u64 * 3 + 1000 < descriptors, "{descriptors} descriptors are too few for {tunnels} tunnels");
    let upstream = support::server("127.0.0.1:0", echo);
    let idle = holding_server();
    let audit = tempfile::tempfile().unwrap();
    let world = World::with(input(&["+idle.test:1-65535"]), |config: &mut Config| {
        config.audit = Arc::new(FileSink::new(audit, u64::MAX));
        config.limits =
            Limits { head_time: Duration::from_secs(120), half_closed: Duration::from_secs(1), ..Limits::default() };
    });
    world.resolver.set("*", &[upstream.ip()]);
    let authority = format!("idle.test:{}", upstream.port());
    // What is paid once is paid before.
    round_trip(&world, &authority);
    let before = resident_kib();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("NEXUS_SOAK_HOLD", format!("{} idle.test:{}", world.http, idle.port()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let reported = said.by_ref().find(|line| line.starts_with("holding"));
    assert_eq!(reported.unwrap(), format!("holding {tunnels} and {}", tunnels / 10));
    eventually("all tunnels in the books", || world.egress().summary().open >= tunnels);
    let mut times: Vec<Duration> = (0..50).map(|_| round_trip(&world, &authority)).collect();
    times.sort_unstable();
    println!("{tunnels} idle: median {:?}, worst {:?}", times[25], times[49]);
    // Who starves waits for ever; how long others take is for the benchmark to say.
    assert!(times[25] < Duration::from_secs(5), "{times:?}");
    let each = (resident_kib() - before) * 1024 / tunnels as u64;
    println!("{each} bytes of memory for each tunnel");
    assert!(each < 16 * 1024, "{each}");
    drop(holder.stdin.take());
    // Its output is read to the end, or it could not end.
    said.for_each(drop);
    assert!(holder.wait().unwrap().success());
    // The server never closes: a tunnel whose client is gone ends on its own.
    eventually("the end of all", || world.egress().summary().open == 0);
}

/// Starts a server that holds its connections without a thread for each.
fn holding_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming() {
            held.push(stream.unwrap());
        }
    });
    address
}

fn round_trip(world: &World, authority: &str) -> Duration {
    let started = Instant::now();
    let mut client = tunnel(world.http, authority).unwrap();
    client.write_all(b"ping").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    started.elapsed()
}
