//! Holds back new links that lead to protected files: a host program that writes through such a link would write a hook or a
//! start file.
//!
//! A link is resolved as the kernel will resolve it after the commit: through the links of the layer and of the workspace, with `..`
//! relative to the target of a link.

pub(crate) use crate::beneath::is_no_way;
use crate::beneath::{Doing as _, IoFailure, Workspace, join, split};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Node, Role, SharedPath, Verdict};
use crate::links::link_budget::{LinkEnd, Links, MAX_PATH, Steps, TOO_LONG, Target, is_too_long};
use crate::meta::EntryType;
use crate::read::git_dirs;
use crate::read::walk::{LastDir, Walk, lower_path};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Links on the way, as the kernel counts them at most (ELOOP, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Parks the links of a layer that may not come unasked.
pub(crate) fn classify(walk: &Walk<'_>, tree: &mut LayerTree) -> Result<(), IoFailure> {
    let is_link = |one: &Node| one.role == Role::Entry && one.meta.kind == EntryType::Symlink;
    if !tree.nodes.iter().any(is_link) {
        return Ok(());
    }
    let links = LayerLinks::read(walk, tree)?;
    let ends = Ends::new(walk.rules, walk.base.path());
    let mut verdicts = Vec::new();
    {
        // What is committed, and what stays where something of it is held back.
        let after = Links::new(|path| links.after(walk, tree, path));
        let before = Links::new(|path| link(walk.base, path));
        for (at, text) in links.all().filter(|(at, _)| tree.nodes[*at].rare.verdict.is_none()) {
            let path = &tree.nodes[at].path.0;
            let mut why = ends.reason(path, text, &after)?;
            if why.is_none() {
                why = ends.reason(path, text, &before)?;
            }
            if why.is_none() && ends.leads_to_bare(walk.base, path, text, &after)? {
                why = Some(TO_BARE.to_owned());
            }
            if why.is_none() && ends.goes_back(path, text) {
                why = Some("a link that goes down and up again: another link could lead it elsewhere".to_owned());
            }
            verdicts.extend(why.map(|why| (at, why)));
        }
    }
    for (at, why) in verdicts {
        tree.nodes[at].rare.verdict = Some(Verdict::Park(why));
    }
    Ok(())
}

/// The reason why a link into a git repository without the name `.git` waits.
pub(crate) const TO_BARE: &str = "a link that leads to something protected: a file of git";

/// The links of a layer, and what the layer has at which path.
pub(crate) struct LayerLinks {
    by_path: HashMap<SharedPath, usize>,
    texts: BTreeMap<usize, Vec<u8>>,
}

impl LayerLinks {
    /// Reads the texts of all links of a layer.
    pub(crate) fn read(walk: &Walk<'_>, tree: &LayerTree) -> Result<Self, IoFailure> {
        let mut dirs = LastDir::new(walk.upper);
        let (mut by_path, mut texts) = (HashMap::with_capacity(tree.nodes.len()), BTreeMap::new());
        for (at, one) in tree.nodes.iter().enumerate().skip(1) {
            by_path.insert(one.path.clone(), at);
            if one.role == Role::Entry && one.meta.kind == EntryType::Symlink {
                let (parent, name) = split(&one.path.0);
                let dir = dirs.get(parent).doing("open", parent)?;
                let text = rustix::fs::readlinkat(dir, name, Vec::new()).doing("read the link", &one.path.0)?;
                texts.insert(at, text.into_bytes());
            }
        }
        Ok(Self { by_path, texts })
    }

    /// The links, with their texts.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.texts.iter().map(|(at, text)| (*at, text.as_slice()))
    }

    /// The text of the link that will be at a path of the workspace when the layer is committed.
    pub(crate) fn after(&self, walk: &Walk<'_>, tree: &LayerTree, path: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
        match self.node(path) {
            Some(at) => Ok(self.texts.get(&at).cloned()),
            None => self.base_of(tree, path).map_or(Ok(None), |base| link(walk.base, &base)),
        }
    }

    /// Returns the entry of the layer at a path, as an index of [`LayerTree::nodes`].
    pub(crate) fn node(&self, path: &[u8]) -> Option<usize> {
        self.by_path.get(&SharedPath::from(path)).copied()
    }

    /// Returns where in the workspace an entry is that the layer does not have, and that will be at a path.
    pub(crate) fn base_of(&self, tree: &LayerTree, path: &[u8]) -> Option<Vec<u8>> {
        // The nearest directory that the layer has says which directory of the workspace it continues.
        let mut parent = split(path).0;
        while !parent.is_empty() && self.node(parent).is_none() {
            parent = split(parent).0;
        }
        let node = &tree.nodes[self.node(parent).unwrap_or(0)];
        let rest = path.strip_prefix(parent).unwrap_or(path);
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        lower_path(node).map(|lower| join(lower, rest))
    }
}

