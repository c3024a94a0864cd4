use super::*;
use crate::live::pipes;
use rustix::event::{PollFd, Timespec, poll};
use rustix::fd::AsFd;
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;

/// A command that reads its standard input when a test says so.
struct Command {
    feed: Feed,
    end: File,
}

impl Command {
    fn with(source: BorrowedFd<'_>) -> Self {
        let (to, end) = pipes::stdin_pair(true).unwrap();
        let command = File::from(end.try_clone().unwrap());
        let feed = Feed::new(InputSource::new(source).unwrap(), to.unwrap(), end);
        Self { feed, end: command }
    }

    fn step(&mut self) {
        self.feed.step().unwrap();
        while self.feed.next_event().is_some_and(|at| at <= Instant::now()) {
            self.feed.step().unwrap();
        }
    }

    fn read(&mut self, count: usize) -> Vec<u8> {
        self.step();
        // Blocks for ever, were the bytes not there.
        let mut bytes = vec![0; count];
        self.end.read_exact(&mut bytes).unwrap();
        bytes
    }
}

fn pipe() -> (File, File) {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    (read.into(), write.into())
}

fn rest(mut from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

/// Steps when a descriptor is ready or the time has come, and never otherwise.
fn serve(feed: &mut Feed, is_over: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_over() {
        assert!(Instant::now() < until, "nothing wakes the feed");
        let mut list: Vec<_> = feed.watch().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let is_ready = poll(&mut list, Some(&pause)).unwrap() > 0;
        if is_ready || feed.next_event().is_some_and(|at| at <= Instant::now()) {
            feed.step().unwrap();
        }
    }
}

#[test]
fn a_pipe_keeps_what_the_command_did_not_read() {
    let (read, mut write) = pipe();
    write.write_all(b"one two three").unwrap();
    let mut command = Command::with(read.as_fd());
    assert_eq!(command.read(4), b"one ");
    command.step();
    assert_eq!(command.read(4), b"two ");
    write.write_all(b" four").unwrap();
    command.feed.settle().unwrap();
    drop(write);
    assert_eq!(rest(read), b"three four");
}

#[test]
fn a_socket_keeps_what_the_command_did_not_read() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    for word in ["one ", "two ", "three"] {
        theirs.write_all(word.as_bytes()).unwrap();
    }
    let mut command = Command::with(ours.as_fd());
    assert_eq!(command.read(6), b"one tw");
    command.feed.settle().unwrap();
    drop(theirs);
    assert_eq!(rest(ours), b"o three");
}

#[test]
fn a_file_stays_at_the_last_byte_that_was_read() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"one two three").unwrap();
    file.seek(io::SeekFrom::Start(4)).unwrap();
    let mut command = Command::with(file.as_fd());
    command.step();
    assert_eq!(file.stream_position().unwrap(), 4);
    assert_eq!(command.read(4), b"two ");
    command.feed.settle().unwrap();
    assert_eq!(rest(file), b"three");
}

#[test]
fn an_end_arrives_behind_all_bytes() {
    let (read, mut write) = pipe();
    let mut command = Command::with(read.as_fd());
    write.write_all(b"all").unwrap();
    drop(write);
    command.step();
    assert_eq!(rest(&command.end), b"all");
    command.feed.settle().unwrap();
    assert_eq!(rest(read), b"");
}

#[test]
fn bytes_arrive_in_order_whatever_their_pieces() {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let (read, mut write) = pipe();
    let mut command = Command::with(read.as_fd());
    let expected = bytes.clone();
    let writer = std::thread::spawn(move || {
        for (number, part) in bytes.chunks(1789).enumerate() {
            write.write_all(part).unwrap();
            if number % 300 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let mut end = command.end.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut all, mut size) = (Vec::new(), 1);
        let mut buffer = vec![0; 100_000];
        loop {
            match end.read(&mut buffer[..size]).unwrap() {
                0 => return all,
                count => all.extend_from_slice(&buffer[..count]),
            }
            size = size * 7 % 99_991 + 1;
        }
    });
    serve(&mut command.feed, || reader.is_finished());
    writer.join().unwrap();
    assert!(reader.join().unwrap() == expected, "the bytes differ");
}

#[test]
fn a_writer_of_small_pieces_is_not_held_up() {
    // Each piece takes a place of its own in the caller's pipe, and all of them few bytes in the command's.
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT).unwrap();
    let mut command = Command::with(read.as_fd());
    let writer = std::thread::spawn(move || {
        (0..2000u32).for_each(|number| assert_eq!(rustix::io::write(&write, &[(number % 251) as u8]), Ok(1)));
    });
    let mut end = command.end.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        for number in 0..2000u32 {
            let mut byte = [0];
            end.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [(number % 251) as u8]);
        }
    });
    serve(&mut command.feed, || reader.is_finished());
    reader.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn a_command_that_writes_into_its_own_input_takes_no_more() {
    let (read, mut write) = pipe();
    write.write_all(b"one two").unwrap();
    let mut command = Command::with(read.as_fd());
    command.step();
    rustix::io::write(command.feed.to.as_ref().unwrap(), b"forged by the command").unwrap();
    assert_eq!(command.read(4), b"one ");
    command.feed.settle().unwrap();
    drop(write);
    assert_eq!(rest(read), b"one two", "what is in doubt stays with the caller");
}

#[test]
fn a_command_that_never_reads_costs_few_looks() {
    let (read, mut write) = pipe();
    write.write_all(b"never read").unwrap();
    let mut command = Command::with(read.as_fd());
    let mut looks = 0;
    let began = Instant::now();
    command.step();
    while let Some(at) = command.feed.next_event().filter(|_| began.elapsed() < Duration::from_millis(500)) {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        command.feed.step().unwrap();
        looks += 1;
    }
    assert!(looks < 30, "{looks} looks in half a second");
    drop(write);
    command.step();
    assert_eq!(command.feed.next_event(), None, "no writer waits any more");
}

#[test]
fn only_streams_and_files_can_be_left() {
    let (read, write) = pipe();
    let (stream, _other) = UnixStream::pair().unwrap();
    let (packets, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let named = tempfile::NamedTempFile::new().unwrap();
    let file = File::open(named.path()).unwrap();
    assert!([read.as_fd(), stream.as_fd(), file.as_fd()].into_iter().all(can_be_left));
    let device = File::open("/dev/zero").unwrap();
    assert!(![write.as_fd(), packets.as_fd(), device.as_fd()].into_iter().any(can_be_left));
    // Its output would be written where its input is.
    assert!(!can_be_left(named.as_file().as_fd()));
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(!can_be_left(server.as_fd()), "there is no other side");
    // A read of such a file may wait for another process or machine.
    assert!(!can_be_left(File::open("/proc/version").unwrap().as_fd()));
}
