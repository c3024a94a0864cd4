//! Measures a proxy: new CONNECT per request, requests on kept tunnels, bulk, and the tail.
//!
//! ```text
//! egress_bench serve                      an egress alone; prints its HTTP proxy's address, ends with its input
//! egress_bench target                     a server: answers "x" to each byte, or 1 GiB to "B"; prints its address
//! egress_bench load TARGET [PROXY]        measures TARGET, directly or through PROXY, and prints one JSON line
//! ```
//!
//! The three parts are processes of their own, so that another proxy can stand in the middle and so that `load` can run
//! inside of a sandbox. `NEXUS_BENCH_SECONDS` (default 3) is the time for each measure, `NEXUS_BENCH_WORKERS` (default 1)
//! the threads of the egress.
#![allow(clippy::unwrap_used, reason = "a measurement that goes wrong must end")]
#![allow(clippy::disallowed_methods, reason = "it is the client, and clients connect")]

use nexus_egress::{Clock, Config, Egress, FileSink, Listeners};
use nexus_policy::net::{Policy, PolicyInput, Source, parse_allow_private};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 16;
const BULK: usize = 1 << 30;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve"] => serve(),
        ["target"] => target(),
        ["load", target] => load(target.parse().unwrap(), None),
        ["load", target, proxy] => load(target.parse().unwrap(), Some(proxy.parse().unwrap())),
        _ => eprintln!("egress_bench serve | target | load TARGET [PROXY]"),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn serve() {
    let mut input = PolicyInput { generation: 1, ..PolicyInput::default() };
    input.allow_any(parse_allow_private("127.0.0.0/8:1-65535", Source::flag("bench")).unwrap());
    let audit = tempfile::tempfile().unwrap();
    let mut config =
        Config::new(Arc::new(Policy::build(input).unwrap()), Clock::start(), Arc::new(FileSink::new(audit, u64::MAX)));
    config.workers = usize::try_from(setting("NEXUS_BENCH_WORKERS", 1)).unwrap();
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", http.local_addr().unwrap());
    let egress = Egress::start(config, Listeners { http: Some(http), ..Listeners::default() }).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let summary = egress.stop().unwrap();
    eprintln!("{} connections, {} events lost", summary.allowed_count, summary.audit_lost);
}

fn target() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || answer(stream)).unwrap();
    }
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) {
        if byte == *b"B" {
            let block = vec![7; 256 * 1024];
            let mut left = BULK;
            while left > 0 && stream.write_all(&block).is_ok() {
                left = left.saturating_sub(block.len());
            }
            return;
        }
        if stream.write_all(b"x").is_err() {
            return;
        }
    }
}

fn open(target: SocketAddr, proxy: Option<SocketAddr>) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.unwrap_or(target)).unwrap();
    stream.set_nodelay(true).unwrap();
    if proxy.is_some() {
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut some = [0; 512];
        while !head.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut some).unwrap();
            assert_ne!(count, 0, "the proxy closed: {:?}", String::from_utf8_lossy(&head));
            head.extend_from_slice(&some[..count]);
        }
        assert!(head.starts_with(b"HTTP/1.") && head[9..].starts_with(b"200"), "{}", String::from_utf8_lossy(&head));
    }
    stream
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// Runs `one` on all connections for a while; gives back the time of each.
fn measured(one: impl Fn(&mut Option<TcpStream>) + Sync) -> (f64, Vec<Duration>) {
    let time = Duration::from_secs(setting("NEXUS_BENCH_SECONDS", 3));
    let begun = Instant::now();
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut kept, mut times) = (None, Vec::new());
                    while begun.elapsed() < time {
                        let begun = Instant::now();
                        one(&mut kept);
                        times.push(begun.elapsed());
                    }
                    times
                })
            })
            .collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    (times.len() as f64 / begun.elapsed().as_secs_f64(), times)
}

fn load(target: SocketAddr, proxy: Option<SocketAddr>) {
    let (fresh, mut times) = measured(|_| ask(&mut open(target, proxy)));
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100].as_secs_f64() * 1000.0;
    let (kept, _) = measured(|stream| ask(stream.get_or_insert_with(|| open(target, proxy))));
    let begun = Instant::now();
    let mut stream = open(target, proxy);
    stream.write_all(b"B").unwrap();
    let mut block = vec![0; 256 * 1024];
    let mut got = 0;
    while got < BULK {
        let count = stream.read(&mut block).unwrap();
        assert_ne!(count, 0);
        got += count;
    }
    let bulk = got as f64 / begun.elapsed().as_secs_f64() / 1e9;
    println!(
        "{{\"new_connect_per_s\": {fresh:.0}, \"keep_alive_per_s\": {kept:.0}, \"bulk_gb_per_s\": {bulk:.2}, \
         \"p99_ms\": {p99:.2}}}"
    );
}
