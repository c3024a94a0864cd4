//! Measures a proxy: new CONNECT per request with its tail, requests on kept tunnels, and bulk.
//!
//! ```text
//! egress_bench serve               an egress alone; prints its HTTP proxy's address, ends with its input
//! egress_bench target              server: "x" for each byte, or 1 GiB for "B"; prints its port; ends with its input
//! egress_bench load PORT direct    measures that server without a proxy, and prints one JSON line
//! egress_bench load PORT env       the same through the proxy that HTTP_PROXY names
//! egress_bench load PORT ADDRESS   the same through this proxy
//! ```
//!
//! The three parts are processes of their own, so that another proxy can stand in the middle and so that `load` can run
//! inside of a sandbox. Client and server have one thread each and wait for many connections at once: with a thread for
//! each connection they, and not the proxy, would be measured. `NEXUS_BENCH_SECONDS` (default 2) is the time for each
//! measurement in seconds, `NEXUS_BENCH_WORKERS` (default 1) the number of threads of the egress, and `NEXUS_BENCH_SERVER`
//! (default 127.0.0.1) the first address of the server.
#![allow(clippy::unwrap_used, reason = "a measurement that goes wrong must end")]
#![allow(clippy::disallowed_methods, reason = "it is the client, and clients connect")]

use nexus_egress::{Clock, Config, Egress, FileSink, Listeners};
use nexus_policy::net::{Policy, PolicyInput, Source, parse_allow_private};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: usize = 16;
const BULK: usize = 1 << 30;
const BLOCK: usize = 256 * 1024;
/// Addresses of the server, one after the other: one alone would run out of local ports, which stay taken for a while
/// after a close.
const ADDRESSES: u8 = 7;

static NEXT: AtomicU8 = AtomicU8::new(0);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve"] => serve(),
        ["target"] => alone(target()),
        ["load", port, "direct"] => alone(load(port.parse().unwrap(), None)),
        ["load", port, "env"] => {
            let proxy = std::env::var("HTTP_PROXY").unwrap();
            alone(load(port.parse().unwrap(), Some(proxy.strip_prefix("http://").unwrap().parse().unwrap())));
        }
        ["load", port, proxy] => alone(load(port.parse().unwrap(), Some(proxy.parse().unwrap()))),
        _ => eprintln!("egress_bench serve | target | load PORT direct|env|ADDRESS"),
    }
}

fn alone(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
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
    let http = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", http.local_addr().unwrap());
    let egress = Egress::start(config, Listeners { http: Some(http), ..Listeners::default() }).unwrap();
    until_input_ends();
    let summary = egress.stop().unwrap();
    eprintln!("{} connections, {} events lost", summary.allowed_count, summary.audit_lost);
}

fn until_input_ends() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn address(number: u8, port: u16) -> SocketAddr {
    static FIRST: LazyLock<Ipv4Addr> =
        LazyLock::new(|| std::env::var("NEXUS_BENCH_SERVER").map_or(Ipv4Addr::LOCALHOST, |text| text.parse().unwrap()));
    (Ipv4Addr::from_bits(FIRST.to_bits() + u32::from(number % ADDRESSES)), port).into()
}

async fn target() {
    let mut port = 0;
    for number in 0..ADDRESSES {
        let listener = TcpListener::bind(address(number, port)).await.unwrap();
        port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream));
                }
            }
        });
    }
    println!("{port}");
    let (over, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        until_input_ends();
        drop(over);
    });
    ended.await.unwrap_err();
}

async fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(1)) {
        if byte == *b"B" {
            let block = vec![7; BLOCK];
            let mut left = BULK;
            while left > 0 && stream.write_all(&block).await.is_ok() {
                left = left.saturating_sub(block.len());
            }
            return;
        }
        if stream.write_all(b"x").await.is_err() {
            return;
        }
    }
}

async fn open(port: u16, proxy: Option<SocketAddr>) -> TcpStream {
    let target = address(NEXT.fetch_add(1, Ordering::Relaxed), port);
    let mut stream = TcpStream::connect(proxy.unwrap_or(target)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    if proxy.is_some() {
        let proxy_order = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(proxy_order.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        let mut some = [0; 512];
        while !head.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut some).await.unwrap();
            assert_ne!(count, 0, "the proxy closed: {:?}", String::from_utf8_lossy(&head));
            head.extend_from_slice(&some[..count]);
        }
        assert!(head.starts_with(b"HTTP/1.") && head[9..].starts_with(b"200"), "{}", String::from_utf8_lossy(&head));
    }
    stream
}

async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"a").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
}

/// Asks on all connections for a while, on each with a new connection for each question or with the same one; returns
/// the number of answers in a second, and the time of each.
async fn measured(port: u16, proxy: Option<SocketAddr>, keep: bool) -> (f64, Vec<Duration>) {
    let time = Duration::from_secs(setting("NEXUS_BENCH_SECONDS", 2));
    let start = Instant::now();
    let runs: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            tokio::spawn(async move {
                let (mut kept, mut times) = (None::<TcpStream>, Vec::new());
                while start.elapsed() < time {
                    let started = Instant::now();
                    let mut stream = match kept.take() {
                        Some(stream) => stream,
                        None => open(port, proxy).await,
                    };
                    ask(&mut stream).await;
                    kept = keep.then_some(stream);
                    times.push(started.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for run in runs {
        times.extend(run.await.unwrap());
    }
    (times.len() as f64 / start.elapsed().as_secs_f64(), times)
}

async fn bulk(port: u16, proxy: Option<SocketAddr>) -> f64 {
    let mut stream = open(port, proxy).await;
    let mut block = vec![0; BLOCK];
    let start = Instant::now();
    stream.write_all(b"B").await.unwrap();
    let mut got = 0;
    while got < BULK {
        let count = stream.read(&mut block).await.unwrap();
        assert_ne!(count, 0, "the stream ended after {got} bytes");
        got += count;
    }
    got as f64 / start.elapsed().as_secs_f64() / 1e9
}

async fn load(port: u16, proxy: Option<SocketAddr>) {
    let (fresh, mut times) = measured(port, proxy, false).await;
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100].as_secs_f64() * 1000.0;
    let (kept, _) = measured(port, proxy, true).await;
    let bulk = bulk(port, proxy).await;
    println!(
        "{{\"new_connect_per_s\": {fresh:.0}, \"p99_ms\": {p99:.3}, \"keep_alive_per_s\": {kept:.0}, \
         \"bulk_gb_per_s\": {bulk:.3}}}"
    );
}
