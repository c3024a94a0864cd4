//! Files that a command finds and another one starts or reads. Pure.

use super::super::word_lists::WITH_FILE;
use nexus_beneath::split;

/// Options of find(1) behind which a command stands.
const EXEC: &[&[u8]] = &[b"-exec", b"-execdir", b"-ok", b"-okdir"];
/// Options of find(1) behind which the name of a file stands.
const NAME: &[&[u8]] = &[b"-name", b"-iname", b"-path", b"-wholename"];

/// The files that `find` starts.
#[derive(Default)]
pub(super) struct Started<'a> {
    /// Directories: `find s -name "*.sh" -exec sh {} \\;`.
    pub places: Vec<&'a [u8]>,
    /// Names in the whole working tree.
    pub names: Vec<&'a [u8]>,
}

/// Returns what `find` starts itself, or through a program for which `reads` says that it runs a file.
pub(super) fn of_find<'a>(words: &'a [Vec<u8>], reads: &dyn Fn(&[u8]) -> bool) -> Started<'a> {
    let mut found = Started::default();
    let Some(at) = words.iter().position(|word| split(word).1 == b"find") else { return found };
    let rest = &words[at + 1..];
    let Some(exec) = rest.iter().position(|word| EXEC.contains(&word.as_slice())) else { return found };
    let command = &rest[exec + 1..];
    let is_found = |word: &Vec<u8>| matches!(word.as_slice(), b"{}" | b"./{}");
    let reader = command.iter().position(|word| reads(word));
    if !command.first().is_some_and(is_found) && !reader.is_some_and(|at| command[at + 1..].iter().any(is_found)) {
        return found;
    }
    let begins = places(rest);
    found.places = begins.iter().copied().filter(|place| is_inside(place)).collect();
    if begins.is_empty() || found.places.len() < begins.len() {
        let named = rest[..exec].windows(2).filter(|two| NAME.contains(&two[0].as_slice()));
        found.names = named.map(|two| two[1].as_slice()).collect();
    }
    found
}

/// Returns the variables of a loop and what they have in turn, as the command before it lists it:
/// `ls s/*.sh | while read f; do sh "$f"; done`.
pub(super) fn of_loop(list: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Some(at) = words.iter().position(|word| word == b"read") else { return Vec::new() };
    let is_loop = words[..at].iter().any(|word| matches!(word.as_slice(), b"while" | b"until"));
    let Some((first, rest)) = list.split_first().filter(|_| is_loop) else { return Vec::new() };
    let listed: Vec<Vec<u8>> = if split(first).1 == b"find" {
        // What is in them.
        places(rest).into_iter().filter(|place| is_inside(place)).map(|place| [place, b"/*"].concat()).collect()
    } else {
        rest.iter().filter(|word| !word.starts_with(b"-") && is_inside(word)).cloned().collect()
    };
    let names = words[at + 1..].iter().filter(|word| !word.starts_with(b"-"));
    names.flat_map(|name| listed.iter().map(|place| (name.clone(), place.clone()))).collect()
}

/// Returns the scripts behind `-f` of a program that runs them: `awk -f ci/x.awk`.
pub(super) fn behind_option(words: &[Vec<u8>]) -> Vec<&[u8]> {
    let Some(at) = words.iter().position(|word| WITH_FILE.contains(&split(word).1)) else { return Vec::new() };
    let rest = &words[at + 1..];
    let behind = |(at, word): (usize, &'_ Vec<u8>)| match word.as_slice() {
        b"-f" | b"--file" => rest.get(at + 1).map(|_| (at + 1, 0)),
        word if word.starts_with(b"--file=") => Some((at, b"--file=".len())),
        word if word.starts_with(b"-f") => Some((at, 2)),
        _ => None,
    };
    rest.iter().enumerate().filter_map(behind).map(|(at, from)| &rest[at][from..]).collect()
}

/// The places at which `find` begins.
fn places(rest: &[Vec<u8>]) -> Vec<&[u8]> {
    rest.iter().take_while(|word| !word.starts_with(b"-")).map(Vec::as_slice).collect()
}

/// Reports whether a path names more than the directory in which the script begins.
fn is_inside(word: &[u8]) -> bool {
    word.iter().any(|byte| !matches!(byte, b'.' | b'/'))
}
