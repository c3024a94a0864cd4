//! A relay between one daemon and the control plane that reads HTTP, records what the contract says, and loses answers. Reports of a
//! claim come again when a later claim of the directive has started, as from a network that held them back.

use super::record::{Call, Record, Seen};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The starts of claims, with their daemons, by directive and fence. All relays share it.
#[derive(Default)]
pub struct Held(Mutex<BTreeMap<(String, u64), (usize, Message)>>);

/// The switches of a relay.
#[derive(Default)]
pub struct Switches {
    /// No connection goes through.
    pub cut: AtomicBool,
    /// So many of a thousand answers are lost.
    pub lost: AtomicU32,
    /// Calls of which the next answer is lost in any case.
    next: Mutex<BTreeSet<&'static str>>,
    random: AtomicU32,
    open: Mutex<Vec<TcpStream>>,
}

impl Switches {
    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
        if cut {
            for stream in self.open.lock().unwrap().drain(..) {
                stream.shutdown(Shutdown::Both).ok();
            }
        }
    }

    /// Loses the next answer to each call that changes something.
    pub fn lose_next(&self) {
        self.next.lock().unwrap().extend(["polls", "started", "log_chunks", "finished"]);
    }

    fn loses(&self, request: &Message, answer: &Message) -> bool {
        let call = request.first.split(' ').nth(1).unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let changes = call != "polls" || answer.json()["directives"].as_array().is_some_and(|list| !list.is_empty());
        if changes && self.next.lock().unwrap().remove(call) {
            return true;
        }
        let mut next = self.random.load(Ordering::Relaxed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random.store(next, Ordering::Relaxed);
        next >>= 16;
        next % 1000 < self.lost.load(Ordering::Relaxed)
    }
}

/// Starts the relay of a daemon.
pub fn start(daemon: usize, server: SocketAddr, record: Arc<Record>, held: Arc<Held>) -> (SocketAddr, Arc<Switches>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let switches = Arc::new(Switches::default());
    switches.random.store(u32::try_from(daemon).unwrap() * 7919 + 1, Ordering::Relaxed);
    let shared = Arc::clone(&switches);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if shared.cut.load(Ordering::SeqCst) {
                continue;
            }
            let (switches, record, held) = (Arc::clone(&shared), Arc::clone(&record), Arc::clone(&held));
            std::thread::spawn(move || drop(serve(daemon, client, server, &switches, &record, &held)));
        }
    });
    (address, switches)
}

/// One request or answer.
#[derive(Clone)]
struct Message {
    first: String,
    headers: Vec<(String, String)>,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Message {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads one message; `None` at the end of the connection.
    fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let (mut head, mut headers, mut first) = (Vec::new(), Vec::new(), String::new());
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            head.extend_from_slice(line.as_bytes());
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if first.is_empty() {
                text.clone_into(&mut first);
            } else if let Some((name, value)) = text.split_once(':') {
                headers.push((name.to_lowercase(), value.trim().to_owned()));
            }
        }
        let mut message = Self { first, headers, head, body: Vec::new() };
        let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        assert!(message.header("transfer-encoding").is_none(), "answers of conduits have a length");
        message.body = vec![0; length];
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    fn send(&self, mut to: &TcpStream) -> io::Result<()> {
        to.write_all(&[&self.head[..], &self.body].concat())
    }

