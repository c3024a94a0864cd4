//! One slot for a note: a file that stays, is never renamed, and is written in place.
//!
//! ```text
//!  0        form, so that a later program knows it
//!  64       digest, length, nonce and text of the beginning; a digest of zeros: the slot is free
//!  16 KiB   digest, length, the same nonce, and text of the result
//! ```
//! A slot is made once with its bytes, so that later writes change no size and no directory. A beginning takes a new nonce: a
//! result of an earlier note is not one of this note. What a power cut tore has another digest than it says: a torn result is
//! none, and a torn beginning is damage, which stays.

use nexus_model::{Digest, RunId};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// First bytes of a slot.
const FORM: &[u8; 16] = b"nexus claim 1\n\n\n";
/// Place of the beginning.
const BEGINNING: u64 = 64;
/// Place of the result.
const RESULT: u64 = 16 << 10;
/// Bytes of a new slot.
const SIZE: usize = 64 << 10;
/// Bytes before a text: digest in hexadecimal, length, nonce.
const HEAD: usize = 64 + 8 + 16;
/// Longest text, in bytes.
const MAX_TEXT: u64 = 64 << 20;
/// A slot that a large result made larger than this is cut when it is free.
const MAX_FREE: u64 = 1 << 20;

const PREFIX: &str = "slot-";

/// Returns the number of a slot by the name of its file.
#[must_use]
pub fn number(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Reads and writes the file of one slot.
#[derive(Debug)]
pub struct Slot {
    path: PathBuf,
}

impl Slot {
    /// Names a slot of a directory. It is made with its first note.
    #[must_use]
    pub fn at(directory: &Path, number: usize) -> Self {
        Self { path: directory.join(format!("{PREFIX}{number}")) }
    }

    /// Writes the beginning of a note, over whatever the slot held, and brings it to the disk.
    pub fn begin(&self, text: &[u8]) -> io::Result<()> {
        if text.len() as u64 > RESULT - BEGINNING - HEAD as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the note of a claim is too long"));
        }
        let file = self.open(true)?;
        file.write_all_at(&sealed(RunId::new().as_bytes(), text), BEGINNING)?;
        file.sync_data()
    }

    /// Adds the result to the note, and brings it to the disk.
    pub fn add_result(&self, text: &[u8]) -> io::Result<()> {
        let file = self.open(true)?;
        let nonce = if let Some((nonce, _)) = unsealed(&file, BEGINNING)? {
            nonce
        } else {
            // A note of the version before has no beginning here: its result stands for both.
            let nonce = *RunId::new().as_bytes();
            file.write_all_at(&sealed(&nonce, b"{}"), BEGINNING)?;
            nonce
        };
        file.write_all_at(&sealed(&nonce, text), RESULT)?;
        file.sync_data()
    }

    /// Frees the slot. This waits for no disk.
    pub fn clear(&self) -> io::Result<()> {
        let file = self.open(false)?;
        if file.metadata()?.len() > MAX_FREE {
            file.set_len(SIZE as u64)?;
        }
        file.write_all_at(&[b'0'; 64], BEGINNING)
    }

    /// Returns the text of the note: its result, or else its beginning; `None` when the slot is free.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        text_of(&self.open(false)?)
    }

    fn open(&self, make: bool) -> io::Result<File> {
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = match options.open(&self.path) {
            Err(error) if make && error.kind() == io::ErrorKind::NotFound => self.make(&options)?,
            other => other?,
        };
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"))
    }

    /// Makes the file, whole before it has its name.
    fn make(&self, options: &std::fs::OpenOptions) -> io::Result<File> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = directory.join(format!(".new-{name}"));
        let file = options.clone().create(true).truncate(true).open(&hidden)?;
        let made = (|| {
            let mut bytes = vec![0; SIZE];
            bytes[..FORM.len()].copy_from_slice(FORM);
            bytes[BEGINNING as usize..][..64].fill(b'0');
            file.write_all_at(&bytes, 0)?;
            file.sync_all()?;
            std::fs::rename(&hidden, &self.path)?;
            File::open(directory)?.sync_all()
        })();
        if let Err(error) = made {
            // The error that matters is the first one.
            std::fs::remove_file(&hidden).ok();
            return Err(error);
        }
        Ok(file)
    }
}

/// Puts the head before a text.
fn sealed(nonce: &[u8; 16], text: &[u8]) -> Vec<u8> {
    let mut rest = (text.len() as u64).to_le_bytes().to_vec();
    rest.extend_from_slice(nonce);
    rest.extend_from_slice(text);
    let mut bytes = Digest::of(&rest).hex().into_bytes();
    bytes.extend(rest);
    bytes
}

