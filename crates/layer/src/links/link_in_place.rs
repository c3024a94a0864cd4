//! Resolves the links that a direct run (without a layer) created in the workspace.

use crate::beneath::{IoFailure, Workspace};
use crate::entries::protected::{Class, Rules};
use crate::links::link_budget::{LinkEnd, Links};
use crate::links::link_ends::{Ends, link};
use nexus_model::ByteText;

/// The place that a link leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lead {
    /// A place that is not protected, or lies outside of the workspace.
    Plain,
    /// A protected path of the workspace.
    Protected(ByteText),
    /// A place that is not known: the way is too long to be followed, or other links took all steps.
    TooLong,
}

/// Resolves links of a workspace, with one budget of steps for all of them.
pub struct LinksInPlace<'a> {
    rules: &'a Rules,
    base: &'a Workspace,
    ends: Ends<'a>,
    links: Links<'a>,
}

impl<'a> LinksInPlace<'a> {
    /// Prepares to resolve links of `base`, whose protected names `rules` defines.
    #[must_use]
    pub fn new(base: &'a Workspace, rules: &'a Rules) -> Self {
        Self { rules, base, ends: Ends::new(rules, base.path()), links: Links::new(|path| link(base, path)) }
    }

    /// Returns the place to which the link at a path of the workspace leads.
    pub fn lead(&self, path: &[u8]) -> Result<Lead, IoFailure> {
        let Some(text) = link(self.base, path)? else { return Ok(Lead::Plain) };
        let mut lead = Lead::Plain;
        let way = self.ends.follow(path, &text, &self.links, &mut |inside, _| {
            if let Some(inside) = inside.filter(|inside| self.rules.class(inside) != Class::Plain) {
                lead = Lead::Protected(ByteText(inside.to_vec()));
            }
        })?;
        Ok(if way == LinkEnd::TooLong { Lead::TooLong } else { lead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_links_of_a_workspace_are_followed_and_long_ones_are_not() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("d/e")).unwrap();
        let long = format!("{}x", "d/../".repeat(800));
        for (to, at) in [
            (".git/hooks", "log"),
            ("../../.envrc", "d/e/later"),
            ("d", "plain"),
            ("/etc/hostname", "outside"),
            ("../../../.git/x", "d/beyond"),
            (&long, "long"),
            ("long", "to_long"),
            ("loop", "loop"),
        ] {
            symlink(to, top.join(at)).unwrap();
        }
        let (base, rules) = (Workspace::open(&top).unwrap(), Rules::default());
        let links = LinksInPlace::new(&base, &rules);
        let protected = |path: &str| Lead::Protected(ByteText(path.as_bytes().to_vec()));
        for (path, wanted) in [
            ("log", protected(".git/hooks")),
            ("d/e/later", protected(".envrc")),
            ("long", Lead::TooLong),
            ("to_long", Lead::TooLong),
            ("plain", Lead::Plain),
            ("outside", Lead::Plain),
            ("d/beyond", Lead::Plain),
            ("loop", Lead::Plain),
            ("d", Lead::Plain),
        ] {
            assert_eq!(links.lead(path.as_bytes()).unwrap(), wanted, "{path}");
        }
    }
}