    /// The same request as another call of its directive, with another body.
    fn with(&self, call: &str, body: &str) -> Self {
        let first = self.first.replacen("/started ", &format!("/{call} "), 1);
        let keep = |name: &str| !matches!(name, "content-length" | "connection");
        let kept = self.headers.iter().filter(|(name, _)| keep(name));
        let mut head = format!("{first}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in kept {
            for part in [name, ": ", value, "\r\n"] {
                head.push_str(part);
            }
        }
        head.push_str("\r\n");
        Self { first, headers: self.headers.clone(), head: head.into_bytes(), body: body.as_bytes().to_vec() }
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the connection ends with this")]
fn serve(
    daemon: usize,
    client: TcpStream,
    address: SocketAddr,
    switches: &Switches,
    record: &Arc<Record>,
    held: &Held,
) -> io::Result<()> {
    let server = TcpStream::connect(address)?;
    for one in [&client, &server] {
        one.set_nodelay(true)?;
        switches.open.lock().unwrap().push(one.try_clone()?);
    }
    let (mut from_client, mut from_server) = (BufReader::new(client.try_clone()?), BufReader::new(server.try_clone()?));
    let done = (|| {
        while let Some(request) = Message::read(&mut from_client)? {
            let sent = record.now();
            request.send(&server)?;
            let Some(answer) = Message::read(&mut from_server)? else { return Ok(()) };
            let is_lost = switches.loses(&request, &answer);
            note(daemon, &request, &answer, sent, !is_lost, record);
            if answer.first.contains(" 200 ") {
                repeat_earlier(daemon, &request, address, record, held);
            }
            if is_lost {
                return Ok(());
            }
            answer.send(&client)?;
        }
        Ok(())
    })();
    for one in [&client, &server] {
        one.shutdown(Shutdown::Both).ok();
    }
    done
}

/// Once a claim has started, sends the start of each earlier one of its directive again, and an end and output in its name.
fn repeat_earlier(daemon: usize, request: &Message, server: SocketAddr, record: &Arc<Record>, held: &Held) {
    let path = request.first.split(' ').nth(1).unwrap_or_default();
    let started = path.strip_prefix("/conduits/v1/directives/").and_then(|rest| rest.strip_suffix("/started"));
    let Some(id) = started.map(ToOwned::to_owned) else { return };
    let mut held = held.0.lock().unwrap();
    let fence = fence(request);
    for (_, (of, start)) in held.range((id.clone(), 0)..(id.clone(), fence)) {
        let (of, start, record) = (*of, start.clone(), Arc::clone(record));
        std::thread::spawn(move || {
            let chunk = r#"{"stream":"stdout","seq":0,"bytes":"bGF0ZQo="}"#;
            let end = r#"{"status":"succeeded","exit_code":0}"#;
            let started = String::from_utf8_lossy(&start.body).into_owned();
            for (call, body) in [("started", started.as_str()), ("log_chunks", chunk), ("finished", end)] {
                // The control plane may be away at the moment.
                let is_sent = (0..20).any(|_| {
                    let is_sent = send_again(of, &start.with(call, body), server, &record).is_ok();
                    if !is_sent {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    is_sent
                });
                assert!(is_sent, "{call} of an earlier claim cannot be sent");
            }
        });
    }
    held.entry((id, fence)).or_insert_with(|| (daemon, request.clone()));
}

fn send_again(daemon: usize, request: &Message, server: SocketAddr, record: &Record) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    server.set_read_timeout(Some(Duration::from_secs(10)))?;
    let sent = record.now();
    request.send(&server)?;
    let answer = Message::read(&mut BufReader::new(server))?.ok_or(io::ErrorKind::UnexpectedEof)?;
    note(daemon, request, &answer, sent, true, record);
    Ok(())
}

/// Records what the server answered, as the tables of the contract name it.
fn note(daemon: usize, request: &Message, answer: &Message, sent: u64, arrived: bool, record: &Record) {
    let path = request.first.split(' ').nth(1).unwrap_or_default().to_owned();
    let status: u16 = answer.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let body = answer.json();
    if path == "/conduits/v1/polls" {
        for claim in body["directives"].as_array().into_iter().flatten() {
            let id = claim["directive_id"].as_str().unwrap_or_default().to_owned();
            let number = |name: &str| claim[name].as_u64().unwrap_or_default();
            record.add(Seen::Claimed { id, daemon, fence: number("fence"), attempt: number("attempt"), arrived });
        }
        return;
    }
    let Some((id, call)) = path.strip_prefix("/conduits/v1/directives/").and_then(|rest| rest.split_once('/')) else {
        return;
    };
    let call = match call {
        "started" => Call::Started,
        "log_chunks" => Call::Chunk,
        // A report that nothing was committed does not end a directive that runs again.
        "finished" if body["final_state"] != "queued" => Call::Finished,
        _ => Call::Other,
    };
    let asked = request.json();
    let chunk = (call == Call::Chunk).then(|| {
        let bytes = BASE64.decode(asked["bytes"].as_str().unwrap_or_default().as_bytes()).unwrap_or_default();
        let stream = asked["stream"].as_str().unwrap_or_default().to_owned();
        (stream, asked["seq"].as_i64().unwrap_or(-1), String::from_utf8_lossy(&bytes).into_owned())
    });
    record.add(Seen::Reported {
        id: id.to_owned(),
        daemon,
        fence: fence(request),
        call,
        status,
        duplicate: body["duplicate"] == true,
        chunk,
        sent,
    });
}

/// Reads the fence from the token of a call.
fn fence(request: &Message) -> u64 {
    let token = request.header("authorization").and_then(|value| value.split(' ').nth(1)).unwrap_or_default();
    let claims = token.split('.').nth(1).and_then(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
    let claims: Value = claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default();
    claims["fence"].as_u64().unwrap_or_default()
}
