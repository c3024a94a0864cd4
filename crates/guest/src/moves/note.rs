//! Notes that the helper sends to PID 1 right before a directory that it made comes to its new name. A helper that is killed then has
//! left the move half done: done again, by the kernel or by a program, it would bring the old directory into the new one.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// A call, and the directory that was made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) id: u64,
    /// Inode of the directory.
    pub(super) made: u64,
}

impl Note {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.id.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.made.to_ne_bytes());
        bytes
    }

    fn of_bytes(bytes: [u8; 16]) -> Self {
        let [mut id, mut made] = [[0; 8]; 2];
        id.copy_from_slice(&bytes[..8]);
        made.copy_from_slice(&bytes[8..]);
        Self { id: u64::from_ne_bytes(id), made: u64::from_ne_bytes(made) }
    }
}

/// Sends a note to PID 1. A move of which PID 1 does not learn is left to the kernel.
pub(super) fn send_note(socket: &OwnedFd, note: Note) -> Result<(), Errno> {
    match rustix::net::send(socket, &note.to_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(16) => Ok(()),
        Ok(_) | Err(_) => Err(Errno::XDEV),
    }
}

/// Takes the notes that have come, also those of a helper that has ended.
pub(super) fn notes(socket: &OwnedFd) -> Vec<Note> {
    let mut all = Vec::new();
    let mut bytes = [0; 16];
    while let Ok((_, 16)) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        all.push(Note::of_bytes(bytes));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn notes_arrive_also_from_a_process_that_is_gone() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(notes(&ours), []);
        let sent = [Note { id: 7, made: 8 }, Note { id: u64::MAX, made: 1 }];
        for note in sent {
            send_note(&theirs, note).unwrap();
        }
        drop(theirs);
        assert_eq!(notes(&ours), sent);
        assert_eq!(send_note(&ours, sent[0]), Err(Errno::XDEV), "no process has the other end");
    }
}
