//! A name server on 127.0.0.1:53, over UDP and TCP, that answers by a table and remembers what it was asked.

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// Question that the name server got.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub name: String,
    pub kind: String,
    pub tcp: bool,
}

/// Name server that ends with the test's process.
pub struct NameServer(Arc<Mutex<Vec<Asked>>>);

enum DiagAnswer {
    Records(Vec<Record>),
    /// Records, with a flag that more of them are available over TCP.
    Truncated(Vec<Record>),
    Code(ResponseCode),
    /// Records of the answer, and others beside them in a section that answers nothing.
    Laden(Vec<Record>, Vec<Record>),
    Garbage,
    Nothing,
}

impl NameServer {
    pub fn start() -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let udp = UdpSocket::bind("127.0.0.1:53").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:53").unwrap();
        let (by_udp, by_tcp) = (Arc::clone(&asked), Arc::clone(&asked));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                let (count, from) = udp.recv_from(&mut buffer).unwrap();
                if let Some(reply) = reply(&buffer[..count], false, &by_udp) {
                    udp.send_to(&reply, from).unwrap();
                }
            }
        });
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let (stream, asked) = (stream.unwrap(), Arc::clone(&by_tcp));
                thread::spawn(move || over_tcp(stream, &asked));
            }
        });
        Self(asked)
    }

    /// Returns the questions since the last call, in order of name and kind.
    pub fn take(&self) -> Vec<Asked> {
        let mut asked = std::mem::take(&mut *self.0.lock().unwrap());
        asked.sort_unstable();
        asked
    }
}

fn over_tcp(mut stream: TcpStream, asked: &Mutex<Vec<Asked>>) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut bytes).unwrap();
        if let Some(reply) = reply(&bytes, true, asked) {
            stream.write_all(&u16::try_from(reply.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(&reply).unwrap();
        }
    }
}

fn reply(bytes: &[u8], tcp: bool, asked: &Mutex<Vec<Asked>>) -> Option<Vec<u8>> {
    let question = Message::from_vec(bytes).unwrap();
    let query = question.queries.first().unwrap().clone();
    let (name, kind) = (query.name().to_string(), query.query_type());
    asked.lock().unwrap().push(Asked { name: name.clone(), kind: kind.to_string(), tcp });
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.queries.push(query);
    match said(name.trim_end_matches('.'), kind, tcp) {
        DiagAnswer::Records(records) => message.answers = records,
        DiagAnswer::Truncated(records) => {
            message.answers = records;
            message.metadata.truncation = true;
        }
        DiagAnswer::Laden(answers, additionals) => {
            message.answers = answers;
            message.additionals = additionals;
        }
        DiagAnswer::Code(code) => message.metadata.response_code = code,
        DiagAnswer::Garbage => return Some([&bytes[..2], &[0xff; 10]].concat()),
        DiagAnswer::Nothing => return None,
    }
    Some(message.to_vec().unwrap())
}

fn said(name: &str, kind: RecordType, tcp: bool) -> DiagAnswer {
    let v4 = kind == RecordType::A;
    let a = |ttl, address: &str| {
        let data = RData::A(A(address.parse().unwrap()));
        if v4 { vec![record(name, ttl, data)] } else { Vec::new() }
    };
    let aaaa = |ttl, address: &str| {
        let data = RData::AAAA(AAAA(address.parse().unwrap()));
        if v4 { Vec::new() } else { vec![record(name, ttl, data)] }
    };
    let alias = |to: &str| vec![record(name, 60, RData::CNAME(CNAME(Name::from_ascii(to).unwrap())))];
    let of = |name: &str, address: &str| {
        let data = RData::A(A(address.parse().unwrap()));
        if v4 { vec![record(name, 60, data)] } else { Vec::new() }
    };
    let some = |count: u32, to: &str| {
        let at = |place: u32| RData::A(A((0x5db8_d900 + place).into()));
        (0..count).map(|place| record(to, 3600, at(place))).collect::<Vec<_>>()
    };
    if !tcp
        && (name.ends_with(".flood.test")
            || matches!(name, "full.test" | "many.test") && v4
            || name == "wide.test" && !v4)
    {
        return DiagAnswer::Truncated(Vec::new());
    }
    DiagAnswer::Records(match name {
        "full.test" if v4 => some(64, name),
        "many.test" if v4 => some(65, name),
        "full.test" | "many.test" => Vec::new(),
        "wide.test" if v4 => a(60, "93.184.216.10"),
        "wide.test" => (0..65)
            .map(|last| record(name, 60, RData::AAAA(AAAA([0x2606, 0x2800, 0, 0, 0, 0, 0, last].into()))))
            .collect(),
        laden if laden.ends_with(".flood.test") => {
            let own = [a(3600, "10.0.0.5"), aaaa(3600, "fd00::5")].concat();
            return DiagAnswer::Laden(own, some(2000, "beside.test"));
        }
        "both.test" => [a(300, "93.184.216.10"), aaaa(30, "2606:2800:220::10")].concat(),
        "v4.test" => a(60, "93.184.216.10"),
        "v6.test" => aaaa(60, "2606:2800:220::10"),
        "second.test" => a(1, "93.184.216.10"),
        "intranet.corp.test" | "gone.test.corp.test" | "a.gone.test.corp.test" => a(60, "93.184.216.66"),
        "pinned.test" | "other.test" => [a(60, "93.184.216.10"), aaaa(60, "2606:2800:220::10")].concat(),
        "big.test" | "hidden.test" if !v4 => Vec::new(),
        "big.test" | "hidden.test" if !tcp => return DiagAnswer::Truncated(a(60, "93.184.216.10")),
        "big.test" => (0..60).flat_map(|last| a(60, &format!("93.184.217.{last}"))).collect(),
        "hidden.test" | "mixed.test" => [a(60, "93.184.216.10"), a(60, "10.0.0.5")].concat(),
        "alias.test" => [alias("private.test."), of("private.test", "10.0.0.5")].concat(),
        "far.test" => alias("private.test."),
        "private.test" => a(60, "10.0.0.5"),
        "good.test" => alias("v4.test."),
        "six.test" => [a(60, "93.184.216.10"), aaaa(60, "fd00::5")].concat(),
        "mapped.test" => aaaa(60, "::ffff:10.0.0.5"),
        "loop.test" => alias("loop.test."),
        "half.test" if v4 => a(60, "93.184.216.10"),
        "six-half.test" if !v4 => aaaa(60, "2606:2800:220::10"),
        "half.test" | "six-half.test" | "silent.test" | "quiet.test" => return DiagAnswer::Nothing,
        "ipv4only.arpa" if v4 => [a(60, "192.0.0.170"), a(60, "192.0.0.171")].concat(),
        "ipv4only.arpa" => aaaa(60, "2a01:db8:122:344::192.0.0.170"),
        "translated.test" => aaaa(60, "2a01:db8:122:344::10.0.0.1"),
        "public.test" => aaaa(60, "2a01:db8:122:344::93.184.216.34"),
        "fails.test" => return DiagAnswer::Code(ResponseCode::ServFail),
        "refused.test" => return DiagAnswer::Code(ResponseCode::Refused),
        "garbage.test" => return DiagAnswer::Garbage,
        _ => return DiagAnswer::Code(ResponseCode::NXDomain),
    })
}

fn record(name: &str, ttl: u32, data: RData) -> Record {
    Record::from_rdata(Name::from_ascii(format!("{name}.")).unwrap(), ttl, data)
}