/// The text of a link of the workspace; `None` for what is none.
pub(crate) fn link(base: &Workspace, path: &[u8]) -> Result<Option<Vec<u8>>, IoFailure> {
    let (parent, name) = split(path);
    let dir = match base.dir(parent) {
        Ok(dir) => dir,
        Err(error) if is_no_way(&error) => return Ok(None),
        Err(error) => return Err(error).doing("open", parent),
    };
    match rustix::fs::readlinkat(dir.as_fd(), name, Vec::new()) {
        Ok(text) => Ok(Some(text.into_bytes())),
        Err(Errno::INVAL) => Ok(None),
        Err(error) if is_no_way(&error.into()) => Ok(None),
        Err(error) => Err(error).doing("read the link", path),
    }
}

/// Tells where links lead.
pub(crate) struct Ends<'a> {
    rules: &'a Rules,
    /// For places outside of the workspace.
    standard: Rules,
    /// The workspace's real path.
    top: &'a Path,
    /// Directories that were looked at, and whether they are bare repositories.
    bare: RefCell<HashMap<Vec<u8>, bool>>,
    /// Links outside of the workspace, by their absolute paths.
    outside: Links<'static>,
    steps: Steps,
}

/// Takes the end of a link: relative to the workspace, where it is in it, and absolute.
type TakeEnd<'a> = dyn FnMut(Option<&[u8]>, &[u8]) + 'a;

impl<'a> Ends<'a> {
    /// `top` is the workspace's real path; without it only relative links in the workspace are evaluated.
    pub(crate) fn new(rules: &'a Rules, top: &'a Path) -> Self {
        let (bare, steps) = (RefCell::default(), Steps::default());
        Self { rules, standard: Rules::default(), top, bare, outside: Links::outside(), steps }
    }

    /// Returns the reason why the link at `path` with this text may not come unasked, or `None`.
    pub(crate) fn reason(&self, path: &[u8], text: &[u8], links: &Links<'_>) -> Result<Option<String>, IoFailure> {
        let mut why = None;
        let way = self.follow(path, text, links, &mut |inside, end| {
            let class = match inside {
                Some([]) => return,
                Some(inside) => self.rules.class(inside),
                None => self.standard.class(end),
            };
            let found = match class {
                Class::Plain => return,
                Class::MustBeDirectory => "a directory with protected names".to_owned(),
                Class::Listed(why) => why,
                _ => "a file of git".to_owned(),
            };
            why = Some(format!("a link that leads to something protected: {found}"));
        })?;
        Ok(if way == LinkEnd::TooLong { Some(TOO_LONG.to_owned()) } else { why })
    }

