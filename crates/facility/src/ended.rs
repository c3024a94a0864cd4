//! The directives that ended in a facility. None of them runs in it again, even if a control plane that was restored from an older backup
//! sends it again.
//!
//! ```text
//!  ended: one id a line, appended at the end of each ─▶ beyond twice the bound the older half goes
//! ```
//! A power cut may lose the last lines: then the note of the lock names the last holder all the same.

use nexus_model::ids::DirectiveId;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Name of the file.
pub(crate) const FILE: &str = "ended";
/// Smallest number of the latest directives that are remembered.
const KEPT: usize = 1000;
/// Bytes of a line: an id and the end of the line.
const LINE: usize = 37;

/// Reports whether the directive ended here. A line that is not an id says nothing.
pub(crate) fn has(file: &File, directive: DirectiveId) -> io::Result<bool> {
    let wanted = directive.to_string();
    Ok(read(file)?.chunks(LINE).any(|line| line.strip_suffix(b"\n") == Some(wanted.as_bytes())))
}

/// Remembers that the directive ended here.
pub(crate) fn add(mut file: &File, directive: DirectiveId) -> io::Result<()> {
    let mut lines = read(file)?;
    // A line that was cut off would put all later ones in the wrong place.
    lines.truncate(lines.len() / LINE * LINE);
    let mut place = lines.len() as u64;
    if lines.len() >= 2 * KEPT * LINE {
        lines.drain(..lines.len() - KEPT * LINE);
        file.write_all_at(&lines, 0)?;
        file.set_len(lines.len() as u64)?;
        place = lines.len() as u64;
    }
    file.write_all_at(format!("{directive}\n").as_bytes(), place)?;
    file.flush()
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (2 * KEPT + 1) * LINE];
    let mut count = 0;
    while let Some(rest) = bytes.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, count as u64)? {
            0 => break,
            more => count += more,
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_directives_are_known_and_the_file_is_bounded() {
        let file = tempfile::tempfile().unwrap();
        let ids: Vec<DirectiveId> = (0..5 * KEPT).map(|_| DirectiveId::new()).collect();
        for (index, id) in ids.iter().enumerate() {
            assert!(!has(&file, *id).unwrap());
            add(&file, *id).unwrap();
            if index == 10 {
                // A line that was cut off costs itself alone.
                file.write_all_at(b"0123", 11 * LINE as u64).unwrap();
            }
        }
        for id in &ids[ids.len() - KEPT..] {
            assert!(has(&file, *id).unwrap());
        }
        assert!(!has(&file, ids[0]).unwrap());
        assert!(file.metadata().unwrap().len() <= (2 * KEPT * LINE) as u64);
    }
}
