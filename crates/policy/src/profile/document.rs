//! Content of one document, typed, each part with its place.

use super::limits::LimitKind;
use super::origin::Place;
use crate::net::Methods;

/// A value and where it stands.
pub type At<T> = (T, Place);

/// A profile or a workspace's `nexus.yaml`. Every list is in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// One line for `nexus profile list`.
    pub description: Option<At<String>>,
    /// Profiles that come before this one.
    pub extends: Vec<At<String>>,
    /// Tools of the caller that must work inside.
    pub toolchains: Vec<At<Toolchain>>,
    /// The paths of `fs`.
    pub fs: FsPart,
    /// Names under `/etc` that are shown where they exist.
    pub etc: Vec<At<String>>,
    /// The environment variables of `env`.
    pub env: EnvPart,
    /// Directories that go in front of PATH.
    pub path: Vec<At<String>>,
    /// The network of `net`.
    pub net: NetPart,
    /// The limits of `limits`.
    pub limits: LimitsPart,
    /// The treatment of changes.
    pub changes: Option<At<ChangesMode>>,
    /// Names whose changes wait for an accept, besides those that always do.
    pub protect: Vec<At<String>>,
    /// True if processes inside may trace each other; `None` if the document does not say.
    pub debug: Option<At<bool>>,
    /// True if the toolchains that the caller's PATH and environment lead to are shown; `None` if the document does not
    /// say.
    pub auto: Option<At<bool>>,
    /// True if build tools keep their caches for later runs in the same workspace; `None` if the document does not say.
    pub cache: Option<At<bool>>,
}

/// The part `fs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsPart {
    /// Host paths that are shown read-only.
    pub ro: Vec<At<BindRule>>,
    /// Shown and written straight through.
    pub rw: Vec<At<BindRule>>,
    /// Patterns in the workspace that cannot be read inside.
    pub hide: Vec<At<HidePattern>>,
}

/// A pattern of `hide`, as written.
pub type HidePattern = String;

/// A host path and where it appears; `~` is not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindRule {
    /// Host path, absolute or under `~`.
    pub src: String,
    /// Place inside, absolute; the host path when missing.
    pub dst: Option<String>,
}

/// The part `env`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvPart {
    /// Passed on from the caller when set there.
    pub pass: Vec<At<String>>,
    /// Set to a value.
    pub set: Vec<(At<String>, At<String>)>,
    /// Neither passed nor set, whatever came before.
    pub drop: Vec<At<String>>,
}

/// `net`. The rules stay text: what a rule means is decided where connections are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetPart {
    /// The mode of the network; `allow` and `groups` imply the allowlist.
    pub mode: Option<At<NetMode>>,
    /// Destinations that are allowed.
    pub allow: Vec<At<String>>,
    /// Destinations that stay closed, even if another rule allows them.
    pub deny: Vec<At<String>>,
    /// Named groups of destinations.
    pub groups: Vec<At<String>>,
    /// HTTP methods that are allowed.
    pub methods: Option<At<Methods>>,
}

/// `net.mode`, from the narrowest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetMode {
    /// Loopback of the sandbox alone.
    None,
    /// Destinations that `allow` and `groups` name.
    Allowlist,
    /// Any public destination.
    Unrestricted,
}

/// The part `limits`.
pub type LimitsPart = Vec<(LimitKind, At<u64>)>;

/// `changes`, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangesMode {
    /// Into the workspace.
    Commit,
    /// Asked at the end.
    Ask,
    /// Parked until a person accepts them.
    Review,
    /// Dropped after the run.
    Discard,
}

/// A family of tools that can be found on the host and shown inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Toolchain {
    /// Python: the system's, pyenv, uv, conda, virtual environments.
    Python,
    /// Node: the system's, nvm, fnm, volta.
    Node,
    /// Rust: rustup and cargo.
    Rust,
    /// Go: its directory and the module cache.
    Go,
    /// Java: the system's, sdkman; Maven and Gradle.
    Java,
    /// Git: identity and linked worktrees.
    Git,
    /// Ruby: the system's, rbenv, rvm.
    Ruby,
    /// PHP: its directory and the settings of the system's command line.
    Php,
    /// Perl: the system's, plenv, perlbrew, local::lib.
    Perl,
}

/// Enums that are words in a document.
pub(crate) trait Word: Copy + 'static {
    /// Noun for the words, for messages.
    const WHAT: &'static str;
    /// The values and their words.
    const WORDS: &'static [(Self, &'static str)];
}

/// Gives an enum its words in a document.
macro_rules! words {
    ($name:ty, $what:literal, $($value:path => $word:literal),+) => {
        impl $crate::profile::document::Word for $name {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(Self, &'static str)] = &[$(($value, $word)),+];
        }

        impl $name {
            /// Returns the value's word in a document.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $($value => $word),+
                }
            }
        }
    };
}

pub(crate) use words;

words!(NetMode, "a network mode", NetMode::None => "none", NetMode::Allowlist => "allowlist", NetMode::Unrestricted => "unrestricted");
words!(Methods, "which HTTP methods", Methods::Any => "any", Methods::ReadOnly => "read_only");
words!(ChangesMode, "what to do with changes", ChangesMode::Commit => "commit", ChangesMode::Ask => "ask", ChangesMode::Review => "review", ChangesMode::Discard => "discard");
words!(Toolchain, "a toolchain", Toolchain::Python => "python", Toolchain::Node => "node", Toolchain::Rust => "rust", Toolchain::Go => "go", Toolchain::Java => "java", Toolchain::Git => "git", Toolchain::Ruby => "ruby", Toolchain::Php => "php", Toolchain::Perl => "perl");
