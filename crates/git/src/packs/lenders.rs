//! Finds the directories from which a repository borrows objects: `objects/info/alternates` names them
//! (gitrepository-layout(5)), or `objects` is a link to one.
//!
//! ```text
//!  a line of the file ─┬─ a directory of the workspace or of the layer ──▶ searched, and so is what it borrows from itself
//!                      ├─ a directory elsewhere ──▶ not searched: an object that is not found need not be missing
//!                      └─ cannot be followed (no such directory, a link on the way, too many lines, a directory
//!                         elsewhere that borrows as well) ──▶ objects may lie in any repository of the workspace
//! ```
//! A run has the workspace at the same path as the host. A layer that gives a repository lenders does not excuse what is missing in
//! the workspace.

use crate::small::read_small;
use nexus_beneath::meta::EntryType;
use nexus_beneath::{Workspace, is_beneath, is_gone, is_no_way, join, proc_path, split};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Files with lenders that git reads one after the other: those of a repository, of its lender, and so on.
const MAX_DEPTH: usize = 6;
/// Lenders of one repository that are searched.
const MAX_LENDERS: usize = 64;
/// The file that names lenders, in a directory of objects.
const ALTERNATES: &[u8] = b"info/alternates";

/// The directories from which a repository borrows objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lenders {
    /// Those in the workspace or in the layer, by their paths.
    pub inside: Vec<Vec<u8>>,
    /// The workspace names another one, in which an object may lie that is not found.
    pub has_others: bool,
    /// Not all could be followed: any repository of the workspace may be a lender.
    pub is_unclear: bool,
}

/// The place to which a line leads.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Ours(Vec<u8>),
    Outside,
    Unclear,
}

/// Finds the lenders of a repository by its directories of objects: that of the workspace, and perhaps that of a layer.
pub fn lenders(trees: &[(&Workspace, Vec<u8>)]) -> Lenders {
    let Some((base, _)) = trees.first() else { return Lenders::default() };
    let roots = Roots::of(base);
    let mut found = Lenders::default();
    let mut seen: HashSet<Vec<u8>> = trees.iter().map(|(_, objects)| objects.clone()).collect();
    // Each with the number of its tree.
    let mut left: VecDeque<(usize, Vec<u8>, usize)> =
        trees.iter().enumerate().map(|(tree, (_, objects))| (tree, objects.clone(), 1)).collect();
    while let Some((tree, objects, depth)) = left.pop_front() {
        let is_of_workspace = tree == 0;
        let places = if depth > MAX_DEPTH { Some(Vec::new()) } else { roots.places(trees[tree].0, &objects) };
        let Some(places) = places else {
            found.has_others |= is_of_workspace;
            found.is_unclear = true;
            continue;
        };
        for place in places {
            let lender = match place {
                Place::Ours(lender) => lender,
                Place::Outside => {
                    found.has_others |= is_of_workspace;
                    continue;
                }
                Place::Unclear => {
                    found.has_others |= is_of_workspace;
                    found.is_unclear = true;
                    continue;
                }
            };
            let there: Vec<Option<bool>> = trees.iter().map(|(tree, _)| is_directory(tree, &lender)).collect();
            // What the workspace borrows is known where it is a directory there, and not only in the layer.
            found.has_others |= is_of_workspace && there[0] != Some(true);
            if there.contains(&None) || !there.contains(&Some(true)) || found.inside.len() >= MAX_LENDERS {
                found.is_unclear = true;
                continue;
            }
            if seen.insert(lender.clone()) {
                left.extend((0..trees.len()).map(|tree| (tree, lender.clone(), depth + 1)));
                found.inside.push(lender);
            }
        }
    }
    found
}

/// Reports whether a tree has a directory at a path. `None` where a link is on the way, or this user cannot look.
fn is_directory(tree: &Workspace, path: &[u8]) -> Option<bool> {
    match tree.stat(path) {
        Ok(Some(meta)) if meta.kind == EntryType::Symlink => None,
        Ok(meta) => Some(meta.is_some_and(|meta| meta.kind == EntryType::Directory)),
        Err(_) => None,
    }
}

