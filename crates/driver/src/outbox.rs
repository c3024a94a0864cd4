//! Frames that the guest has not taken yet.
//!
//! ```text
//!  post ─▶ [frame, frame, …] ─flush (poll: writable)─▶ channel        too much waits: `Full`, and the sandbox is to be ended
//! ```
//! A guest that takes nothing must not hold up the host: the thread that serves a sandbox also watches its time limit.
//! So nothing is ever sent with a wait.

use nexus_channel::codec::{self, HEADER, MAX_FRAME};
use nexus_channel::frames::HostFrame;
use nexus_channel::{Channel, ChannelError};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The most bytes that wait: a largest request, and as much again for signals and sizes.
const MAX_WAITING: usize = 2 * MAX_FRAME;

/// Time after which descriptors are sent again that the kernel did not let out (unix(7), ETOOMANYREFS).
const PAUSE: Duration = Duration::from_millis(20);

/// The time for which they are offered. Other sandboxes of the same user may keep all that the kernel lets out.
const MAX_PAUSES: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Letter {
    /// Wiped afterwards: an environment or the value of a secret may be in it.
    bytes: Zeroizing<Vec<u8>>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
    /// The command that this resizes; a later size takes its place.
    resizes: Option<u32>,
}

/// The way to a guest.
#[derive(Debug)]
pub struct Outbox {
    channel: Channel,
    waiting: VecDeque<Letter>,
    bytes: usize,
    /// Since when the kernel lets no descriptors out, and when the next attempt is made.
    paused: Option<(Instant, Instant)>,
}

impl Outbox {
    /// Makes an empty outbox.
    pub fn new(channel: Channel) -> Self {
        Self { channel, waiting: VecDeque::new(), bytes: 0, paused: None }
    }

    /// Reports whether there is room for a request that can also be refused. Half of the room stays for what cannot.
    pub fn has_room(&self) -> bool {
        self.bytes < MAX_WAITING / 2
    }

    /// Sends the value of a secret, which the set-up of the sandbox reads before the guest reads its first frame.
    pub fn post_secret(&mut self, value: &[u8]) -> Result<(), ChannelError> {
        let length = u32::try_from(value.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
        let length = length.ok_or(codec::FrameError::TooLong { bytes: value.len() })?;
        if self.bytes + HEADER + value.len() > MAX_WAITING {
            return Err(ChannelError::Full);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER + value.len()));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(value);
        self.bytes += bytes.len();
        self.waiting.push_back(Letter { bytes, sent: 0, descriptors: Vec::new(), resizes: None });
        self.flush()
    }

    /// Sends a frame, now or as soon as the guest takes it.
    pub fn post(&mut self, frame: &HostFrame, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let bytes = Zeroizing::new(codec::encode(frame)?);
        let resizes = if let HostFrame::Resize { exec, .. } = frame { Some(*exec) } else { None };
        let older = |letter: &&mut Letter| letter.resizes == resizes && letter.sent == 0;
        if let Some(older) = resizes.and_then(|_| self.waiting.iter_mut().find(older)) {
            self.bytes = self.bytes - older.bytes.len() + bytes.len();
            older.bytes = bytes;
            return self.flush();
        }
        if self.bytes + bytes.len() > MAX_WAITING {
            return Err(ChannelError::Full);
        }
        let own = descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect::<Result<_, _>>();
        let descriptors = own.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
        self.bytes += bytes.len();
        self.waiting.push_back(Letter { bytes, sent: 0, descriptors, resizes });
        self.flush()
    }

