//! What one document says, typed, each part with its place.

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
    /// Paths.
    pub fs: FsPart,
    /// Names beneath `/etc` that are shown where they exist.
    pub etc: Vec<At<String>>,
    /// Environment.
    pub env: EnvPart,
    /// Folders that go in front of PATH.
    pub path: Vec<At<String>>,
    /// Network.
    pub net: NetPart,
    /// Limits.
    pub limits: LimitsPart,
    /// What becomes of changes.
    pub changes: Option<At<ChangesMode>>,
    /// Names whose changes wait for an accept, besides those that always do.
    pub protect: Vec<At<String>>,
    /// Whether processes inside may trace each other.
    pub debug: Option<At<bool>>,
}

/// `fs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsPart {
    /// Shown read-only.
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
    /// Host path, absolute or beneath `~`.
    pub src: String,
    /// Place inside, absolute; the host path when missing.
    pub dst: Option<String>,
}

/// `env`.
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
    /// Which destinations at all; `allow` and `groups` imply the allowlist.
    pub mode: Option<At<NetMode>>,
    /// Destinations.
    pub allow: Vec<At<String>>,
    /// Destinations that stay closed whoever allows them.
    pub deny: Vec<At<String>>,
    /// Named groups of destinations.
    pub groups: Vec<At<String>>,
    /// HTTP methods.
    pub methods: Option<At<Methods>>,
}

/// `net.mode`, from the narrowest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetMode {
    /// Loopback of the sandbox alone.
    None,
    /// What `allow` and `groups` name.
    Allowlist,
    /// Any public destination.
    Unrestricted,
}

/// `limits`.
pub type LimitsPart = Vec<(LimitKind, At<u64>)>;

/// `changes`, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangesMode {
    /// Into the workspace.
    Commit,
    /// Asked at the end.
    Ask,
    /// Parked until somebody accepts.
    Review,
    /// Nowhere.
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
    /// Go.
    Go,
    /// Java: the system's, sdkman; Maven and Gradle.
    Java,
    /// Git: identity and linked worktrees.
    Git,
}

/// Enums that are words in a document.
pub(super) trait Word: Copy + 'static {
    /// What the words are, for messages.
    const WHAT: &'static str;
    /// The values and their words.
    const WORDS: &'static [(Self, &'static str)];
}

macro_rules! words {
    ($name:ty, $what:literal, $($value:path => $word:literal),+) => {
        impl Word for $name {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(Self, &'static str)] = &[$(($value, $word)),+];
        }

        impl $name {
            /// Its word in a document.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $($value => $word),+
                }
            }
        }
    };
}

words!(NetMode, "a network mode", NetMode::None => "none", NetMode::Allowlist => "allowlist", NetMode::Unrestricted => "unrestricted");
words!(Methods, "which HTTP methods", Methods::Any => "any", Methods::ReadOnly => "read_only");
words!(ChangesMode, "what to do with changes", ChangesMode::Commit => "commit", ChangesMode::Ask => "ask", ChangesMode::Review => "review", ChangesMode::Discard => "discard");
words!(Toolchain, "a toolchain", Toolchain::Python => "python", Toolchain::Node => "node", Toolchain::Rust => "rust", Toolchain::Go => "go", Toolchain::Java => "java", Toolchain::Git => "git");
