//! The classes of paths that a commit treats on their own. Pure.

/// The class of a path by its names. For some classes the content decides too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// A path without a special meaning.
    Plain,
    /// A protected name, or a path below one.
    Listed(String),
    /// Leads to protected names: a directory here is fine, a link or file would redirect them.
    MustBeDirectory,
    /// A path below git's private directories: a link would redirect configuration or hooks.
    NoLink,
    /// The entry `.git` itself.
    GitRoot,
    /// A git configuration file.
    GitConfig,
    /// A file among git's hooks.
    GitHook,
    /// `commondir`, which moves the place where git looks for configuration and hooks.
    GitCommonDir,
    /// A file by which git resumes work, or reads its objects and history; the text says what it is.
    GitState(&'static str),
}

impl Class {
    /// Reports whether a file of this class needs an accept by its name or its content.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        match self {
            Self::Listed(_)
            | Self::GitRoot
            | Self::GitConfig
            | Self::GitHook
            | Self::GitCommonDir
            | Self::GitState(_) => true,
            Self::Plain | Self::MustBeDirectory | Self::NoLink => false,
        }
    }
}
