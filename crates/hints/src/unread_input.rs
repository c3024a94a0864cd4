//! Reports whether data waits on a descriptor, without reading a byte of it and without waiting.

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, SeekFrom};

/// Reports whether a pipe, a socket or a regular file has data that no process has read. An error counts as no data:
/// this only words a hint.
pub fn is_waiting(input: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(input) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => rustix::io::ioctl_fionread(input).is_ok_and(|count| count > 0),
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            rustix::fs::seek(input, SeekFrom::Current(0)).is_ok_and(|at| at < size)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::{Read, Seek, Write};

    #[test]
    fn data_in_a_pipe_is_seen_and_stays() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        assert!(!is_waiting(read.as_fd()));
        rustix::io::write(&write, b"abc").unwrap();
        assert!(is_waiting(read.as_fd()));
        drop(write);
        let mut all = Vec::new();
        std::fs::File::from(read.try_clone().unwrap()).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abc");
        assert!(!is_waiting(read.as_fd()), "an end is not data");
    }

    #[test]
    fn the_rest_of_a_file_is_seen_and_its_offset_stays() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(!is_waiting(file.as_fd()));
        file.write_all(b"abc").unwrap();
        assert!(!is_waiting(file.as_fd()));
        file.rewind().unwrap();
        assert!(is_waiting(file.as_fd()));
        assert_eq!(file.stream_position().unwrap(), 0);
    }

    #[test]
    fn a_device_holds_no_data() {
        assert!(!is_waiting(std::fs::File::open("/dev/zero").unwrap().as_fd()));
    }
}