/// The paths of the workspace.
struct Roots {
    /// Without a link on the way.
    real: Vec<u8>,
    /// By which it was opened.
    opened: Vec<u8>,
}

impl Roots {
    fn of(base: &Workspace) -> Self {
        let opened = normal(base.path().as_os_str().as_bytes());
        let real = rustix::fs::readlink(proc_path(base.fd()), Vec::new());
        Self { real: real.map_or_else(|_| opened.clone(), std::ffi::CString::into_bytes), opened }
    }

    /// Returns the places that a directory of objects names; `None` where that cannot be read.
    fn places(&self, tree: &Workspace, objects: &[u8]) -> Option<Vec<Place>> {
        match tree.stat(objects) {
            Ok(Some(meta)) if meta.kind == EntryType::Symlink => {
                let (parent, name) = split(objects);
                let dir = tree.dir(parent).ok()?;
                let target = rustix::fs::readlinkat(dir, name, Vec::new()).ok()?;
                return Some(vec![self.place(parent, target.as_bytes())]);
            }
            Ok(_) => {}
            Err(error) if is_no_way(&error) => return Some(Vec::new()),
            Err(_) => return None,
        }
        let text = match read(tree, &join(objects, ALTERNATES)) {
            Ok(text) => text?,
            Err(error) if is_gone(&error) => return Some(Vec::new()),
            Err(_) => return None,
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        let lines: Vec<&[u8]> = lines.take(MAX_LENDERS + 1).collect();
        if lines.len() > MAX_LENDERS {
            return None;
        }
        // A line in quotes has escapes.
        let place = |line: &[u8]| if line.starts_with(b"\"") { Place::Unclear } else { self.place(objects, line) };
        Some(lines.into_iter().map(place).collect())
    }

    /// Returns the place to which a line in a directory of the workspace leads.
    fn place(&self, beside: &[u8], line: &[u8]) -> Place {
        let whole = if line.starts_with(b"/") { line.to_vec() } else { join(&join(&self.real, beside), line) };
        let path = normal(&whole);
        if let Some(inside) = self.inside(&path) {
            return Place::Ours(inside);
        }
        match Path::new(OsStr::from_bytes(&path)).canonicalize() {
            Ok(real) => match self.inside(real.as_os_str().as_bytes()) {
                Some(inside) => Place::Ours(inside),
                None if real.join(OsStr::from_bytes(ALTERNATES)).symlink_metadata().is_ok() => Place::Unclear,
                None => Place::Outside,
            },
            Err(_) => Place::Unclear,
        }
    }

    fn inside(&self, path: &[u8]) -> Option<Vec<u8>> {
        let root = [&self.real, &self.opened].into_iter().find(|root| !root.is_empty() && is_beneath(path, root))?;
        let inside = &path[root.len()..];
        Some(inside.strip_prefix(b"/").unwrap_or(inside).to_vec())
    }
}

/// Reads a file with lenders; `Ok(None)` where no file can be read.
fn read(tree: &Workspace, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match tree.stat(path)? {
        // A mark of overlay says that it is gone.
        Some(meta) if !meta.is_whiteout() => {}
        _ => return Ok(Some(Vec::new())),
    }
    let (parent, name) = split(path);
    read_small(tree.dir(parent)?.as_fd(), name)
}

/// Takes the names `.` and `..` out of an absolute path, as git does.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two trees with these files with lenders, by their directories of objects. The directories in `others` are there as well.
    fn found(workspace: &[(&str, &str)], layer: &[(&str, &str)], others: &[&str]) -> (Lenders, tempfile::TempDir) {
        let top = tempfile::tempdir().unwrap();
        let place = |tree: &str, objects: &str| top.path().join(tree).join(objects);
        for (tree, files) in [("ws", workspace), ("layer", layer)] {
            std::fs::create_dir(top.path().join(tree)).unwrap();
            for (objects, text) in files {
                std::fs::create_dir_all(place(tree, objects).join("info")).unwrap();
                let text = text.replace("TOP", top.path().to_str().unwrap());
                std::fs::write(place(tree, objects).join(OsStr::from_bytes(ALTERNATES)), text).unwrap();
            }
        }
        for other in others {
            std::fs::create_dir_all(top.path().join(other)).unwrap();
        }
        let [base, upper] = ["ws", "layer"].map(|tree| Workspace::open(&top.path().join(tree)).unwrap());
        let found = lenders(&[(&base, b"b".to_vec()), (&upper, b"b".to_vec())]);
        (found, top)
    }

