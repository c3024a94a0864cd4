//! Recognizes a directory of objects that belongs to no repository around it: others name it in `info/alternates`
//! (gitrepository-layout(5)). A layer may lack the repositories that borrow from it, so that the objects themselves are looked at.

use super::known::open;
use super::object_id::Format;
use crate::objects::is_hex;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit as inflate;
use nexus_beneath::{Doing as _, IoFailure, Workspace, is_no_way, join, names};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// Bytes of an object that are read for its kind.
const MAX_HEAD: usize = 512;

/// Returns the format of the objects in a directory of the workspace; `None` where it has none. A pack counts by its name, an
/// object in a file of its own by its first bytes. A directory that has nothing but what git makes for objects is one as well, of
/// objects with as many `digits` as the new one.
pub fn format(base: &Workspace, directory: &[u8], digits: usize) -> Result<Option<Format>, IoFailure> {
    let of_length =
        |digits: usize| [Format::Sha1, Format::Sha256].into_iter().find(|one| one.id_length() * 2 == digits);
    for name in listed(base, &join(directory, b"pack"))? {
        let stem = name.strip_suffix(b".idx").and_then(|stem| stem.strip_prefix(b"pack-"));
        if let Some(format) = stem.filter(|stem| is_hex(stem)).and_then(|stem| of_length(stem.len())) {
            return Ok(Some(format));
        }
    }
    let all = listed(base, directory)?;
    let is_made = |name: &Vec<u8>| matches!(&**name, b"pack" | b"info");
    let is_first = |name: &Vec<u8>| name.len() == 2 && is_hex(name);
    if all.iter().any(is_made) && all.iter().all(|name| is_made(name) || is_first(name)) {
        return Ok(of_length(digits));
    }
    for first in all.into_iter().filter(is_first) {
        let place = join(directory, &first);
        for name in listed(base, &place)?.into_iter().filter(|name| is_hex(name)) {
            let format = of_length(name.len() + 2);
            if format.is_some() && is_object(base, &join(&place, &name))? {
                return Ok(format);
            }
        }
    }
    Ok(None)
}

fn listed(base: &Workspace, directory: &[u8]) -> Result<Vec<Vec<u8>>, IoFailure> {
    match base.readable_dir(directory) {
        Ok(dir) => names(dir.as_fd()).doing("list", directory),
        Err(error) if is_no_way(&error) => Ok(Vec::new()),
        Err(error) => Err(error).doing("open", directory),
    }
}

fn is_object(base: &Workspace, path: &[u8]) -> Result<bool, IoFailure> {
    let Some(file) = open(base, path)? else { return Ok(false) };
    let mut bytes = [0; MAX_HEAD];
    let read = file.read_at(&mut bytes, 0).doing("read", path)?;
    let begin = match inflate(&bytes[..read], MAX_HEAD) {
        Ok(whole) => whole,
        Err(error) => error.output,
    };
    let end = begin.iter().position(|byte| *byte == 0);
    Ok(end.is_some_and(|end| super::loose::parse(&begin[..end]).is_some()))
}
