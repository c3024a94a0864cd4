//! New links that lead to protected files: a program of the host that writes through such a link would write a hook or a
//! start file with what it was given.
//!
//! A link is judged by the names of its text alone, at the place where it will be.

use crate::beneath::{Doing as _, IoFailure, split};
use crate::meta::EntryType;
use crate::names::Names;
use crate::protected::{Class, Rules};
use crate::tree::{LayerTree, Role, Verdict};
use crate::walk::{LastDir, Walk};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Judges the links of a layer.
pub(crate) fn judge(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let mut dirs = LastDir::new(walk.upper);
    let ends = Ends::new(walk.rules, walk.base.path());
    for one in tree.nodes.iter_mut().skip(1) {
        if one.role != Role::Entry || one.meta.kind != EntryType::Symlink || one.rare.verdict.is_some() {
            continue;
        }
        let (parent, name) = split(&one.path.0);
        let dir = dirs.get(parent).doing("open", parent)?;
        let text = rustix::fs::readlinkat(dir, name, Vec::new()).doing("read the link", &one.path.0)?;
        if let Some(why) = ends.reason(&one.path.0, text.to_bytes()) {
            one.rare.verdict = Some(Verdict::Park(why));
        }
    }
    Ok(())
}

/// Tells where links lead.
pub(crate) struct Ends<'a> {
    rules: &'a Rules,
    /// For places outside of the workspace.
    standard: Rules,
    /// The workspace.
    top: &'a Path,
}

impl<'a> Ends<'a> {
    /// `top` is the workspace's real path; without it only relative links in the workspace are judged.
    pub(crate) fn new(rules: &'a Rules, top: &'a Path) -> Self {
        Self { rules, standard: Rules { protected: Names::standard(), ..Rules::default() }, top }
    }

    /// Why the link at `path` with this text may not come unasked.
    pub(crate) fn reason(&self, path: &[u8], text: &[u8]) -> Option<String> {
        let top = self.top.as_os_str().as_bytes();
        let end = follow(&[top, b"/", split(path).0].concat(), text);
        let inside = end.strip_prefix(top).and_then(|rest| rest.strip_prefix(b"/"));
        let class = match inside {
            Some(inside) => self.rules.class(inside),
            None if end == top => return None,
            None => self.standard.class(&end),
        };
        let why = match class {
            Class::Plain | Class::MustBeDirectory | Class::NoLink => return None,
            Class::Listed(why) => why,
            _ => "a file of git".to_owned(),
        };
        Some(format!("a link that leads to something protected: {why}"))
    }
}

/// The absolute path that a link in `parent` names, by its names alone. Pure.
fn follow(parent: &[u8], text: &[u8]) -> Vec<u8> {
    let begin = if text.starts_with(b"/") { &b""[..] } else { parent };
    let mut plain: Vec<&[u8]> = Vec::new();
    for name in begin.split(|byte| *byte == b'/').chain(text.split(|byte| *byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain.iter().flat_map(|name| [b"/", *name].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_judged_by_where_it_leads() {
        let rules = Rules::default();
        let ends = Ends::new(&rules, Path::new("/h/u/ws"));
        for (path, text) in [
            ("log", ".git/hooks/post-merge"),
            ("a/b/log", "../../.vscode/tasks.json"),
            ("a/log", "../b/../.envrc"),
            ("log", "/h/u/ws/.git/config"),
            ("log", "../.bashrc"),
            ("a/log", "../../.config/autostart/x.desktop"),
            ("log", "/root/.ssh/authorized_keys"),
            ("d", ".git"),
            ("log", "/h/u/other/.git/hooks/x"),
        ] {
            assert!(ends.reason(path.as_bytes(), text.as_bytes()).is_some(), "{path} {text}");
        }
        for (path, text) in [
            ("node_modules/.bin/x", "../pkg/cli.js"),
            ("node_modules/self", ".."),
            ("self", "."),
            ("lib64", "lib"),
            (".venv/bin/python", "/usr/bin/python3"),
            ("a", "/h/u/ws"),
            ("a", "../../../../.."),
            ("a", "/h/u/ws/src"),
            ("a", ""),
        ] {
            assert_eq!(ends.reason(path.as_bytes(), text.as_bytes()), None, "{path} {text}");
        }
    }
}
