//! Patterns of paths: `workspace:/src/**`, `host:/opt/models`.
//!
//! A pattern is one path, or a path with everything below it. There is no other wildcard: whether one pattern holds all
//! of another must be decidable by looking at both.

use std::fmt;

/// The tree that a path is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The workspace of the run.
    Workspace,
    /// The file system of the host.
    Host,
}

impl Root {
    fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Host => "host",
        }
    }
}

/// One path, or one path with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern {
    root: Root,
    /// The names of the path, from the root.
    names: Vec<String>,
    below: bool,
}

/// Reason why a text is not a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// Neither `workspace:` nor `host:` stands in front.
    #[error("{text:?} must begin with workspace: or host:")]
    Root {
        /// The text as written, shortened.
        text: String,
    },
    /// The path does not begin at the root.
    #[error("{text:?} must have a path from the root, as in host:/opt/models or workspace:/src/**")]
    Relative {
        /// The text as written, shortened.
        text: String,
    },
    /// A part of the path is empty, `.`, `..`, or holds a character that no pattern has.
    #[error("{text:?} has a part that no pattern takes: write whole names, and ** alone at the end")]
    Part {
        /// The text as written, shortened.
        text: String,
    },
}

impl PathPattern {
    /// Reads `ROOT:/PATH`, `ROOT:/PATH/**` or `ROOT:**`.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let shown = || text.chars().take(200).collect::<String>();
        let (root, path) = [Root::Workspace, Root::Host]
            .into_iter()
            .find_map(|root| Some((root, text.strip_prefix(root.word())?.strip_prefix(':')?)))
            .ok_or_else(|| PathPatternError::Root { text: shown() })?;
        if path == "**" {
            return Ok(Self { root, names: Vec::new(), below: true });
        }
        let rest = path.strip_prefix('/').ok_or_else(|| PathPatternError::Relative { text: shown() })?;
        let (rest, below) = match rest.strip_suffix("**") {
            Some("") => ("", true),
            Some(before) => (before.strip_suffix('/').ok_or_else(|| PathPatternError::Part { text: shown() })?, true),
            None => (rest, false),
        };
        if rest.is_empty() && (below || path == "/") {
            return Ok(Self { root, names: Vec::new(), below });
        }
        let sound = |name: &str| {
            !matches!(name, "" | "." | "..")
                && !name.contains(['*', '?', '[', '{', '}', '\\'])
                && !name.chars().any(char::is_control)
        };
        if !rest.split('/').all(sound) {
            return Err(PathPatternError::Part { text: shown() });
        }
        Ok(Self { root, names: rest.split('/').map(str::to_owned).collect(), below })
    }

    /// Returns the pattern of a path of the host, `with_below` with everything below it. `None` if the path is not UTF-8, not absolute,
    /// or has parts that no pattern takes.
    #[must_use]
    pub fn of_host(path: &std::path::Path, with_below: bool) -> Option<Self> {
        let mut names = Vec::new();
        for part in path.components() {
            match part {
                std::path::Component::RootDir => {}
                std::path::Component::Normal(name) => names.push(name.to_str()?.to_owned()),
                _ => return None,
            }
        }
        path.is_absolute().then_some(Self { root: Root::Host, names, below: with_below })
    }

    /// Returns the pattern of a whole workspace.
    #[must_use]
    pub fn workspace() -> Self {
        Self { root: Root::Workspace, names: Vec::new(), below: true }
    }

    /// Reports whether the pattern is about a workspace.
    #[must_use]
    pub fn is_in_workspace(&self) -> bool {
        self.root == Root::Workspace
    }

    /// Returns the path in the workspace, without the root, for a pattern of the workspace that is not the whole of it.
    #[must_use]
    pub fn in_workspace(&self) -> Option<String> {
        (self.root == Root::Workspace && !self.names.is_empty()).then(|| self.names.join("/"))
    }

    /// Reports whether every path of `other` is one of this pattern.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.root == other.root
            && if self.below { other.names.starts_with(&self.names) } else { self.names == other.names && !other.below }
    }

    /// Reports whether some path is one of both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.root == other.root
            && match (self.below, other.below) {
                (true, true) => self.names.starts_with(&other.names) || other.names.starts_with(&self.names),
                (true, false) => other.names.starts_with(&self.names),
                (false, true) => self.names.starts_with(&other.names),
                (false, false) => self.names == other.names,
            }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:/{}", self.root.word(), self.names.join("/"))?;
        match (self.below, self.names.is_empty()) {
            (true, true) => f.write_str("**"),
            (true, false) => f.write_str("/**"),
            (false, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_is_printed_as_it_reads_and_nothing_else_is_a_pattern() {
        for text in ["workspace:/**", "workspace:/", "host:/opt/models", "host:/opt/**", "host:/a b/c"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("workspace:**").to_string(), "workspace:/**");
        for bad in [
            "",
            "/opt",
            "host:opt",
            "host:/a/../b",
            "host:/a//b",
            "host:/a/",
            "host:/*",
            "host:/a*",
            "host:/a/**/b",
            "host:/a**",
            "host:/{a,b}",
            "home:/a",
            "host:/a/./b",
            "host:/a?",
            "host:",
            "host:/a\nb",
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_covers_what_is_below_it_and_no_neighbour() {
        for (wide, narrow, covers, overlaps) in [
            ("host:/**", "host:/etc", true, true),
            ("host:/opt/**", "host:/opt", true, true),
            ("host:/opt/**", "host:/opt/a/**", true, true),
            ("host:/opt/**", "host:/opt2", false, false),
            ("host:/opt", "host:/opt/**", false, true),
            ("host:/opt", "host:/opt/a", false, false),
            ("host:/opt/a/**", "host:/opt/**", false, true),
            ("workspace:/**", "host:/etc", false, false),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), covers, "{wide} {narrow}");
            assert_eq!(pattern(wide).overlaps(&pattern(narrow)), overlaps, "{wide} {narrow}");
            assert_eq!(pattern(narrow).overlaps(&pattern(wide)), overlaps, "{wide} {narrow}");
        }
    }

    #[test]
    fn a_path_of_the_host_stands_for_all_below_it_if_it_is_a_directory() {
        assert_eq!(PathPattern::of_host(std::path::Path::new("/opt/a"), false).unwrap(), pattern("host:/opt/a"));
        assert_eq!(PathPattern::of_host(std::path::Path::new("/opt/a"), true).unwrap(), pattern("host:/opt/a/**"));
        assert_eq!(PathPattern::of_host(std::path::Path::new("opt"), true), None);
        assert_eq!(PathPattern::of_host(std::path::Path::new("/opt/../etc"), true), None);
    }
}
