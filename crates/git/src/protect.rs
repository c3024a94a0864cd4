//! Classifies a path by the protected names and by those of git. Pure.

use crate::class::Class;
use crate::git_dir::git_class;
use crate::names::{Match, Names};
use nexus_beneath::fold::fold;
use nexus_beneath::join;
use std::borrow::Cow;

/// The rules for the entries of one directory.
#[derive(Debug)]
pub struct EntryRules<'a> {
    names: &'a Names,
    directory: &'a [u8],
    /// True if no pattern and no `.git` matches a part of the directory's path. The last name of an entry then decides alone.
    no_match_above: bool,
}

impl EntryRules<'_> {
    /// Returns the class of the entry `name`.
    #[must_use]
    pub fn class(&self, name: &[u8]) -> Class {
        if self.no_match_above {
            let folded = fold(name);
            if folded.as_ref() != b".git" && !self.names.may_begin(&folded) {
                return Class::Plain;
            }
        }
        self.names.class(&join(self.directory, name))
    }
}

impl Names {
    /// Returns the class of a path by its names.
    #[must_use]
    pub fn class(&self, path: &[u8]) -> Class {
        let place = self.place().iter().map(|name| Cow::Borrowed(name.as_slice()));
        let own = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(fold);
        let names: Vec<Cow<'_, [u8]>> = place.chain(own).collect();
        let found = self.find(&names);
        if let Match::Protected(text) = found {
            return Class::Listed(text.to_owned());
        }
        for (at, name) in names.iter().enumerate() {
            if name.as_ref() == b".git" {
                match git_class(&names[at + 1..]) {
                    Class::Plain => {}
                    class => return class,
                }
            }
        }
        if found == Match::Leads { Class::MustBeDirectory } else { Class::Plain }
    }

    /// Returns the rules for the entries of `directory`. They give each entry the class that [`Self::class`] gives to
    /// its whole path.
    #[must_use]
    pub fn entries_of<'a>(&'a self, directory: &'a [u8]) -> EntryRules<'a> {
        let place = self.place().iter().map(|name| Cow::Borrowed(name.as_slice()));
        let own = directory.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(fold);
        let names: Vec<Cow<'_, [u8]>> = place.chain(own).collect();
        let is_git = names.iter().any(|name| name.as_ref() == b".git");
        let no_match_above = !is_git && self.find(&names) == Match::None;
        EntryRules { names: self, directory, no_match_above }
    }
}
