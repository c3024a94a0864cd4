//! The state of a directory as a value that can be compared: every path with its kind, mode and content.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The permission bits.
    pub mode: u32,
    /// The kind and what is in it.
    pub content: Content,
}

/// The kind of an entry and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    File(Vec<u8>),
    /// A symbolic link.
    Link(Vec<u8>),
    /// The entry is a directory.
    Directory,
    /// The entry has another kind.
    Other,
}

/// Everything below a directory, by its path there.
pub type Tree = BTreeMap<String, Entry>;

/// Reads everything below `root`.
pub fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            let content = if meta.is_symlink() {
                Content::Link(fs::read_link(&path)?.into_os_string().into_encoded_bytes())
            } else if meta.is_dir() {
                waiting.push(path.clone());
                Content::Directory
            } else if meta.is_file() {
                Content::File(fs::read(&path)?)
            } else {
                Content::Other
            };
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            tree.insert(name, Entry { mode: meta.permissions().mode() & 0o7777, content });
        }
    }
    Ok(tree)
}

/// Names up to six paths in which two trees differ, and how.
pub fn difference(found: &Tree, wanted: &Tree) -> String {
    let names: std::collections::BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let different: Vec<String> = names
        .into_iter()
        .filter(|name| found.get(*name) != wanted.get(*name))
        .map(|name| format!("{name}: {} instead of {}", brief(found.get(name)), brief(wanted.get(name))))
        .collect();
    let more = different.len().saturating_sub(6);
    let text = different.iter().take(6).cloned().collect::<Vec<_>>().join("; ");
    if more == 0 { text } else { format!("{text}; and {more} more") }
}

fn brief(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "nothing".to_owned() };
    match &entry.content {
        Content::File(bytes) if bytes.len() > 40 => format!("a file of {} bytes", bytes.len()),
        Content::File(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Content::Link(to) => format!("a link to {}", String::from_utf8_lossy(to)),
        Content::Directory => format!("a directory of mode {:o}", entry.mode),
        Content::Other => "another kind of file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_path_and_both_sides() {
        let file = |text: &str| Entry { mode: 0o644, content: Content::File(text.into()) };
        let one = Tree::from([("a".to_owned(), file("x")), ("b".to_owned(), file("y"))]);
        let other = Tree::from([("a".to_owned(), file("x"))]);
        assert_eq!(difference(&one, &other), "b: \"y\" instead of nothing");
        assert_eq!(difference(&one, &one), "");
    }
}