    /// Sends what the guest takes now.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        if self.paused.is_some_and(|(_, next)| Instant::now() < next) {
            return Ok(());
        }
        while let Some(letter) = self.waiting.front_mut() {
            let descriptors: Vec<_> = letter.descriptors.iter().map(rustix::fd::AsFd::as_fd).collect();
            let sent = match self.channel.send_ready(&letter.bytes[letter.sent..], &descriptors) {
                Err(ChannelError::Io(Errno::TOOMANYREFS)) => return self.pause(),
                other => other?,
            };
            self.paused = None;
            if sent == 0 {
                return Ok(());
            }
            // They went with the first byte.
            letter.descriptors.clear();
            letter.sent += sent;
            self.bytes -= sent;
            if letter.sent == letter.bytes.len() {
                self.waiting.pop_front();
            }
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), ChannelError> {
        let now = Instant::now();
        let since = self.paused.map_or(now, |(since, _)| since);
        if now.duration_since(since) >= MAX_PAUSES {
            return Err(ChannelError::Io(Errno::TOOMANYREFS));
        }
        self.paused = Some((since, now + PAUSE));
        Ok(())
    }

    /// Reports whether [`Outbox::flush`] is to be called when the channel is writable.
    pub fn wants_to_write(&self) -> bool {
        !self.waiting.is_empty() && self.paused.is_none()
    }

    /// Returns when [`Outbox::flush`] is to be called whatever the channel does.
    pub fn next_event(&self) -> Option<Instant> {
        self.paused.map(|(_, next)| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_channel::frames::TerminalSize;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    fn pair() -> (Outbox, Channel) {
        let flags = SocketFlags::CLOEXEC;
        let (host, guest) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (Outbox::new(Channel::new(host)), Channel::new(guest))
    }

    #[test]
    fn a_guest_that_takes_nothing_holds_up_no_sender() {
        let (mut outbox, guest) = pair();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut posted = 0u8;
        let full = loop {
            let frame = HostFrame::Signal { exec: Some(u32::from(posted)), signal: 15 };
            // The bytes of a frame do not matter to the outbox; these fill it sooner.
            let padding = HostFrame::Hello { version: 1 };
            match outbox.post(&frame, &[reader.as_fd()]).and_then(|()| fill(&mut outbox, &padding)) {
                Ok(()) => posted = posted.wrapping_add(1),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, ChannelError::Full), "{full}");
        assert!(!outbox.has_room() && outbox.wants_to_write());
        let (frame, descriptors) = guest.receive::<HostFrame>().unwrap();
        assert_eq!((frame, descriptors.len()), (HostFrame::Signal { exec: Some(0), signal: 15 }, 1));
    }

    fn fill(outbox: &mut Outbox, frame: &HostFrame) -> Result<(), ChannelError> {
        (0..50_000).try_for_each(|_| outbox.post(frame, &[]))
    }

    #[test]
    fn what_waits_arrives_in_order_with_its_descriptors() {
        let (mut outbox, guest) = pair();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut posted = 0;
        while !outbox.wants_to_write() {
            outbox.post(&HostFrame::Forward { forward: posted, port: 80 }, &[]).unwrap();
            posted += 1;
        }
        outbox.post(&HostFrame::Forward { forward: posted, port: 80 }, &[reader.as_fd()]).unwrap();
        drop(reader);
        for number in 0..=posted {
            let (frame, descriptors) = guest.receive::<HostFrame>().unwrap();
            outbox.flush().unwrap();
            assert_eq!(frame, HostFrame::Forward { forward: number, port: 80 });
            assert_eq!(descriptors.len(), usize::from(number == posted));
        }
        assert!(!outbox.wants_to_write() && outbox.bytes == 0);
    }

    #[test]
    fn a_window_that_is_dragged_keeps_one_size_waiting() {
        let (mut outbox, _guest) = pair();
        while !outbox.wants_to_write() {
            outbox.post(&HostFrame::Shutdown, &[]).unwrap();
        }
        let before = outbox.waiting.len();
        for rows in 0..10_000 {
            outbox.post(&HostFrame::Resize { exec: 1, size: TerminalSize { rows, cols: 80 } }, &[]).unwrap();
        }
        assert_eq!(outbox.waiting.len(), before + 1);
    }
}
