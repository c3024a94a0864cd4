//! Names of a layer's entries: which place they mean, and which are orders to remove something; no I/O.

use crate::error::{ImageError, shown};

/// Longest path of an entry.
const MAX_PATH: usize = 4095;
/// Longest single name, as file systems have it.
const MAX_NAME: usize = 255;
/// Directories above an entry.
const MAX_LEVELS: usize = 200;

/// Meaning of an entry's name.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// The root of the tree itself.
    Root,
    /// A place below the root, without leading or double slashes.
    Place(Vec<u8>),
    /// Order to remove the entry of lower layers at this place.
    Whiteout(Vec<u8>),
    /// Order to remove the entries of lower layers in this directory; empty for the root.
    Opaque(Vec<u8>),
    /// A file in which some drivers keep notes of their own.
    Ignored,
}

/// Reads the name of an entry. A leading slash means the root of the image, as every other runtime takes it.
pub fn read(name: &[u8]) -> Result<Named, ImageError> {
    let place = place(name)?;
    let Some(last) = place.rsplit(|byte| *byte == b'/').next().filter(|last| !last.is_empty()) else {
        return Ok(Named::Root);
    };
    let above = &place[..place.len() - last.len()];
    let dir = above.strip_suffix(b"/").unwrap_or(above);
    if dir.split(|byte| *byte == b'/').any(|part| part.starts_with(b".wh.")) {
        return Err(refused(name, "a directory on its way has the name of a whiteout"));
    }
    match last.strip_prefix(b".wh.") {
        None => Ok(Named::Place(place)),
        Some(b".wh..opq") => Ok(Named::Opaque(dir.to_vec())),
        Some(rest) if rest.starts_with(b".wh.") => Ok(Named::Ignored),
        Some(b"" | b"." | b"..") => Err(refused(name, "it is a whiteout of no name")),
        Some(rest) => Ok(Named::Whiteout([above, rest].concat())),
    }
}

/// Reads the name of a place, which a hard link has too. The root is empty.
pub fn place(name: &[u8]) -> Result<Vec<u8>, ImageError> {
    if name.len() > MAX_PATH {
        return Err(refused(name, "its path is longer than 4095 bytes"));
    }
    if name.contains(&0) {
        return Err(refused(name, "its path has a NUL byte"));
    }
    let mut place: Vec<u8> = Vec::with_capacity(name.len());
    for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return Err(refused(name, "its path has .."));
        }
        if part.len() > MAX_NAME {
            return Err(refused(name, "a name in its path is longer than 255 bytes"));
        }
        if !place.is_empty() {
            place.push(b'/');
        }
        place.extend_from_slice(part);
    }
    if place.split(|byte| *byte == b'/').count() > MAX_LEVELS + 1 {
        return Err(refused(name, "it lies below more than 200 directories"));
    }
    Ok(place)
}

/// Refuses an entry.
pub fn refused(name: &[u8], why: &'static str) -> ImageError {
    ImageError::EntryPath { path: shown(name), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_place_below_the_root() {
        for (name, place) in [("./a/b", "a/b"), ("/a//b/", "a/b"), ("a/./b", "a/b"), (".wha", ".wha")] {
            assert_eq!(read(name.as_bytes()).unwrap(), Named::Place(place.into()), "{name}");
        }
        for name in ["", "./", "/", "."] {
            assert_eq!(read(name.as_bytes()).unwrap(), Named::Root, "{name}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let long = "a/".repeat(300);
        let name = "n".repeat(256);
        for bad in ["..", "../x", "a/../../x", "/..", "a/..", "x\0y", &long, &name, &"a".repeat(5000)] {
            assert!(read(bad.as_bytes()).is_err(), "{}", &bad[..bad.len().min(9)]);
        }
    }

    #[test]
    fn whiteouts_name_what_they_remove_and_nothing_else() {
        assert_eq!(read(b"d/.wh.f").unwrap(), Named::Whiteout(b"d/f".to_vec()));
        assert_eq!(read(b".wh.f").unwrap(), Named::Whiteout(b"f".to_vec()));
        assert_eq!(read(b"d/.wh..wh..opq").unwrap(), Named::Opaque(b"d".to_vec()));
        assert_eq!(read(b".wh..wh..opq").unwrap(), Named::Opaque(Vec::new()));
        assert_eq!(read(b".wh..wh.plnk").unwrap(), Named::Ignored);
        for bad in [".wh.", "d/.wh..", ".wh...", ".wh.d/f", "a/.wh..wh..opq/f"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
