//! Message to a warm sandbox that a launch wants: the plan, and the mounts that the plan asks for.
//!
//! It comes over the guest channel before that is handed to anybody, and is read to its last byte and no further: what
//! follows is for the guest.

use nexus_model::Plan;
use nexus_model::frames::{self, HEADER};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Maximum number of mounts in one message. A plan with more is launched without a warm sandbox.
pub const MAX: usize = 32;

/// Sends it; the mounts go with the first byte.
pub fn send(channel: &OwnedFd, plan: &Plan, mounts: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = frames::encode(plan).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(mounts)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut rest = bytes.as_slice();
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(channel, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL)
    })?;
    rest = &rest[sent..];
    while !rest.is_empty() {
        let sent = rustix::io::retry_on_intr(|| rustix::net::send(channel, rest, SendFlags::NOSIGNAL))?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// Waits for the message. An end of the channel means that no launch wanted this sandbox.
pub fn receive(channel: &OwnedFd) -> io::Result<(Plan, Vec<OwnedFd>)> {
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let first = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut header)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = control.drain().filter_map(|item| match item {
        RecvAncillaryMessage::ScmRights(list) => Some(list),
        _ => None,
    });
    let mounts: Vec<OwnedFd> = rights.flatten().collect();
    fill(channel, &mut header[first.bytes..])?;
    let mut payload = vec![0; frames::payload_len(header).map_err(io::Error::other)?];
    fill(channel, &mut payload)?;
    Ok((frames::decode(&payload).map_err(io::Error::other)?, mounts))
}

fn fill(channel: &OwnedFd, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut *buffer))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer = &mut buffer[count..],
        }
    }
    Ok(())
}
