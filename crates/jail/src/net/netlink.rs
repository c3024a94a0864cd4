//! Netlink messages by hand (netlink(7)): the `ip` and `nft` programs would cost 5 to 8 ms each, a message 0.1.
//!
//! Pure but for [`exchange`], which sends messages and reads one acknowledgement for each that asks for one.

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

/// Asks for an acknowledgement; a message without an answer is a failure here.
const REQUEST_ACK: u16 = 0x1 | 0x4;
const REQUEST: u16 = 0x1;
/// Make something that is not there yet (NLM_F_CREATE | NLM_F_EXCL).
const CREATE: u16 = 0x400 | 0x200;
/// Make it behind what is there (NLM_F_CREATE | NLM_F_APPEND).
const APPEND: u16 = 0x400 | 0x800;
/// The type of an acknowledgement (NLMSG_ERROR); error 0 is success.
const ACKNOWLEDGEMENT: u16 = 2;
const HEADER: usize = 16;
/// Marks an attribute that holds attributes (NLA_F_NESTED).
const NESTED: u16 = 0x8000;

/// Messages that are sent together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Messages {
    bytes: Vec<u8>,
    count: u32,
    acknowledged: u32,
}

impl Messages {
    /// Adds a message that makes something; the kernel acknowledges it.
    pub fn create(&mut self, kind: u16, fixed: &[u8], attributes: &[Attribute]) {
        self.acknowledged += 1;
        self.add(kind, REQUEST_ACK | CREATE, fixed, attributes);
    }

    /// The same for something that has a place in a list: at its end.
    pub fn append(&mut self, kind: u16, fixed: &[u8], attributes: &[Attribute]) {
        self.acknowledged += 1;
        self.add(kind, REQUEST_ACK | APPEND, fixed, attributes);
    }

    /// Adds a message that only frames others.
    pub fn add_frame(&mut self, kind: u16, fixed: &[u8]) {
        self.add(kind, REQUEST, fixed, &[]);
    }

    fn add(&mut self, kind: u16, flags: u16, fixed: &[u8], attributes: &[Attribute]) {
        self.count += 1;
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(fixed);
        for attribute in attributes {
            attribute.write(&mut self.bytes);
        }
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        pad(&mut self.bytes);
    }
}

/// A typed value in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    kind: u16,
    value: Vec<u8>,
}

impl Attribute {
    /// Bytes as they are.
    pub fn bytes(kind: u16, value: &[u8]) -> Self {
        Self { kind, value: value.to_vec() }
    }

    /// A name with its NUL.
    pub fn name(kind: u16, value: &str) -> Self {
        Self { kind, value: [value.as_bytes(), &[0]].concat() }
    }

    /// A number in network order, as nf_tables wants them all.
    pub fn number(kind: u16, value: u32) -> Self {
        Self { kind, value: value.to_be_bytes().to_vec() }
    }

    /// Attributes in an attribute.
    pub fn nested(kind: u16, inner: &[Attribute]) -> Self {
        let mut value = Vec::new();
        for attribute in inner {
            attribute.write(&mut value);
        }
        Self { kind: kind | NESTED, value }
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend((self.value.len() as u16 + 4).to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(&self.value);
        pad(to);
    }
}

/// Messages and attributes start at multiples of four.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Sends the messages; every one that makes something must be acknowledged without an error.
pub fn exchange(protocol: Option<Protocol>, messages: &Messages) -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let sent = rustix::net::send(&socket, &messages.bytes, SendFlags::empty())?;
    if sent != messages.bytes.len() {
        return Err(io::Error::other("the kernel took only a part of a netlink message"));
    }
    let mut missing = messages.acknowledged;
    let mut buffer = vec![0u8; 16 * 1024];
    while missing > 0 {
        // The kernel has answered before `send` returns; waiting for more would be for ever.
        let (_, length) = match rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return Err(io::Error::other("the kernel left a netlink message unanswered")),
            other => other?,
        };
        let answers = buffer.get(..length).ok_or_else(|| io::Error::other("a netlink answer is too long"))?;
        missing = missing.saturating_sub(acknowledged(answers)?);
    }
    Ok(())
}

/// Returns the number of acknowledgements in these answers; the first error among them is the result.
fn acknowledged(mut answers: &[u8]) -> io::Result<u32> {
    let malformed = || io::Error::other("a netlink answer is malformed");
    let mut count = 0;
    while !answers.is_empty() {
        let header = answers.first_chunk::<HEADER>().ok_or_else(malformed)?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let error = answers.get(HEADER..HEADER + 4).ok_or_else(malformed)?;
        if kind != ACKNOWLEDGEMENT || length < HEADER + 4 {
            return Err(malformed());
        }
        match i32::from_ne_bytes([error[0], error[1], error[2], error[3]]) {
            0 => count += 1,
            errno => return Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        }
        answers = answers.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_padded_and_tells_its_length() {
        let mut messages = Messages::default();
        messages.create(24, &[1, 2, 3, 4], &[Attribute::name(1, "lo")]);
        messages.add_frame(17, &[0; 4]);
        // header 16, fixed 4, attribute 4 + 3, padded to 28; then header 16 and fixed 4
        assert_eq!(messages.bytes.len(), 28 + 20);
        assert_eq!(messages.bytes[..4], 28u32.to_ne_bytes());
        assert_eq!(messages.bytes[20..28], [7, 0, 1, 0, b'l', b'o', 0, 0]);
        assert_eq!((messages.count, messages.acknowledged), (2, 1));
    }

    #[test]
    fn nested_attributes_are_marked_and_numbers_are_in_network_order() {
        let outer = Attribute::nested(4, &[Attribute::number(1, 3)]);
        let mut bytes = Vec::new();
        outer.write(&mut bytes);
        assert_eq!(bytes, [12, 0, 4, 0x80, 8, 0, 1, 0, 0, 0, 0, 3]);
    }

    #[test]
    fn an_error_among_the_answers_is_the_result() {
        let answer = |errno: i32| {
            let mut bytes = vec![0u8; 36];
            bytes[..4].copy_from_slice(&36u32.to_ne_bytes());
            bytes[4..6].copy_from_slice(&ACKNOWLEDGEMENT.to_ne_bytes());
            bytes[16..20].copy_from_slice(&errno.to_ne_bytes());
            bytes
        };
        assert_eq!(acknowledged(&[answer(0), answer(0)].concat()).unwrap(), 2);
        let error = acknowledged(&[answer(0), answer(-libc::EPERM)].concat()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(acknowledged(&[0; 7]).is_err());
        assert!(acknowledged(&[0; 36]).is_err());
    }
}
