//! `extends`: which documents count, in which order. A document comes after all that it extends; each counts once.
//!
//! A profile that extends its own name means the one that it replaces: a `python.yaml` of the user with `extends:
//! [python]` adds to the built-in one. So a document is a name *and* how many places further out it was found.

use super::document::Document;
use super::origin::{Origin, Place};
use super::suggest::closest;
use nexus_model::Digest;

/// A document and what people know it as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The profile's name.
    pub name: String,
    /// A path, or `built-in profile NAME`.
    pub source: String,
    /// Hash of its text as it was read.
    pub hash: Digest,
    /// The content of the document.
    pub document: Document,
}

impl Loaded {
    /// Returns the origin of a value at a place in the document.
    #[must_use]
    pub fn origin(&self, place: Place) -> Origin {
        Origin::File { name: self.source.clone(), place }
    }
}

/// Profile by its name and the number of nearer ones of the same name that are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The name of the profile.
    pub name: String,
    /// 0 is the nearest.
    pub skip: usize,
}

/// Source of profiles; its implementations do the reading.
pub trait Library {
    /// Reason why a profile could not be read.
    type Error;
    /// Reads a profile; `None` if it does not exist.
    fn load(&mut self, link: &Link) -> Result<Option<Loaded>, Self::Error>;
    /// Returns all names, for a suggestion.
    fn names(&self) -> Vec<String>;
}

/// The profiles do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError<E> {
    /// No profile has this name.
    #[error("{from}: there is no profile {name}{}", suggestion.as_ref().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default())]
    Unknown {
        /// The name of the profile.
        name: String,
        /// The origin of the name.
        from: Origin,
        /// The known name that was probably meant.
        suggestion: Option<String>,
    },
    /// A profile extends itself by way of others.
    #[error("{from}: profiles extend each other in a circle: {}", chain.join(" → "))]
    Cycle {
        /// The names, the first again at the end.
        chain: Vec<String>,
        /// The `extends` that closes the circle.
        from: Origin,
    },
    /// A profile could not be read.
    #[error("a profile cannot be read")]
    Load(E),
}

/// Returns all documents of these profiles, parents first.
pub fn resolve<L: Library>(library: &mut L, wanted: &[(String, Origin)]) -> Result<Vec<Loaded>, ChainError<L::Error>> {
    let mut walk = Walk { library, done: Vec::new(), sequence: Vec::new(), open: Vec::new() };
    for (name, from) in wanted {
        walk.visit(Link { name: name.clone(), skip: 0 }, from)?;
    }
    Ok(walk.sequence)
}

struct Walk<'l, L> {
    library: &'l mut L,
    done: Vec<Link>,
    sequence: Vec<Loaded>,
    open: Vec<Link>,
}

impl<L: Library> Walk<'_, L> {
    fn visit(&mut self, link: Link, from: &Origin) -> Result<(), ChainError<L::Error>> {
        if self.done.contains(&link) {
            return Ok(());
        }
        if let Some(at) = self.open.iter().position(|open| *open == link) {
            let mut chain: Vec<String> = self.open[at..].iter().map(|open| open.name.clone()).collect();
            chain.push(link.name);
            return Err(ChainError::Cycle { chain, from: from.clone() });
        }
        let Some(loaded) = self.library.load(&link).map_err(ChainError::Load)? else {
            let names = self.library.names();
            let suggestion = closest(&link.name, names.iter().map(String::as_str)).map(str::to_owned);
            return Err(ChainError::Unknown {
                suggestion: suggestion.filter(|meant| *meant != link.name),
                name: link.name,
                from: from.clone(),
            });
        };
        self.open.push(link.clone());
        for (name, place) in &loaded.document.extends {
            let skip = if *name == link.name { link.skip + 1 } else { 0 };
            self.visit(Link { name: name.clone(), skip }, &loaded.origin(*place))?;
        }
        self.open.pop();
        self.done.push(link);
        self.sequence.push(loaded);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::parse;
    use super::*;

    struct Shelf(Vec<(&'static str, &'static str)>);

    impl Library for Shelf {
        type Error = ();

        fn load(&mut self, link: &Link) -> Result<Option<Loaded>, ()> {
            let found = self.0.iter().enumerate().filter(|(_, (name, _))| *name == link.name).nth(link.skip);
            Ok(found.map(|(at, (name, text))| Loaded {
                name: (*name).to_owned(),
                source: format!("{name}{at}"),
                hash: Digest::of(text.as_bytes()),
                document: parse(text).unwrap(),
            }))
        }

        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
        }
    }

    fn sequence(shelf: &[(&'static str, &'static str)], wanted: &[&str]) -> Result<Vec<String>, ChainError<()>> {
        let wanted: Vec<_> = wanted.iter().map(|name| ((*name).to_owned(), Origin::Flag("--profile".into()))).collect();
        let found = resolve(&mut Shelf(shelf.to_vec()), &wanted)?;
        Ok(found.into_iter().map(|loaded| loaded.source).collect())
    }

    #[test]
    fn parents_come_first_and_each_counts_once() {
        let shelf = [("a", "extends: [b, c]"), ("b", "extends: [c]"), ("c", ""), ("d", "extends: [a]")];
        assert_eq!(sequence(&shelf, &["a", "d"]).unwrap(), ["c2", "b1", "a0", "d3"]);
    }

    #[test]
    fn a_profile_that_extends_its_own_name_adds_to_the_one_it_replaces() {
        let shelf = [("python", "extends: [python]"), ("python", "extends: [default]"), ("default", "")];
        assert_eq!(sequence(&shelf, &["python"]).unwrap(), ["default2", "python1", "python0"]);
        let error = sequence(&[("python", "extends: [python]")], &["python"]).unwrap_err();
        assert!(matches!(error, ChainError::Unknown { .. }), "{error}");
    }

    #[test]
    fn a_circle_is_refused_with_its_names_and_the_line_that_closes_it() {
        let shelf = [("a", "extends: [b]"), ("b", "extends: [c]"), ("c", "\nextends: [b]")];
        let error = sequence(&shelf, &["a"]).unwrap_err();
        assert_eq!(error.to_string(), "c2:2:11: profiles extend each other in a circle: b → c → b");
    }

    #[test]
    fn an_unknown_profile_is_named_with_who_wants_it() {
        let error = sequence(&[("python", ""), ("a", "extends: [pyhton]")], &["a"]).unwrap_err();
        assert_eq!(error.to_string(), "a1:1:11: there is no profile pyhton; did you mean python?");
    }
}