    /// Reports whether the text of a link enters a directory of the workspace and goes up again. Where that leads
    /// depends on whether the directory is a link, which a later run may change, and nothing would look at this link
    /// then.
    fn goes_back(&self, path: &[u8], text: &[u8]) -> bool {
        let top = self.top.as_os_str().as_bytes();
        let mut at = match (text.starts_with(b"/"), split(path).0) {
            (true, _) => Vec::new(),
            (false, b"") => top.to_vec(),
            (false, parent) => [top, b"/", parent].concat(),
        };
        let mut is_down = false;
        for name in text.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if name != b".." {
                at = [&at[..], b"/", name].concat();
                is_down = true;
                continue;
            }
            if is_down && at.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/")) {
                return true;
            }
            at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        }
        false
    }

    /// Reports whether a link leads to a bare repository of the workspace or into one: another link could go on from
    /// there.
    pub(crate) fn leads_to_bare(
        &self,
        base: &Workspace,
        path: &[u8],
        text: &[u8],
        links: &Links<'_>,
    ) -> Result<bool, IoFailure> {
        let mut found = Ok(false);
        let way = self.follow(path, text, links, &mut |inside, _| {
            if let Some(inside) = inside {
                let known = &mut self.bare.borrow_mut();
                found = if self.can_ask(inside, known) {
                    git_dirs::is_entered(base, path, inside, known)
                } else {
                    Ok(true)
                };
            }
        })?;
        Ok(found? || way == LinkEnd::TooLong)
    }

    /// Takes the steps for looking at a place outside of the workspace. Returns whether there were as many.
    pub(crate) fn can_look(&self, path: &[u8]) -> bool {
        self.steps.ask(path)
    }

    /// Takes the steps for asking about each directory on the way to a path that is not known yet.
    fn can_ask(&self, path: &[u8], known: &HashMap<Vec<u8>, bool>) -> bool {
        let mut at = path;
        while !known.contains_key(at) {
            if !self.steps.ask(at) {
                return false;
            }
            if at.is_empty() {
                break;
            }
            at = split(at).0;
        }
        true
    }

    /// Follows a link and gives its end to `take_end`, unless the way is too long.
    pub(crate) fn follow(
        &self,
        path: &[u8],
        text: &[u8],
        links: &Links<'_>,
        take_end: &mut TakeEnd<'_>,
    ) -> Result<LinkEnd, IoFailure> {
        self.steps.add_link();
        if is_too_long(text) {
            return Ok(LinkEnd::TooLong);
        }
        let top = self.top.as_os_str().as_bytes();
        let inside = |real: &'_ [u8]| -> Option<Vec<u8>> {
            if real == top {
                return Some(Vec::new());
            }
            real.strip_prefix(top).and_then(|rest| rest.strip_prefix(b"/")).map(<[u8]>::to_vec)
        };
        let parts = |text: &[u8]| -> VecDeque<Vec<u8>> {
            let names = text.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
            names.map(<[u8]>::to_vec).collect()
        };
        let parent = split(path).0;
        let mut at = if text.starts_with(b"/") {
            Vec::new()
        } else if parent.is_empty() {
            top.to_vec()
        } else {
            [top, b"/", parent].concat()
        };
        let mut rest = parts(text);
        let mut count = 0;
        while let Some(name) = rest.pop_front() {
            if at.len() > MAX_PATH || !self.steps.walk(&at) {
                return Ok(LinkEnd::TooLong);
            }
            if name == b".." {
                at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            let here = [&at[..], b"/", &name].concat();
            let target = match inside(&here) {
                Some(path) if path.is_empty() => Target::NoLink,
                Some(path) => links.at(&path, &self.steps)?,
                None => self.outside.at(&here, &self.steps)?,
            };
            let target = match target {
                Target::NoLink => {
                    at = here;
                    continue;
                }
                Target::Text(target) => target,
                Target::TooLong => return Ok(LinkEnd::TooLong),
            };
            count += 1;
            if count > MAX_LINKS {
                return Ok(LinkEnd::Walked);
            }
            if target.starts_with(b"/") {
                at.clear();
            }
            for name in parts(&target).into_iter().rev() {
                rest.push_front(name);
            }
        }
        take_end(inside(&at).as_deref(), &at);
        Ok(LinkEnd::Walked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(links: &[(&str, &str)], path: &str, text: &str) -> Option<String> {
        let rules = Rules::default();
        let ends = Ends::new(&rules, Path::new("/h/u/ws"));
        let read = Links::new(|path| {
            let found = links.iter().find(|(at, _)| at.as_bytes() == path);
            Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
        });
        ends.reason(path.as_bytes(), text.as_bytes(), &read).unwrap()
    }

    #[test]
    fn a_link_is_classified_by_where_it_leads() {
        for (path, text) in [
            ("log", ".git/hooks/post-merge"),
            ("a/b/log", "../../.vscode/tasks.json"),
            ("a/log", "../b/../.envrc"),
            ("log", "/h/u/ws/.git/config"),
            ("log", "../.bashrc"),
            ("a/log", "../../.config/autostart/x.desktop"),
            ("log", "/root/.ssh/authorized_keys"),
            ("d", ".git"),
            ("d", ".git/hooks"),
            ("log", "/h/u/other/.git/hooks/x"),
            ("log", ".git/logs"),
            ("log", ".git/refs/heads/main"),
            ("log", "/h/u/other/.git/objects"),
        ] {
            assert!(reason(&[], path, text).is_some(), "{path} {text}");
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
            assert_eq!(reason(&[], path, text), None, "{path} {text}");
        }
    }

    #[test]
    fn a_link_that_goes_down_and_up_again_is_known() {
        let rules = Rules::default();
        let ends = Ends::new(&rules, Path::new("/h/u/ws"));
        for (path, text) in
            [("log", "a/../config"), ("d/log", "../a/b/.."), ("log", "/h/u/ws/a/../x"), ("a/log", "b/../..")]
        {
            assert!(ends.goes_back(path.as_bytes(), text.as_bytes()), "{path} {text}");
        }
        for (path, text) in [
            ("d/log", "../../other/x"),
            ("d/log", "./../x"),
            ("log", "/usr/lib/../share/x"),
            ("log", "/h/u/ws/../x"),
            ("log", "a/b/c"),
            ("log", "/h/u/wsx/../x"),
        ] {
            assert!(!ends.goes_back(path.as_bytes(), text.as_bytes()), "{path} {text}");
        }
    }

    #[test]
    fn a_link_is_followed_through_other_links() {
        let links = [("deep", "a/b/c"), ("h", ".git"), ("one", "two"), ("two", "deep"), ("loop", "loop")];
        for (path, text) in [
            ("log", "h/hooks/pre-commit"),
            // `..` of where the link leads.
            ("log", "deep/../../../.envrc"),
            ("log", "two/../../../.git/config"),
            ("log", "one/../../.vscode/x"),
        ] {
            assert!(reason(&links, path, text).is_some(), "{path} {text}");
        }
        for (path, text) in [("log", "one/x"), ("log", "loop/.envrc"), ("x", "deep/../y")] {
            assert_eq!(reason(&links, path, text), None, "{path} {text}");
        }
        // By its text it would lead to the top.
        assert_eq!(reason(&links, "log", "deep/../x"), None);
    }

    #[test]
    fn a_link_with_a_long_way_waits_and_a_short_one_does_not() {
        let (long, short) = (format!("{}x", "d/../".repeat(33)), format!("{}x", "d/../".repeat(31)));
        let links = [("long", long.as_str()), ("short", short.as_str())];
        for (path, text) in [("log", long.as_str()), ("log", "long"), ("log", "long/../.envrc")] {
            assert_eq!(reason(&links, path, text).as_deref(), Some(TOO_LONG), "{path} {text}");
        }
        for (path, text) in [("log", short.as_str()), ("log", "short")] {
            assert_eq!(reason(&links, path, text), None, "{path} {text}");
        }
    }

    #[test]
    fn links_that_are_followed_too_far_wait_when_the_steps_end() {
        let rules = Rules::default();
        let ends = Ends::new(&rules, Path::new("/h/u/ws"));
        // 38 links, one behind the other, each of which goes down and up.
        let links = Links::new(|path| {
            let number = std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix('L')?.parse::<u32>().ok());
            let text = |number: u32| format!("{}L{}", "d/../".repeat(30), number + 1);
            Ok(number.filter(|number| *number < 37).map(|number| text(number).into_bytes()))
        });
        let reasons: Vec<_> =
            (0..2_000).map(|number| ends.reason(format!("M{number}").as_bytes(), b"L0", &links).unwrap()).collect();
        assert_eq!(reasons[0], None);
        assert_eq!(reasons[1_999].as_deref(), Some(TOO_LONG));
        // One that goes nowhere far is followed on.
        assert_eq!(ends.reason(b"short", b"d", &links).unwrap(), None);
    }
}
