//! Serves DNS over UDP and TCP.

use super::answer::{answer, is_infrastructure, is_localhost, question};
use crate::audit::event::{Event, EventKind};
use crate::decide::context::DecisionContext;
use crate::decide::denials;
use crate::decide::state::Shared;
use nexus_policy::net::{Charge, Check, Denial, Host, check_dns, may_be_asked};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Pause after a failure that does not concern one question, such as no memory left.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum length of a question in bytes. A question is one name with a few options; more would be memory that a client
/// makes the egress hold.
const LONGEST: u16 = 4096;

/// Serves datagrams for ever. A datagram that cannot be answered is dropped; its sender asks again.
pub(crate) async fn serve_udp(shared: Arc<Shared>, socket: UdpSocket) {
    let mut buffer = [0; 4096];
    loop {
        let Ok((count, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if let Some(answer) = respond(&shared, bytes)
            && let Err(error) = socket.send_to(&answer, from).await
        {
            drop(error);
        }
    }
}

/// Serves one connection: questions with a length before each (RFC 1035, 4.2.2).
pub(crate) async fn serve_tcp(shared: Arc<Shared>, mut stream: TcpStream) {
    loop {
        let read = async {
            let length = stream.read_u16().await?;
            if length > LONGEST {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            let mut bytes = vec![0; usize::from(length)];
            stream.read_exact(&mut bytes).await?;
            std::io::Result::Ok(bytes)
        };
        let Ok(Ok(bytes)) = timeout(shared.limits.head_time, read).await else { return };
        let Some(answer) = respond(&shared, &bytes) else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        if stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

fn respond(shared: &Shared, bytes: &[u8]) -> Option<Vec<u8>> {
    let question = match question(bytes) {
        Ok(question) => question,
        Err(refusal) => return refusal,
    };
    let id = shared.next_id();
    let mut context = shared.context();
    let decided = match &question.host {
        Ok(host) => decide(shared, host, &mut context),
        Err(why) => Err(Denial::unreadable(why)),
    };
    let host = question.host.as_ref().map_or_else(|_| question.text.clone(), ToString::to_string);
    let event = Event { host: host.clone(), ..Event::new(EventKind::Dns, id) };
    let decided = match decided {
        Ok(addresses) => {
            let recorded = context.must(&event, &shared.audit);
            recorded.map(|()| addresses).map_err(|error| denials::internal(error.to_string()))
        }
        Err(denial) => {
            // No rule would give a reverse look-up an answer, so neither a hint nor the summary has it.
            let names_no_host = is_infrastructure(&host);
            let denial = if names_no_host { Denial { allow_with: None, ..denial } } else { denial };
            if !names_no_host {
                shared.tally().deny(host, 0, &denial);
            }
            context.note(&event.denied(&denial), &shared.audit);
            Err(denial)
        }
    };
    answer(&question, decided.as_ref().copied())
}

fn decide(shared: &Shared, host: &Host, context: &mut DecisionContext) -> Result<(Ipv4Addr, Ipv6Addr), Denial> {
    shared.charge(Charge::Request)?;
    if let Some(name) = host.name()
        && is_localhost(name)
    {
        return Ok((Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
    }
    context.check = Some(Check::Dns);
    if let Err(denial) = check_dns(&context.policy, host, context.at) {
        // With an approver, the question comes when the program connects; until then the name needs an address.
        if shared.approver.is_none() || !may_be_asked(&context.policy, host, context.at) {
            return Err(denial);
        }
        // The name is answered for the sake of the later question.
        context.check = None;
    }
    let Some(name) = host.name() else { return Err(denials::malformed("an address is not a name")) };
    Ok(shared.synthetic.lock().unwrap_or_else(PoisonError::into_inner).addresses(name))
}
