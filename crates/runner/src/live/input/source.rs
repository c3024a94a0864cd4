//! Standard input of the caller, from which a byte is taken only when the command has read it.
//!
//! | kind | copy without taking | take |
//! |---|---|---|
//! | pipe | tee(2) into a pipe of our own, and read that | splice(2) to `/dev/null` |
//! | stream socket | recv(2) with `MSG_PEEK` | recv(2) |
//! | regular file | pread(2) | move the offset |
//!
//! No call waits for another process. Another process that reads the same pipe at the same time takes bytes as it would outside.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketType, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::fs::File;
use std::io;
use std::ops::Range;

/// Holds the caller's standard input.
pub struct InputSource {
    fd: OwnedFd,
    kind: Kind,
}

/// Names the calls that copy and take bytes.
enum Kind {
    /// A pipe, with the pipe that holds copies, `/dev/null`, and the epoll that wakes for new bytes.
    Pipe { copies: OwnedFd, to_copies: OwnedFd, null: OwnedFd, bell: OwnedFd },
    /// A stream socket, with the epoll that wakes for new bytes.
    Socket { bell: OwnedFd },
    /// A file, with the place of the first byte that the command has not read.
    File { at: u64 },
}

/// File systems of this machine's own disks and memory, by the numbers of statfs(2): a read there ends without another
/// process or machine. A file of FUSE, NFS or `/proc` may keep its reader waiting for good.
const LOCAL: &[i64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0xF2F5_2010, // F2FS
    0xCA45_1A4E, // bcachefs
    0x2FC1_2FC1, // ZFS
    0x0102_1994, // tmpfs, memfd_create
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs
    0xE0F5_E1E2, // EROFS
    0x7371_7368, // SquashFS
    0x4D44,      // FAT
    0x2011_BAB0, // exFAT
    0x7366_746E, // NTFS
    0x9660,      // ISO 9660
];

/// Reports whether bytes of this descriptor can be left to the caller: it is a pipe, a connected stream socket or a file of
/// a local file system, and open for reading. An error counts as no.
#[must_use]
pub fn can_be_left(fd: BorrowedFd<'_>) -> bool {
    let is_readable = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| {
        let mode = flags & OFlags::RWMODE;
        !flags.contains(OFlags::PATH) && (mode == OFlags::RDONLY || mode == OFlags::RDWR)
    });
    is_readable
        && match file_type(fd) {
            Ok(FileType::Fifo) => true,
            Ok(FileType::RegularFile) => is_plain_file(fd),
            Ok(FileType::Socket) => is_stream(fd) && rustix::net::getpeername(fd).is_ok(),
            _ => false,
        }
}

/// Reports whether a file is read without waiting for another process, with any offset and length, and is not the output
/// of the caller as well, whose place a moved offset would change.
fn is_plain_file(fd: BorrowedFd<'_>) -> bool {
    let is_local = rustix::fs::fstatfs(fd).is_ok_and(|system| LOCAL.contains(&(system.f_type & 0xFFFF_FFFF)));
    is_local
        && rustix::fs::fcntl_getfl(fd)
            .is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY && !flags.contains(OFlags::DIRECT))
}

fn file_type(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn is_stream(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::STREAM)
}

