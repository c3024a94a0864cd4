//! The part of the FUSE protocol that serves one file: bytes in, bytes out, no I/O.
//!
//! The mount's root is the file itself, so that no directory, name or second inode exists. Fields and numbers are those
//! of `linux/fuse.h`; both sides are one machine, so numbers have its byte order.

/// The largest piece that the kernel may write at once.
pub const MAX_WRITE: usize = 1 << 20;
/// The size of the buffer into which one request is read: a piece and its headers.
pub const REQUEST: usize = MAX_WRITE + 4096;

const HEADER: usize = 40;
const ENOSYS: i32 = 38;
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
const KEEP_CACHE: u32 = 1 << 1;

/// One request of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens the connection.
    Init {
        /// The read-ahead that the kernel offers.
        read_ahead: u32,
    },
    /// Asks for the attributes of the file, or changes them.
    Attributes,
    /// Opens the file.
    Open,
    /// Reads blocks of the disk.
    Read {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        size: u32,
    },
    /// Writes blocks of the disk.
    Write {
        /// The first byte.
        offset: u64,
        /// Bytes to write.
        data: &'a [u8],
    },
    /// Asks that everything written so far is on the disk.
    Sync,
    /// Closes a descriptor, or a process's use of one.
    Close,
    /// Wants no reply.
    Silent,
    /// Is not served.
    Other,
}

/// A request and the number that its reply carries.
#[derive(Debug, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// Number of the request.
    pub unique: u64,
    /// Content of the request.
    pub request: Request<'a>,
}

/// Reads one request; `None` when it is shorter than its kind demands.
pub fn parse(bytes: &[u8]) -> Option<Numbered<'_>> {
    let unique = u64_at(bytes, 8)?;
    let body = bytes.get(HEADER..)?;
    let request = match u32_at(bytes, 4)? {
        26 => Request::Init { read_ahead: u32_at(body, 8)? },
        3 | 4 => Request::Attributes,
        14 => Request::Open,
        15 => Request::Read { offset: u64_at(body, 8)?, size: u32_at(body, 16)? },
        16 => {
            let size = u32_at(body, 16)? as usize;
            Request::Write { offset: u64_at(body, 8)?, data: body.get(40..)?.get(..size)? }
        }
        20 => Request::Sync,
        // FUSE_RELEASE and FUSE_FLUSH: the latter is close(2), which promises nothing about the disk.
        18 | 25 => Request::Close,
        // FUSE_FORGET, FUSE_INTERRUPT and FUSE_BATCH_FORGET.
        2 | 36 | 42 => Request::Silent,
        _ => Request::Other,
    };
    Some(Numbered { unique, request })
}

/// Returns the reply that carries `body`.
pub fn reply(unique: u64, body: &[u8]) -> Vec<u8> {
    framed(unique, 0, body)
}

/// Returns the reply that refuses a request that is not served.
pub fn refusal(unique: u64) -> Vec<u8> {
    framed(unique, -ENOSYS, &[])
}

/// Returns the body that opens the connection.
pub fn init_body(read_ahead: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    for number in [7, 31, read_ahead, BIG_WRITES | MAX_PAGES] {
        put(&mut body, number);
    }
    // max_background and congestion_threshold, 16 bits each.
    put(&mut body, 0);
    put(&mut body, MAX_WRITE as u32);
    put(&mut body, 1);
    // max_pages in the lower 16 bits.
    put(&mut body, (MAX_WRITE / 4096) as u32);
    body.resize(64, 0);
    body
}

/// Returns the attributes of a file of `size` bytes, valid for an hour.
pub fn attributes_body(size: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(104);
    for number in [3600, 0, 1, size, size / 512, 0, 0, 0] {
        body.extend_from_slice(&u64::to_ne_bytes(number));
    }
    // Three parts of time stamps, mode, links, owner, group, device, block size, flags.
    for number in [0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0] {
        put(&mut body, number);
    }
    body
}

/// Returns the body of an opened file: what the kernel has cached of it stays valid.
pub fn open_body() -> Vec<u8> {
    let mut body = vec![0; 8];
    put(&mut body, KEEP_CACHE);
    put(&mut body, 0);
    body
}

/// Returns the body that says how much was written.
pub fn written_body(size: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(8);
    put(&mut body, size as u32);
    put(&mut body, 0);
    body
}

fn framed(unique: u64, error: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + body.len());
    put(&mut out, (16 + body.len()) as u32);
    out.extend_from_slice(&error.to_ne_bytes());
    out.extend_from_slice(&unique.to_ne_bytes());
    out.extend_from_slice(body);
    out
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&9_u64.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_write_carries_its_offset_and_its_bytes() {
        let mut body = vec![0; 40];
        body[8..16].copy_from_slice(&4096_u64.to_ne_bytes());
        body[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        body.extend_from_slice(b"abc");
        let bytes = request(16, &body);
        assert_eq!(
            parse(&bytes).unwrap(),
            Numbered { unique: 9, request: Request::Write { offset: 4096, data: b"abc" } }
        );
    }

    #[test]
    fn a_request_that_is_cut_off_is_not_read() {
        assert_eq!(parse(&request(16, &[0; 39])), None);
        assert_eq!(parse(&[0; 20]), None);
    }

    #[test]
    fn bodies_have_the_lengths_of_the_kernel() {
        let lengths = [init_body(0).len(), attributes_body(8192).len(), open_body().len(), written_body(1).len()];
        assert_eq!(lengths, [64, 104, 16, 8]);
    }
}
