//! Names whose change needs an explicit accept, because tools on the host act on them unasked: editors run tasks from
//! `.vscode`, shells read their rc files, agents read `.claude` and `.mcp.json`, git runs hooks. Pure.
//!
//! Names count at any depth and without regard to case: a case-insensitive file system resolves `.VSCode` too
//! (git CVE-2014-9390). A name is protected whether it exists or not (Claude Code CVE-2026-25725: a settings file was
//! protected only if it was there).

use nexus_model::ByteText;
use std::path::PathBuf;

/// The protected names of a workspace unless the operator says otherwise. `.git` has rules of its own.
pub const DEFAULT_PROTECTED: &[&str] = &[
    "nexus.yaml",
    ".nexus*",
    ".mcp.json",
    ".vscode",
    ".idea",
    ".claude",
    ".codex",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".config/fish",
];

/// Where git keeps the sample hooks that it copies into every new repository.
pub const DEFAULT_HOOK_TEMPLATES: &[&str] =
    &["/usr/share/git-core/templates/hooks", "/usr/local/share/git-core/templates/hooks"];

/// One protected name or chain of names; `*` at the end of a name stands for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    names: Vec<(Vec<u8>, bool)>,
}

impl Pattern {
    /// Reads `name`, `name*` or `name/name`. `None` for an empty, absolute or climbing one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let names: Vec<_> = text
            .split('/')
            .map(|name| name.strip_suffix('*').map_or((name, false), |stem| (stem, true)))
            .map(|(stem, open)| (stem.as_bytes().to_vec(), open))
            .collect();
        let sound = names.iter().all(|(stem, open)| match stem.as_slice() {
            b"" | b"." | b".." => *open && !stem.is_empty(),
            _ => true,
        });
        sound.then(|| Self { text: text.to_owned(), names })
    }

    fn matches_name(&self, at: usize, name: &[u8]) -> bool {
        let (stem, open) = &self.names[at];
        if *open {
            name.len() >= stem.len() && name[..stem.len()].eq_ignore_ascii_case(stem)
        } else {
            name.eq_ignore_ascii_case(stem)
        }
    }
}

/// What a commit holds back and what was accepted.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Protected names besides git's.
    pub protected: Vec<Pattern>,
    /// Host folders with git's sample hooks; a hook equal to one of them is harmless.
    pub hook_templates: Vec<PathBuf>,
    /// When given: only these paths and what is beneath them are committed, everything else stays parked.
    pub only: Option<Vec<ByteText>>,
    /// These paths and what is beneath them were rejected: they stay parked whatever else is chosen.
    pub except: Vec<ByteText>,
    /// Somebody has seen the protected changes and accepts them. (Device nodes stay out all the same.)
    pub accept_protected: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            protected: DEFAULT_PROTECTED.iter().filter_map(|text| Pattern::parse(text)).collect(),
            hook_templates: DEFAULT_HOOK_TEMPLATES.iter().map(PathBuf::from).collect(),
            only: None,
            except: Vec::new(),
            accept_protected: false,
        }
    }
}

/// What a path is to the rules. Some answers depend on the content too (`facts`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Nothing special.
    Plain,
    /// A protected name, or beneath one.
    Listed(String),
    /// Leads to protected names: a directory here is fine, a link or file would redirect them.
    MustBeDirectory,
    /// Beneath git's private folders: a link would redirect configuration or hooks.
    NoLink,
    /// `.git` itself.
    GitRoot,
    /// A git configuration file.
    GitConfig,
    /// A file among git's hooks.
    GitHook,
    /// `commondir`, which moves the place where git looks for configuration and hooks.
    GitCommonDir,
}

impl Rules {
    /// Judges a path by its names.
    #[must_use]
    pub fn class(&self, path: &[u8]) -> Class {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut leads = false;
        for start in 0..names.len() {
            for pattern in &self.protected {
                let rest = &names[start..];
                let matched = rest.iter().enumerate().take(pattern.names.len());
                let agree = matched.take_while(|(at, name)| pattern.matches_name(*at, name)).count();
                if agree == pattern.names.len() {
                    return Class::Listed(pattern.text.clone());
                }
                leads |= agree == rest.len();
            }
        }
        for (at, name) in names.iter().enumerate() {
            if name.eq_ignore_ascii_case(b".git") {
                match git_class(&names[at + 1..]) {
                    Class::Plain => {}
                    class => return class,
                }
            }
        }
        if leads { Class::MustBeDirectory } else { Class::Plain }
    }

