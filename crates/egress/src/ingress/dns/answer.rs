//! Reads DNS questions and builds their answers. Pure; the bytes are hostile.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use nexus_policy::net::{Denial, Host, HostError, Name};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Time to live of an answer in seconds: short, since a policy can change.
const TTL: u32 = 30;
/// Extended error "blocked" (RFC 8914, 4.16).
const BLOCKED: u16 = 15;
/// Option code of extended errors.
const EDE: u16 = 15;

/// Question that can be decided.
#[derive(Debug)]
pub struct Question {
    id: u16,
    recursion_desired: bool,
    query: Query,
    edns: bool,
    /// Asked host, or the reason why the name cannot be one.
    pub host: Result<Host, HostError>,
    /// Name as it was asked, for the record.
    pub text: String,
}

/// Reads a message. The error is the answer that refuses it, or `None` for a message that must not be answered.
pub fn question(bytes: &[u8]) -> Result<Question, Option<Vec<u8>>> {
    // A response must never be answered: two servers would talk to each other for ever.
    let Some(&[high, low, flags]) = bytes.first_chunk::<3>() else { return Err(None) };
    if flags & 0x80 != 0 {
        return Err(None);
    }
    let id = u16::from_be_bytes([high, low]);
    let refuse = |code| Err(encode(&Message::error_msg(id, OpCode::Query, code)));
    let Ok(message) = Message::from_vec(bytes) else { return refuse(ResponseCode::FormErr) };
    if message.metadata.message_type != MessageType::Query {
        return Err(None);
    }
    if message.metadata.op_code != OpCode::Query {
        return Err(encode(&Message::error_msg(id, message.metadata.op_code, ResponseCode::NotImp)));
    }
    // More than one question was never defined; an answer could belong to either.
    let [query] = message.queries.as_slice() else { return refuse(ResponseCode::FormErr) };
    let text = query.name().to_ascii();
    Ok(Question {
        id,
        recursion_desired: message.metadata.recursion_desired,
        query: query.clone(),
        edns: message.edns.is_some(),
        host: Host::parse(&text),
        text,
    })
}

/// Builds the answer: the addresses of an allowed name, or the reason of the denial. `None` if it cannot be encoded.
pub fn answer(question: &Question, decided: Result<(Ipv4Addr, Ipv6Addr), &Denial>) -> Option<Vec<u8>> {
    let mut message = Message::response(question.id, OpCode::Query);
    message.metadata.recursion_desired = question.recursion_desired;
    message.metadata.recursion_available = true;
    message.queries.push(question.query.clone());
    match decided {
        Ok((v4, v6)) => {
            let data = match (question.query.query_class(), question.query.query_type()) {
                (DNSClass::IN, RecordType::A) => Some(RData::A(A(v4))),
                (DNSClass::IN, RecordType::AAAA) => Some(RData::AAAA(AAAA(v6))),
                _ => None,
            };
            if let Some(data) = data {
                message.answers.push(Record::from_rdata(question.query.name().clone(), TTL, data));
            }
        }
        Err(denial) => {
            message.metadata.response_code = ResponseCode::NXDomain;
            if question.edns {
                let mut content = BLOCKED.to_be_bytes().to_vec();
                let text = format!("{}: {}", denial.code, crate::ingress::http::reply::sentence(denial));
                // So that it fits into the smallest UDP answer together with the longest name.
                content.extend(text.bytes().take(180).filter(|byte| (0x20..0x7f).contains(byte)));
                let mut edns = Edns::new();
                edns.options_mut().insert(EdnsOption::Unknown(EDE, content));
                message.edns = Some(edns);
            }
        }
    }
    if question.edns && message.edns.is_none() {
        message.edns = Some(Edns::new());
    }
    encode(&message)
}

/// Answers a question in a sandbox without an egress: no name exists except `localhost`. Also returns the host name
/// that was asked for; a reverse question names no host that a program wants to reach.
pub fn without_network(bytes: &[u8]) -> (Option<String>, Option<Vec<u8>>) {
    let question = match question(bytes) {
        Ok(question) => question,
        Err(refusal) => return (None, refusal),
    };
    let name = question.host.as_ref().ok().and_then(Host::name);
    if name.is_some_and(is_localhost) {
        return (None, answer(&question, Ok((Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST))));
    }
    let asked = name.filter(|name| !is_infrastructure(name.as_str())).map(|name| name.as_str().to_owned());
    let mut message = Message::response(question.id, OpCode::Query);
    message.metadata.recursion_desired = question.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = ResponseCode::NXDomain;
    message.queries.push(question.query);
    (asked, encode(&message))
}

/// Reports whether a name is the sandbox's own loopback, for every program (RFC 6761).
pub fn is_localhost(name: &Name) -> bool {
    name.as_str() == "localhost" || name.as_str().ends_with(".localhost")
}

/// Reports whether a name belongs to the infrastructure of the internet (RFC 3172), such as a reverse look-up: no
/// program connects to it. Below `home.arpa` are hosts (RFC 8375). A name that cannot be a host's, such as
/// `_dns.resolver.arpa`, is not canonical.
pub fn is_infrastructure(name: &str) -> bool {
    let mut labels = name.strip_suffix('.').unwrap_or(name).rsplit('.');
    let mut is_next = |label| labels.next().is_some_and(|next| next.eq_ignore_ascii_case(label));
    is_next("arpa") && !is_next("home")
}

fn encode(message: &Message) -> Option<Vec<u8>> {
    message.to_vec().ok()
}