/// Bytes of a slot, in a file or in memory.
pub trait SlotBytes {
    /// Fills the buffer from this place on. Too few bytes are an error.
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<()>;
    /// Number of bytes.
    fn size(&self) -> io::Result<u64>;
}

impl SlotBytes for File {
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<()> {
        self.read_exact_at(buffer, place)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl SlotBytes for [u8] {
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<()> {
        let place = usize::try_from(place).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let found = self.get(place..).and_then(|rest| rest.get(..buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Returns the text of the note in these bytes of a slot: its result, or else its beginning; `None` when the slot is free.
pub fn text_of<S: SlotBytes + ?Sized>(bytes: &S) -> io::Result<Option<Vec<u8>>> {
    let mut form = [0; FORM.len()];
    bytes.read_at(&mut form, 0)?;
    if form != *FORM {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another form"));
    }
    let Some((nonce, text)) = unsealed(bytes, BEGINNING)? else { return Ok(None) };
    match unsealed(bytes, RESULT) {
        Ok(Some((of, result))) if of == nonce => Ok(Some(result)),
        // Torn, or of an earlier note.
        _ => Ok(Some(text)),
    }
}

/// Reads a text with its nonce; `None` where there is none.
fn unsealed<S: SlotBytes + ?Sized>(bytes: &S, place: u64) -> io::Result<Option<([u8; 16], Vec<u8>)>> {
    let damaged = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut head = [0; HEAD];
    bytes.read_at(&mut head, place)?;
    let (digest, rest) = head.split_at(64);
    if digest == [b'0'; 64] || digest == [0; 64] {
        return Ok(None);
    }
    let (length, nonce) = rest.split_at(8);
    let length = u64::from_le_bytes(length.try_into().map_err(|_| damaged("it is torn"))?);
    // Nothing is taken from the heap for a text that the slot cannot hold.
    if length > MAX_TEXT.min(bytes.size()?.saturating_sub(place + HEAD as u64)) {
        return Err(damaged("it is torn"));
    }
    let mut text = vec![0; usize::try_from(length).map_err(|_| damaged("it is torn"))?];
    bytes.read_at(&mut text, place + HEAD as u64)?;
    let nonce: [u8; 16] = nonce.try_into().map_err(|_| damaged("it is torn"))?;
    if sealed(&nonce, &text).get(..64) != Some(digest) {
        return Err(damaged("it is torn"));
    }
    Ok(Some((nonce, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_result_is_none_and_a_torn_beginning_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot::at(dir.path(), 0);
        slot.begin(b"one").unwrap();
        slot.add_result(&vec![b'r'; 100_000]).unwrap();
        assert_eq!(slot.read().unwrap().unwrap().len(), 100_000);
        let path = dir.path().join("slot-0");
        let whole = std::fs::read(&path).unwrap();
        // A power cut may leave any part of what was written, with zeros or the bytes before in its place.
        for at in (RESULT as usize..whole.len()).step_by(4096) {
            let mut torn = whole.clone();
            let end = torn.len().min(at + 512);
            torn[at..end].fill(0);
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(slot.read().unwrap().unwrap(), b"one", "{at}");
        }
        let mut torn = whole.clone();
        torn[BEGINNING as usize + HEAD] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        assert!(slot.read().is_err());
        std::fs::write(&path, &whole[..100]).unwrap();
        assert!(slot.read().is_err());
    }

    #[test]
    fn a_result_of_an_earlier_note_is_none_of_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot::at(dir.path(), 3);
        slot.begin(b"one").unwrap();
        slot.add_result(b"result").unwrap();
        slot.clear().unwrap();
        assert_eq!(slot.read().unwrap(), None);
        slot.begin(b"one").unwrap();
        assert_eq!(slot.read().unwrap().unwrap(), b"one");
        slot.add_result(b"other").unwrap();
        assert_eq!(slot.read().unwrap().unwrap(), b"other");
        assert!(slot.begin(&vec![0; 16 << 10]).is_err(), "it would reach into the result");
    }

    #[test]
    fn a_slot_changes_no_size_for_usual_notes_and_shrinks_when_free() {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot::at(dir.path(), 0);
        let size = || std::fs::metadata(dir.path().join("slot-0")).unwrap().len();
        slot.begin(b"one").unwrap();
        slot.add_result(&vec![b'r'; 40_000]).unwrap();
        assert_eq!(size(), SIZE as u64);
        slot.add_result(&vec![b'r'; 2 << 20]).unwrap();
        slot.clear().unwrap();
        assert_eq!(size(), SIZE as u64);
        assert!(number("slot-7") == Some(7) && number("slot--7").is_none() && number("slot-").is_none());
    }
}
