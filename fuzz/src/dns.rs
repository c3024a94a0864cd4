//! DNS: the name that is decided is the one that stands in the message, and no answer is ever answered.

use hickory_proto::op::{Message, MessageType, ResponseCode};
use nexus_egress::pure::{answer, question as read};
use nexus_policy::net::{Attempt, Host, Ingress, MonotonicMs, Policy, Port, Target, check_name};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What fits into any UDP answer (RFC 1035, 4.2.1).
const SMALLEST_UDP: usize = 512;

/// One message of a sandbox.
pub fn question(data: &[u8]) {
    let is_answer = data.get(2).is_none_or(|flags| flags & 0x80 != 0);
    let question = match read(data) {
        found if is_answer => {
            return assert!(matches!(found, Err(None)), "two servers would answer each other for ever");
        }
        Ok(question) => question,
        Err(None) => return,
        Err(Some(refusal)) => return check_answer(data, &refusal),
    };
    // Numbers are an address, in whatever form.
    if let Ok(Host::Name(host)) = &question.host {
        let Some(name) = first_name(data) else { panic!("no name stands in the message, but {host} was read") };
        let dotted: Vec<u8> = name.join(&b'.').to_ascii_lowercase();
        assert_eq!(host.to_string().as_bytes(), dotted, "the message asks for another name");
    }
    let addresses = (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::LOCALHOST);
    let Some(given) = answer(&question, Ok(addresses)) else { panic!("{question:?} cannot be answered") };
    let message = is_an_answer_to(data, &given);
    assert!(message.answers.len() <= 1 && message.metadata.response_code == ResponseCode::NoError);

    let host = question.host.clone().or_else(|_| Host::parse("a.test"));
    if let (Ok(host), Ok(port)) = (host, Port::new(443)) {
        let attempt = Attempt { target: Target { host, port }, way: Ingress::Transparent, program: None };
        if let Err(denial) = check_name(&Policy::default(), &attempt, MonotonicMs(0)) {
            let Some(given) = answer(&question, Err(&denial)) else { panic!("{question:?} cannot be refused") };
            let message = is_an_answer_to(data, &given);
            assert!(message.answers.is_empty() && message.metadata.response_code == ResponseCode::NXDomain);
        }
    }
}

fn check_answer(question: &[u8], answer: &[u8]) {
    assert_eq!(answer.get(..2), question.get(..2), "it answers another message");
    assert!(answer.get(2).is_some_and(|flags| flags & 0x80 != 0), "it is itself a question");
    assert!(matches!(read(answer), Err(None)), "an answer is answered");
    assert!(answer.len() <= SMALLEST_UDP, "{} bytes", answer.len());
}

fn is_an_answer_to(asked: &[u8], answer: &[u8]) -> Message {
    check_answer(asked, answer);
    let (Ok(asked), Ok(message)) = (Message::from_vec(asked), Message::from_vec(answer)) else {
        panic!("the answer cannot be read: {answer:?}")
    };
    assert_eq!(message.metadata.message_type, MessageType::Response);
    assert_eq!(message.queries, asked.queries, "it answers another question");
    message
}

/// The labels of the first name, read by hand (RFC 1035, 4.1.2 and 4.1.4). A pointer only ever leads back.
fn first_name(message: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut at, mut bound) = (12, 12);
    let mut labels = Vec::new();
    loop {
        let (length, after) = message.get(at..)?.split_first()?;
        match length {
            0 => return Some(labels),
            1..=63 => {
                labels.push(after.get(..usize::from(*length))?);
                at += 1 + usize::from(*length);
            }
            0xc0.. => {
                at = usize::from(length & 0x3f) << 8 | usize::from(*after.first()?);
                if at >= bound {
                    return None;
                }
                bound = at;
            }
            64..=0xbf => return None,
        }
    }
}
