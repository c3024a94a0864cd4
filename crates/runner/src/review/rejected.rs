//! The list of a layer's rejected paths, in a file beside its content. The rejected changes stay in the layer until
//! the layer goes, but are neither shown nor committed until an accept names them.

use crate::review::error::ReviewError;
use nexus_layer::{Change, disk::state_file};
use nexus_model::ByteText;
use std::io;
use std::path::Path;

const FILE: &str = "rejected.json";

/// Reads the list; empty when there is none.
pub fn read(layer: &Path) -> Result<Vec<ByteText>, ReviewError> {
    match state_file::read(&layer.join(FILE), state_file::MAX_NOTE) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// Writes the list so that after a crash it is the old or the new one.
pub fn write(layer: &Path, paths: &[ByteText]) -> Result<(), ReviewError> {
    let written = serde_json::to_vec(paths)
        .map_err(io::Error::other)
        .and_then(|bytes| state_file::replace(&layer.join(FILE), &bytes, true));
    written.map_err(failed)
}

/// Returns the list without the named paths, and the paths that were taken from it. Of a rejected directory the other
/// changes in it stay rejected.
pub fn without(rejected: &[ByteText], named: &[ByteText], all: &[Change]) -> (Vec<ByteText>, Vec<ByteText>) {
    let (mut left, mut taken) = (Vec::new(), Vec::new());
    let is_in = |path: &ByteText, top: &ByteText| path.as_path().starts_with(top.as_path());
    for path in rejected {
        if named.iter().any(|name| is_in(path, name)) {
            taken.push(path.clone());
            continue;
        }
        let inside: Vec<_> = named.iter().filter(|name| is_in(name, path)).collect();
        if inside.is_empty() {
            left.push(path.clone());
            continue;
        }
        taken.extend(inside.iter().copied().cloned());
        let beside = |change: &&Change| {
            is_in(&change.path, path)
                && !inside.iter().any(|name| is_in(&change.path, name) || is_in(name, &change.path))
        };
        left.extend(all.iter().filter(beside).map(|change| change.path.clone()));
    }
    taken.sort();
    taken.dedup();
    (left, taken)
}

fn failed(source: io::Error) -> ReviewError {
    ReviewError::Rejected { source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_layer::ChangeKind;
    use nexus_layer::meta::EntryType;

    fn change(path: &str) -> Change {
        Change {
            path: path.into(),
            kind: ChangeKind::Added,
            file_type: EntryType::File,
            size: 0,
            mode: 0o644,
            protected: None,
            setuid: false,
            new_executable: false,
            hook: false,
            skipped: false,
            by_content: false,
        }
    }

    #[test]
    fn what_is_named_is_no_longer_rejected_and_its_neighbours_are() {
        let all: Vec<_> = ["d", "d/a", "d/b", "d/sub/c", "e"].map(change).into();
        let texts = |paths: &[&str]| paths.iter().map(|path| ByteText::from(*path)).collect::<Vec<_>>();
        for (rejected, named, left, taken) in [
            (&["d/a"][..], &["d/a"][..], &[][..], &["d/a"][..]),
            (&["d/a", "e"], &["d"], &["e"], &["d/a"]),
            (&["d"], &["d/a"], &["d/b", "d/sub/c"], &["d/a"]),
            (&["d"], &["e"], &["d"], &[]),
        ] {
            assert_eq!(without(&texts(rejected), &texts(named), &all), (texts(left), texts(taken)), "{named:?}");
        }
    }
}
