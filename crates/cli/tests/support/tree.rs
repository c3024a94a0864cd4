//! Two directories that should be equal, and where they are not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Closeness with which a path is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Type, mode, number of names, content, target of a link.
    All,
    /// All but the content: it holds inode numbers, dates or random names.
    NotContent,
    /// Not at all, nor anything below it: its name is another one each time.
    Skip,
}

/// Entry at a path; the mode has the type in it.
#[derive(PartialEq, Eq, Debug)]
struct Node {
    mode: u32,
    /// Names of a regular file: what a run links stays linked.
    links: Option<u64>,
    /// Of a regular file.
    size: Option<u64>,
    link: Option<PathBuf>,
}

/// Names the differences between two directories, in words; empty when they are equal.
pub fn differences(left: &Path, right: &Path, check: impl Fn(&str) -> Check) -> Vec<String> {
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    collect(left, "", &check, &mut ours);
    collect(right, "", &check, &mut theirs);
    let mut found = Vec::new();
    for (name, node) in &ours {
        match theirs.get(name) {
            None => found.push(format!("only inside: {name}")),
            Some(other) if other != node => found.push(format!("{name}: inside {node:?}, outside {other:?}")),
            Some(_) if node.size.is_none() || check(name) == Check::NotContent => {}
            Some(_) => {
                if fs::read(left.join(name)).unwrap() != fs::read(right.join(name)).unwrap() {
                    found.push(format!("{name}: other content"));
                }
            }
        }
    }
    found.extend(theirs.keys().filter(|name| !ours.contains_key(*name)).map(|name| format!("only outside: {name}")));
    found
}

fn collect(root: &Path, name: &str, check: &impl Fn(&str) -> Check, into: &mut BTreeMap<String, Node>) {
    let path = root.join(name);
    let seen = fs::symlink_metadata(&path).unwrap();
    let link = seen.is_symlink().then(|| fs::read_link(&path).unwrap());
    let size = (seen.is_file() && check(name) == Check::All).then_some(seen.len());
    let links = seen.is_file().then_some(seen.nlink());
    into.insert(name.to_owned(), Node { mode: seen.mode(), links, size, link });
    if seen.is_dir() {
        for entry in fs::read_dir(&path).unwrap() {
            let child = entry.unwrap().file_name().into_string().unwrap();
            let child = if name.is_empty() { child } else { format!("{name}/{child}") };
            if check(&child) != Check::Skip {
                collect(root, &child, check, into);
            }
        }
    }
}