impl InputSource {
    /// Opens the source over a descriptor for which [`can_be_left`] holds.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let kind = match file_type(fd)? {
            FileType::Fifo => {
                let (copies, to_copies) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                resize(&to_copies, rustix::pipe::fcntl_getpipe_size(fd)?)?;
                let null = File::options().write(true).open("/dev/null")?.into();
                Kind::Pipe { copies, to_copies, null, bell: bell(fd)? }
            }
            FileType::Socket => Kind::Socket { bell: bell(fd)? },
            FileType::RegularFile => Kind::File { at: rustix::fs::seek(fd, SeekFrom::Current(0))? },
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(Self { fd: rustix::io::fcntl_dupfd_cloexec(fd, 3)?, kind })
    }

    /// Enlarges the caller's pipe for a command that reads much, so that writer and command switch less often.
    pub(super) fn widen(&self, size: usize) -> io::Result<()> {
        let Kind::Pipe { to_copies, .. } = &self.kind else { return Ok(()) };
        if rustix::pipe::fcntl_getpipe_size(&self.fd)? < size {
            resize(&self.fd, size)?;
            resize(to_copies, size)?;
        }
        Ok(())
    }

    /// Returns a descriptor that is readable when bytes or the end came since [`Self::silence`]. A file needs none.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Pipe { bell, .. } | Kind::Socket { bell } => Some(bell.as_fd()),
            Kind::File { .. } => None,
        }
    }

    /// Clears the bell.
    pub(super) fn silence(&self) -> io::Result<()> {
        let Some(bell) = self.bell() else { return Ok(()) };
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
        let no_time = Timespec::default();
        match epoll::wait(bell, &mut events, Some(&no_time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports whether no byte is there or will come behind the first `skip` ones. A file says so only when it is read.
    pub(super) fn has_ended(&self, skip: usize) -> io::Result<bool> {
        let end = match self.kind {
            Kind::Pipe { .. } => PollFlags::HUP,
            Kind::Socket { .. } => PollFlags::RDHUP | PollFlags::HUP,
            Kind::File { .. } => return Ok(true),
        };
        let mut list = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut list, Some(&Timespec::default())) {
            Ok(_) if list[0].revents().intersects(end) => Ok(rustix::io::ioctl_fionread(&self.fd)? <= skip as u64),
            Ok(_) | Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies as many bytes as are wanted behind the first `skip` ones, and takes none. Returns their place in the buffer.
    pub(super) fn copy(&self, skip: usize, wanted: usize, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        let all = buffer.len();
        let buffer = &mut buffer[..all.min(skip + wanted)];
        let count = match &self.kind {
            Kind::File { at } => {
                let room = wanted.min(buffer.len());
                return Ok(0..rustix::io::pread(&self.fd, &mut buffer[..room], at + skip as u64)?);
            }
            Kind::Socket { .. } => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                or_none(rustix::net::recv(&self.fd, &mut *buffer, flags).map(|(count, _)| count))?
            }
            Kind::Pipe { copies, to_copies, .. } => {
                let flags = SpliceFlags::NONBLOCK;
                let count = or_none(rustix::pipe::tee(&self.fd, to_copies, buffer.len(), flags))?;
                let mut copied = 0;
                while copied < count {
                    match rustix::io::read(copies, &mut buffer[copied..count]) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(part) => copied += part,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                count
            }
        };
        Ok(skip.min(count)..count)
    }

    /// Takes the first bytes: the command has read them. Stops where another process took them.
    pub(super) fn take(&mut self, count: usize, scratch: &mut [u8]) -> io::Result<()> {
        if let Kind::File { at } = &mut self.kind {
            *at += count as u64;
            rustix::fs::seek(&self.fd, SeekFrom::Start(*at))?;
            return Ok(());
        }
        let mut left = count;
        while left > 0 {
            let taken = if let Kind::Pipe { null, .. } = &self.kind {
                rustix::pipe::splice(&self.fd, None, null, None, left, SpliceFlags::NONBLOCK)
            } else {
                let room = left.min(scratch.len());
                rustix::net::recv(&self.fd, &mut scratch[..room], RecvFlags::DONTWAIT).map(|(count, _)| count)
            };
            match or_none(taken)? {
                0 => break,
                part => left = left.saturating_sub(part),
            }
        }
        Ok(())
    }
}

/// Gives a pipe this size. Over the user's quota it keeps its own, which is only slower.
pub(super) fn resize(pipe: &OwnedFd, size: usize) -> io::Result<()> {
    match rustix::pipe::fcntl_setpipe_size(pipe, size) {
        Ok(_) | Err(Errno::PERM | Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes an epoll that is readable when something came since it was last asked. A level would always be there, since bytes
/// that the command has not read stay.
fn bell(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let bell = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&bell, fd, EventData::new_u64(0), EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)?;
    Ok(bell)
}

/// Counts an empty source as no bytes.
fn or_none(result: rustix::io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}
