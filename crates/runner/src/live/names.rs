//! Answers and notes the names that a command without a network asks for.
//!
//! Every name is answered with NXDOMAIN, so that a program fails at once instead of trying again, and the names are
//! reported at the end of the run. The questions are hostile: their number, the names that are kept and the work of one turn are
//! bounded, and nothing here waits.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags};

/// Names that are kept.
const MAX_NAMES: usize = 20;
/// Questions that are answered in one turn; the others wait in the socket.
const MAX_IN_A_TURN: usize = 32;
/// Questions that are answered in one run. After them the port is closed, as if no process listened: a flood must
/// not make the host work for ever.
const MAX_QUESTIONS: usize = 20_000;
/// The longest question that is read; a longer one is cut and then malformed.
const MAX_LENGTH: usize = 1024;

/// Holds the names so far, and the socket while it is served.
#[derive(Debug, Default)]
pub struct AskedNames {
    socket: Option<OwnedFd>,
    names: Vec<String>,
    has_more: bool,
    questions: usize,
}

impl AskedNames {
    /// Takes the socket of a sandbox.
    pub fn serve(&mut self, socket: OwnedFd) {
        self.socket = Some(socket);
    }

    /// Returns the socket, readable when there is a question.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Answers some of the questions that wait.
    pub fn answer(&mut self) {
        for _ in 0..MAX_IN_A_TURN {
            if !self.answer_one() {
                return;
            }
        }
    }

    /// Lets go of the socket.
    pub fn close(&mut self) {
        self.answer();
        self.socket = None;
    }

    /// Returns the names, in the order in which they were asked for first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Reports whether there were others.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Reports whether another question may wait.
    fn answer_one(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut buffer = [0u8; MAX_LENGTH];
        // An error is a socket in which nothing waits, or a broken one of a hostile guest.
        let Ok((length, _, Some(from))) = rustix::net::recvfrom(socket, &mut buffer[..], RecvFlags::DONTWAIT) else {
            return false;
        };
        let (name, answer) = nexus_egress::without_network(&buffer[..length]);
        if let Some(answer) = answer
            && rustix::net::sendto(socket, &answer, SendFlags::DONTWAIT, &from).is_err()
        {
            // Its sender is gone, or asks again.
        }
        self.note(name);
        self.questions += 1;
        if self.questions >= MAX_QUESTIONS {
            self.socket = None;
        }
        true
    }

    fn note(&mut self, name: Option<String>) {
        match name {
            Some(name) if self.names.contains(&name) => {}
            Some(name) if self.names.len() < MAX_NAMES => self.names.push(name),
            Some(_) => self.has_more = true,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// A question for the address of a name (RFC 1035, 4.1).
    fn question(name: &str) -> Vec<u8> {
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.as_bytes());
        }
        bytes.extend([0, 0, 1, 0, 1]);
        bytes
    }

    fn served() -> (AskedNames, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut names = AskedNames::default();
        names.serve(socket.into());
        (names, client)
    }

    #[test]
    fn a_name_is_noted_once_and_does_not_exist() {
        let (mut names, client) = served();
        for name in ["a.test", "A.test", "b.test", "localhost", "1.0.0.127.in-addr.arpa"] {
            client.send(&question(name)).unwrap();
        }
        names.answer();
        assert_eq!(names.names(), ["a.test", "b.test"]);
        let mut answer = [0u8; 512];
        client.recv(&mut answer).unwrap();
        assert_eq!((answer[1], answer[3] & 15), (7, 3), "NXDOMAIN for this question");
    }

    #[test]
    fn what_is_no_question_for_a_host_is_not_noted() {
        let (mut names, client) = served();
        for bytes in [&b"x"[..], &[0xff; 2000], &question("\u{1b}[2J.test"), &question("a b.test")] {
            client.send(bytes).unwrap();
        }
        names.answer();
        assert!(names.names().is_empty() && !names.has_more(), "{names:?}");
    }

    #[test]
    fn the_names_and_the_questions_are_bounded() {
        let (mut names, client) = served();
        for number in 0..MAX_QUESTIONS {
            client.send(&question(&format!("n{number}.test"))).unwrap();
            names.answer();
        }
        assert!(names.names().len() == MAX_NAMES && names.has_more());
        assert!(names.fd().is_none(), "the port is closed");
    }
}