    fn inside(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn lenders_are_followed_in_the_workspace_and_in_the_layer() {
        for line in ["../a\n", "TOP/ws/a\n", "# x\n\n../x/../a", "TOP/ws/./x/../a/\n", "../a\n../a\n"] {
            let (found, _top) = found(&[("b", line)], &[], &["ws/a"]);
            assert_eq!(found, Lenders { inside: inside(&["a"]), ..Lenders::default() }, "{line}");
        }
        // One that is in the layer alone is not a lender of the workspace's version.
        let (one, _top) = found(&[("b", "../a")], &[], &["layer/a"]);
        assert_eq!(one, Lenders { inside: inside(&["a"]), has_others: true, is_unclear: false });
        // What the layer says excuses nothing that is missing.
        for (line, is_unclear) in [("../a", false), ("TOP/outside", false), ("TOP/nowhere", true)] {
            let (found, _top) = found(&[], &[("b", line)], &["ws/a", "outside"]);
            assert_eq!((found.has_others, found.is_unclear), (false, is_unclear), "{line}");
        }
        let (chain, _top) = found(&[("b", "../c"), ("c", "../a")], &[("a", "../d")], &["ws/a", "ws/d"]);
        assert_eq!(chain, Lenders { inside: inside(&["c", "a", "d"]), ..Lenders::default() });
        let (circle, _top) = found(&[("b", "../c"), ("c", "../b")], &[], &[]);
        assert_eq!(circle, Lenders { inside: inside(&["c"]), ..Lenders::default() });
    }

    #[test]
    fn lenders_that_cannot_be_followed_differ_from_those_outside() {
        let many = "../a\n".repeat(MAX_LENDERS + 1);
        for (line, is_unclear) in [
            ("TOP/outside", false),
            ("../../outside", false),
            ("TOP/borrows", true),
            ("TOP/nowhere", true),
            ("../nowhere", true),
            ("../link", true),
            ("../link/x", true),
            ("\"../a\"", true),
            (&*many, true),
        ] {
            let (_, top) = found(&[("b", line)], &[], &["ws/a/x", "outside", "borrows/info"]);
            std::fs::write(top.path().join("borrows").join(OsStr::from_bytes(ALTERNATES)), "").unwrap();
            std::os::unix::fs::symlink("a", top.path().join("ws/link")).unwrap();
            let base = Workspace::open(&top.path().join("ws")).unwrap();
            let found = lenders(&[(&base, b"b".to_vec())]);
            assert_eq!(found, Lenders { inside: vec![], has_others: true, is_unclear }, "{line}");
        }
    }

    /// git reads no file with lenders beyond that depth.
    #[test]
    fn the_chain_of_lenders_ends_where_git_ends_it() {
        let names: Vec<String> =
            (0..10).map(|number| if number == 0 { "b".to_owned() } else { format!("l{number}") }).collect();
        let lines: Vec<String> = names.iter().skip(1).map(|next| format!("../{next}")).collect();
        let chain: Vec<(&str, &str)> = names.iter().zip(&lines).map(|(name, line)| (&**name, &**line)).collect();
        let (found, _top) = found(&chain, &[], &["ws/l9"]);
        assert_eq!(found.inside.len(), MAX_DEPTH, "{found:?}");
        assert!(!found.is_unclear && !found.has_others);
    }

    #[test]
    fn objects_behind_a_link_are_borrowed() {
        let (_, top) = found(&[], &[], &["ws/a", "ws/r"]);
        let base = Workspace::open(&top.path().join("ws")).unwrap();
        std::os::unix::fs::symlink("../a", top.path().join("ws/r/objects")).unwrap();
        let of = |objects: &str| lenders(&[(&base, objects.as_bytes().to_vec())]);
        assert_eq!(of("r/objects"), Lenders { inside: inside(&["a"]), ..Lenders::default() });
    }
}
