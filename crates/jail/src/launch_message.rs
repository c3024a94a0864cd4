//! Message to a warm sandbox that a launch wants: the plan, the mounts that it asks for, and what tells the files of the
//! workspace apart.
//!
//! It comes over the guest channel before that is handed to anybody, and is read to its last byte and no further: what
//! follows is for the guest.

use nexus_channel::codec::{self, HEADER};
use nexus_channel::descriptors;
use nexus_model::Plan;
use nexus_model::moving::Numbers;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags};
use std::io;

/// Maximum number of mounts in one message. A plan with more is launched without a warm sandbox.
pub const MAX: usize = 32;

const _: () = assert!(MAX <= descriptors::MAX, "the mounts of a plan fit into one message");

/// Sends it; the mounts go with the first byte.
pub fn send(channel: &OwnedFd, plan: &Plan, numbers: Numbers, mounts: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = codec::encode(&(plan, numbers)).map_err(io::Error::other)?;
    let sent = descriptors::send(channel, &bytes, mounts, SendFlags::empty())?;
    let mut rest = &bytes[sent..];
    while !rest.is_empty() {
        let sent = rustix::io::retry_on_intr(|| rustix::net::send(channel, rest, SendFlags::NOSIGNAL))?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// Waits for the message. An end of the channel means that no launch wanted this sandbox.
pub fn receive(channel: &OwnedFd) -> io::Result<(Plan, Numbers, Vec<OwnedFd>)> {
    let mut header = [0; HEADER];
    let first = descriptors::receive(channel, &mut header, RecvFlags::empty())?;
    if first.is_truncated {
        return Err(io::Error::other("not every mount of the plan came"));
    }
    fill(channel, &mut header[first.bytes..])?;
    let mut payload = vec![0; codec::payload_len(header).map_err(io::Error::other)?];
    fill(channel, &mut payload)?;
    let (plan, numbers) = codec::decode(&payload).map_err(io::Error::other)?;
    Ok((plan, numbers, first.descriptors))
}

/// Reads until the buffer is full.
pub fn fill(channel: &OwnedFd, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut *buffer))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer = &mut buffer[count..],
        }
    }
    Ok(())
}
