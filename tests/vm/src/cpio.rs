//! Writes an archive that the kernel unpacks as its first root: cpio in the `newc` form.
//!
//! The form is described in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst: a header of
//! hexadecimal fields, the name with its zero byte, padding to four bytes, the content, padding again.

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// Adds a directory that every user may enter.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, b"")
    }

    /// Adds a file that everybody may read and, as asked, execute.
    pub fn file(&mut self, name: &str, executable: bool, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | if executable { 0o755 } else { 0o644 }, content)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, LINK | 0o777, target.as_bytes())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, b"")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.inode += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        // Inode, mode, uid, gid, links, time, size, four numbers of devices, length of the name, no checksum.
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut header = String::from("070701");
        header.extend(fields.map(|field| format!("{field:08x}")));
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.pad(header.len() + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&b"\0\0\0"[..(4 - written % 4) % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive.directory("dir").unwrap();
        archive.file("dir/file", true, b"hello").unwrap();
        archive.link("link", "dir/file").unwrap();
        archive.finish().unwrap()
    }

    #[test]
    fn every_header_and_every_content_begins_at_a_multiple_of_four() {
        let bytes = archive();
        assert_eq!(bytes.len() % 4, 0);
        let places: Vec<usize> = (0..bytes.len() - 5).filter(|&at| &bytes[at..at + 6] == b"070701").collect();
        assert_eq!(places.len(), 4);
        assert!(places.iter().all(|place| place % 4 == 0), "{places:?}");
    }

    #[test]
    fn a_file_has_its_size_its_mode_and_its_content() {
        let bytes = archive();
        let text = String::from_utf8_lossy(&bytes);
        let header = &text[text.find("dir/file").unwrap() - 110..];
        assert_eq!(&header[14..22], "000081ed");
        assert_eq!(&header[54..62], "00000005");
        assert!(header[110..].starts_with("dir/file\0\0hello\0\0\0\x3070701"));
    }
}
