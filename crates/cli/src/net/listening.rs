//! Finds the listening sockets of this machine that belong to a process of Nexus.
//!
//! ```text
//!  port ─/proc/net/tcp─▶ socket ─/proc/PID/fd─▶ process ─▶ its executable ─┬─ this one, or named nexus ─▶ Nexus
//!                                                                        └─ holds the mark ─────────▶ Nexus
//! ```
//!
//! A copy of another version under another name is known by the mark. A process of another user cannot be looked at.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp` (`TCP_LISTEN`).
const LISTENING: &str = "0A";
/// Bytes of an executable that are searched.
const MAX_EXECUTABLE: u64 = 512 << 20;
/// Stands in every executable of Nexus, under whatever name it lies. It must not change: another version looks for it.
#[used]
static MARK: [u8; 40] = *b"nexus:e8c41d6f-this-executable-is-nexus:";

/// A port of these with the process of Nexus that listens there.
pub fn listening_nexus(proc: &Path, ports: &[u16]) -> io::Result<Option<(u16, u32)>> {
    let mut sockets = BTreeMap::new();
    for table in ["net/tcp", "net/tcp6"] {
        match std::fs::read_to_string(proc.join(table)) {
            Ok(text) => sockets.extend(listeners(&text, ports)),
            // Without the protocol nothing listens by it.
            Err(error) if error.kind() == ErrorKind::NotFound && table == "net/tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() {
        return Ok(None);
    }
    let own = std::fs::metadata("/proc/self/exe")?;
    for entry in std::fs::read_dir(proc)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = entry.path();
        // A process that is gone, or another user's, is not looked at.
        let Ok(descriptors) = std::fs::read_dir(path.join("fd")) else { continue };
        let held = descriptors.filter_map(Result::ok).find_map(|descriptor| {
            let link = std::fs::read_link(descriptor.path()).ok()?;
            sockets.get(&inode(link.as_os_str())?)
        });
        if let Some(port) = held
            && is_nexus(&path.join("exe"), (own.dev(), own.ino()))
        {
            return Ok(Some((*port, pid)));
        }
    }
    Ok(None)
}

/// Returns the inodes of the sockets that listen on one of these ports, with the port. A line is
/// `N: ADDRESS:PORT REMOTE STATE … INODE …` (proc_net_tcp in the kernel's documentation).
fn listeners(table: &str, ports: &[u16]) -> BTreeMap<u64, u16> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let listens = fields.get(3) == Some(&LISTENING) && ports.contains(&port);
        listens.then_some((fields.get(9)?.parse().ok()?, port))
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Reports whether a process runs this program, or another version of it.
fn is_nexus(exe: &Path, own: (u64, u64)) -> bool {
    let same = std::fs::metadata(exe).is_ok_and(|exe| (exe.dev(), exe.ino()) == own);
    let named = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.strip_suffix(" (deleted)").unwrap_or(name) == "nexus"
    };
    same || std::fs::read_link(exe).is_ok_and(|path| named(&path))
        || File::open(exe).and_then(|file| has_mark(file.take(MAX_EXECUTABLE))).unwrap_or(false)
}

/// Reports whether the mark stands in these bytes. An executable may have hundreds of MiB, so bytes are skipped
/// (Horspool).
fn holds_mark(bytes: &[u8]) -> bool {
    // Read as a whole, so that it stays in one piece in an optimized executable.
    let pattern = std::hint::black_box(&MARK);
    let last = pattern.len() - 1;
    let skip =
        |byte: u8| pattern[..last].iter().rev().position(|known| *known == byte).map_or(pattern.len(), |at| at + 1);
    let skips: Vec<usize> = (0..=u8::MAX).map(skip).collect();
    let mut at = last;
    while let Some(byte) = bytes.get(at) {
        if bytes[at - last..=at] == *pattern {
            return true;
        }
        at += skips[usize::from(*byte)];
    }
    false
}

/// Reports whether the mark stands in what `from` gives.
fn has_mark(mut from: impl Read) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 20];
    let mut filled = 0;
    loop {
        let count = match from.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        filled += count;
        if holds_mark(&buffer[..filled]) {
            return Ok(true);
        }
        // It may lie across two reads.
        let rest = filled.min(MARK.len() - 1);
        buffer.copy_within(filled - rest..filled, 0);
        filled = rest;
    }
}

/// Returns the number in `socket:[N]`.
fn inode(link: &OsStr) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_of_nexus_is_known_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::fs::metadata("/proc/self/exe").unwrap();
        let is = |name: &str, bytes: &[u8]| {
            let (file, link) = (folder.path().join(name), folder.path().join(format!("{name}.exe")));
            std::fs::write(&file, bytes).unwrap();
            std::os::unix::fs::symlink(&file, &link).unwrap();
            is_nexus(&link, (own.dev(), own.ino()))
        };
        let copy = std::fs::read("/proc/self/exe").unwrap();
        assert!(is("nexus-0.2", &copy), "the mark stands in the program");
        assert!(is("nexus", b"an old one"));
        assert!(!is("redis-server", b"another program"));
    }

    #[test]
    fn the_mark_is_found_across_two_reads() {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(self.1).min(buffer.len());
                buffer[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let bytes = [&[b'n'; 100][..], &MARK, b"tail"].concat();
        for size in [1, 7, 39, 120, 4096] {
            assert!(has_mark(Pieces(&bytes, size)).unwrap(), "{size}");
            assert!(!has_mark(Pieces(&bytes[..139], size)).unwrap(), "{size}");
        }
    }

    #[test]
    fn the_kernels_table_gives_the_sockets_that_listen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n   \
            1: 0100007F:1538 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n   \
            2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0\n";
        assert_eq!(listeners(table, &[5432]), BTreeMap::from([(4711, 5432)]));
        assert_eq!(listeners(table, &[80, 5432]), BTreeMap::from([(4711, 5432), (4713, 80)]));
        assert_eq!(inode(OsStr::new("socket:[4711]")), Some(4711));
        assert_eq!(inode(OsStr::new("pipe:[4711]")), None);
    }
}
