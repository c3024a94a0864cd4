//! A sandbox that opens more connections than it gets (vector I09), by every way in, with the real program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use support::net::Named;
use support::{benches, stderr, stdout};

/// Files that `nexus` may open here. That leaves places for fewer than the usual bound, so that the test is a small one.
const FILES: usize = 1024;
/// Two files for each client, after those that are left to the process itself, to addresses that are tried beside each other, and
/// to look-ups: one for each 64 files, with twelve sockets.
const BOUND: u64 = (FILES as u64 - 64 - 128 - FILES as u64 / 64 * 12) / 2;
const TRIED: u64 = BOUND + 120;

/// Opens the connections one after the other and keeps those that are served; then gives one back and takes it again.
/// Arguments: the way in, the port of `web.test`, how many.
const SCRIPT: &str = r#"
import json, os, socket, struct, sys, time
from urllib.parse import urlsplit

way, port, tried = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def where():
    if way == "http":
        url = urlsplit(os.environ["HTTP_PROXY"])
        return (url.hostname, url.port)
    if way == "socks":
        return ("127.0.0.1", 1080)
    if way == "dns":
        words = [line.split() for line in open("/etc/resolv.conf")]
        return ([word[1] for word in words if word[:1] == ["nameserver"]][0], 53)
    return (socket.gethostbyname("web.test"), port)

at = where()

def attempt():
    """A served connection, or the word for a refusal. One that takes too long is an error."""
    stream = socket.socket()
    stream.settimeout(30)
    try:
        stream.connect(at)
        if way == "http":
            stream.sendall(f"CONNECT web.test:{port} HTTP/1.1\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = stream.recv(1)
                if not byte:
                    return "ended"
                head += byte
            if head.startswith(b"HTTP/1.1 429 ") and b"x-proxy-error: LIMIT_EXCEEDED" in head:
                return "told"
            assert head.startswith(b"HTTP/1.1 200 "), head
        elif way == "socks":
            stream.sendall(b"\5\1\0\5\1\0\3\10web.test" + struct.pack("!H", port))
            head = b""
            while len(head) < 12:
                piece = stream.recv(12 - len(head))
                if not piece:
                    return "ended"
                head += piece
            assert head[:4] == b"\5\0\5\0", head
        elif way == "dns":
            stream.sendall(b"\0\x1a\0\7\1\0\0\1\0\0\0\0\0\0\3web\4test\0\0\1\0\1")
        return stream if stream.recv(1) else "ended"
    except (ConnectionResetError, BrokenPipeError):
        return "ended"

held, refused, slowest = [], {}, 0
for _ in range(tried):
    begun = time.monotonic()
    got = attempt()
    if isinstance(got, str):
        refused[got] = refused.get(got, 0) + 1
        slowest = max(slowest, time.monotonic() - begun)
    else:
        held.append(got)
served = len(held)
held.pop().close()
begun = time.monotonic()
while isinstance(attempt(), str) and time.monotonic() < begun + 30:
    pass
print(json.dumps({"served": served, "refused": refused, "slowest": slowest, "again": time.monotonic() - begun}))
"#;

/// Greets each connection, and ends it when its client does. It ends with the test's process.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || stream.write_all(b"!").and_then(|()| stream.read(&mut [0])).ok());
        }
    });
    port
}

#[test]
fn a_sandbox_that_opens_more_connections_than_fit_is_refused_the_rest_at_once() {
    let port = greeter();
    let allow = format!("web.test:{port}");
    for bench in benches() {
        let named = Named::new(&bench);
        bench.write("many.py", SCRIPT);
        for way in ["http", "socks", "transparent", "dns"] {
            let script = format!("python3 many.py {way} {port} {TRIED}");
            let arguments = ["run", "--json", "--allow-private", &allow, "--shell", &script];
            let output = named.prepared(&bench, &format!("ulimit -n {FILES}"), arguments).output().unwrap();
            let context = format!("{}: {way}: {} {}", bench.who(), stdout(&output), stderr(&output));
            let told: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{context}"));
            let seen = told["output"]["stdout"]["text"].as_str().unwrap();
            let seen: Value = serde_json::from_str(seen).unwrap_or_else(|_| panic!("{context}"));
            assert_eq!(seen["served"], BOUND, "{context}");
            // An HTTP client gets an answer; other clients get none, and the record has the reason.
            let word = if way == "http" { "told" } else { "ended" };
            assert_eq!(seen["refused"], serde_json::json!({ word: TRIED - BOUND }), "{context}");
            assert!(seen["slowest"].as_f64().unwrap() < 5.0, "{context}");
            assert!(seen["again"].as_f64().unwrap() < 5.0, "{context}");
            let denied = told["egress"]["denied"].as_array().unwrap();
            let limit = denied.iter().find(|denied| denied["code"] == "LIMIT_EXCEEDED").unwrap();
            assert!(limit["count"].as_u64().unwrap() >= TRIED - BOUND, "{context}");
            let log = stdout(&named.run(&bench, ["net", "log"]));
            assert!(log.contains(&format!("the sandbox has {BOUND} connections already")), "{}: {way}", bench.who());
        }
    }
}
