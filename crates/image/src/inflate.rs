//! Unpacks a compressed stream, and bounds what comes out.

use crate::error::ImageError;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// Largest window of a zstd stream, as a power of two: memory that the stream asks for.
const ZSTD_WINDOW: u32 = 27;

/// Opens a stream by its first bytes: gzip, zstd, or the bytes themselves.
pub fn open(stream: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    // A reader may give less at once; four bytes are asked for until they are there or the stream ends.
    let mut first = [0; 4];
    let mut have = 0;
    while have < first.len() {
        match stream.read(&mut first[have..])? {
            0 => break,
            read => have += read,
        }
    }
    let whole = BufReader::with_capacity(64 << 10, io::Cursor::new(first[..have].to_vec()).chain(stream));
    Ok(match first {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(Zstd::new(whole)?),
        _ => Box::new(whole),
    })
}

struct Zstd<R> {
    input: R,
    context: DCtx<'static>,
    /// Set while a frame is not complete.
    within: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> io::Result<Self> {
        let mut context = DCtx::create();
        context.set_parameter(zstd_safe::DParameter::WindowLogMax(ZSTD_WINDOW)).map_err(failed)?;
        Ok(Self { input, context, within: true })
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let bytes = self.input.fill_buf()?;
            let at_end = bytes.is_empty();
            if at_end && !self.within {
                return Ok(0);
            }
            let mut input = InBuffer::around(bytes);
            let mut output = OutBuffer::around(&mut *buffer);
            let hint = self.context.decompress_stream(&mut output, &mut input).map_err(failed)?;
            let (taken, made) = (input.pos(), output.pos());
            self.within = hint != 0;
            self.input.consume(taken);
            if made > 0 {
                return Ok(made);
            }
            if at_end && self.within {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, zstd_safe::get_error_name(code))
}

/// Passes on so many bytes and fails with the next one; the error says so through [`Bounded::is_over`].
pub struct Bounded<R> {
    inner: R,
    left: u64,
    is_over: bool,
}

impl<R: Read> Bounded<R> {
    /// Wraps a reader of which so many bytes may be read.
    pub fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most, is_over: false }
    }

    /// Returns true when there was more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if room == 0 && !buffer.is_empty() {
            let mut one = [0];
            if self.inner.read(&mut one)? == 0 {
                return Ok(0);
            }
            self.is_over = true;
            return Err(io::Error::other("there is more than is taken"));
        }
        let read = self.inner.read(&mut buffer[..room])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads a document of at most so many bytes.
pub fn read_document(stream: impl Read, what: &str, most: u64) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    let mut bounded = Bounded::new(stream, most);
    match bounded.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(_) if bounded.is_over() => Err(ImageError::TooMuch { what: format!("bytes of {what}"), most }),
        Err(source) => Err(ImageError::Layer { source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
        let length = zstd_safe::compress(packed.as_mut_slice(), bytes, 3).unwrap();
        packed.truncate(length);
        packed
    }

    #[test]
    fn streams_of_every_kind_become_what_they_were_and_a_cut_is_an_error() {
        let content: Vec<u8> = (0..300_000u32).flat_map(|number| (number % 1000).to_le_bytes()).collect();
        let mut gzip = flate2::read::GzEncoder::new(&content[..], flate2::Compression::fast());
        let mut gzipped = Vec::new();
        gzip.read_to_end(&mut gzipped).unwrap();
        let read = |bytes: Vec<u8>| {
            let mut all = Vec::new();
            open(io::Cursor::new(bytes)).and_then(|mut stream| stream.read_to_end(&mut all)).map(|_| all)
        };
        for packed in [gzipped, zstd(&content)] {
            assert!(packed.len() < content.len() / 2);
            assert!(read(packed.clone()).unwrap() == content);
            for cut in [packed.len() - 1, packed.len() / 2, 20] {
                assert!(read(packed[..cut].to_vec()).is_err(), "{cut}");
            }
        }
        assert!(read(content.clone()).unwrap() == content);
        let two = [zstd(b"one "), zstd(b"two")].concat();
        assert_eq!(read(two).unwrap(), b"one two");
    }

    #[test]
    fn a_bounded_stream_fails_with_the_first_byte_too_many() {
        let mut all = Vec::new();
        assert_eq!(Bounded::new(&b"12345"[..], 5).read_to_end(&mut all).unwrap(), 5);
        let mut short = Bounded::new(&b"12345"[..], 4);
        assert!(short.read_to_end(&mut all).is_err() && short.is_over());
    }
}