    /// Whether the caller chose this path (everything, when nothing was chosen).
    #[must_use]
    pub fn is_chosen(&self, path: &[u8]) -> bool {
        let beneath_any = |all: &[ByteText]| all.iter().any(|one| crate::beneath::is_beneath(path, &one.0));
        self.only.as_ref().is_none_or(|only| beneath_any(only)) && !beneath_any(&self.except)
    }
}

/// The class of a path inside a git directory.
fn git_class(inside: &[&[u8]]) -> Class {
    let is = |name: &[u8], text: &str| name.eq_ignore_ascii_case(text.as_bytes());
    let is_config = |name: &[u8]| is(name, "config") || is(name, "config.worktree");
    match inside {
        [] => Class::GitRoot,
        [name] if is(name, "hooks") || is(name, "modules") || is(name, "worktrees") => Class::MustBeDirectory,
        [name] if is_config(name) => Class::GitConfig,
        [name] if is(name, "commondir") => Class::GitCommonDir,
        [first, ..] if is(first, "hooks") => Class::GitHook,
        // The name of a submodule may have slashes in it, so the depth of its git directory is unknown.
        [first, middle @ .., last] if is(first, "modules") || is(first, "worktrees") => {
            if middle.iter().any(|name| is(name, "hooks")) {
                Class::GitHook
            } else if is_config(last) {
                Class::GitConfig
            } else if is(last, "commondir") {
                Class::GitCommonDir
            } else if is(last, "hooks") {
                Class::MustBeDirectory
            } else {
                Class::NoLink
            }
        }
        _ => Class::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(path: &str) -> Class {
        Rules::default().class(path.as_bytes())
    }

    #[test]
    fn protected_names_come_in_pairs_with_harmless_neighbours() {
        for (bad, good) in [
            (".vscode/tasks.json", "vscode/tasks.json"),
            ("a/b/.VSCode", "a/b/.vscodes"),
            ("nexus.yaml", "nexus.yaml.md"),
            (".nexus-x/y", "nexus-x/y"),
            ("x/.envrc", "x/.envrc.sample"),
            (".config/fish/config.fish", ".config/fishy/config.fish"),
            ("sub/.bashrc", "sub/bashrc"),
            (".CLAUDE/settings.json", "claude/settings.json"),
        ] {
            assert!(matches!(class(bad), Class::Listed(_)), "{bad}");
            assert_eq!(class(good), Class::Plain, "{good}");
        }
        for text in DEFAULT_PROTECTED {
            assert!(matches!(class(&text.replace('*', "zz")), Class::Listed(_)), "{text}");
        }
    }

    #[test]
    fn what_leads_to_a_protected_name_must_be_a_directory() {
        for path in [".config", "x/.config", ".git/hooks", "a/.git/modules", ".git/modules/m/hooks"] {
            assert_eq!(class(path), Class::MustBeDirectory, "{path}");
        }
    }

    #[test]
    fn the_files_of_git_are_told_apart() {
        for (path, wanted) in [
            (".git", Class::GitRoot),
            ("a/.GIT", Class::GitRoot),
            (".git/config", Class::GitConfig),
            (".git/Config", Class::GitConfig),
            ("a/.git/config.worktree", Class::GitConfig),
            (".git/hooks/pre-commit", Class::GitHook),
            (".git/hooks/d/x", Class::GitHook),
            (".git/modules/a/b/hooks/x", Class::GitHook),
            (".git/modules/a/b/config", Class::GitConfig),
            (".git/modules/a", Class::NoLink),
            (".git/worktrees/w/config.worktree", Class::GitConfig),
            (".git/commondir", Class::GitCommonDir),
            (".git/worktrees/w/commondir", Class::GitCommonDir),
            (".git/index", Class::Plain),
            (".git/refs/heads/config", Class::Plain),
            ("git/config", Class::Plain),
            (".github/config", Class::Plain),
        ] {
            assert_eq!(class(path), wanted, "{path}");
        }
    }

    #[test]
    fn a_pattern_that_would_match_everything_is_refused() {
        for text in ["", "*", "/x", "a//b", "..", "a/.."] {
            assert!(Pattern::parse(text).is_none(), "{text:?}");
        }
    }
}
