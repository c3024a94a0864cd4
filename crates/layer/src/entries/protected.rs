//! The rules of a commit: the protected names that it holds back, and the changes that the user accepted. Pure.

use crate::beneath::is_beneath;
use crate::entries::yours::Yours;
use crate::{IoFailure, Workspace};
use nexus_git::leads::{Host, Reach};
use nexus_model::ByteText;
use std::path::{Path, PathBuf};

pub use nexus_git::class::Class;
pub use nexus_git::names::{
    DEFAULT_PROTECTED, DEFAULT_PROTECTED_OF_REPOSITORIES, Names, PACKAGES, Pattern, PatternError,
};
pub use nexus_git::protect::EntryRules;

/// Directories in which git keeps the sample hooks that it copies into every new repository.
pub const DEFAULT_HOOK_TEMPLATES: &[&str] =
    &["/usr/share/git-core/templates/hooks", "/usr/local/share/git-core/templates/hooks"];

/// The rules of a commit: the names that it holds back, and what was chosen, rejected and accepted.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Protected names besides git's.
    pub protected: Names,
    /// Directories of the host with git's sample hooks; a hook equal to one of them is harmless.
    pub hook_templates: Vec<PathBuf>,
    /// When given: only these paths and what is below them are committed, everything else stays parked.
    pub only: Option<Vec<ByteText>>,
    /// These paths and what is below them were rejected: they stay parked whatever else is chosen.
    pub except: Vec<ByteText>,
    /// The user has seen all protected changes and accepts them. (Device nodes stay out all the same.)
    pub accept_protected: bool,
    /// A configuration of git may have `git push` go to the upstream of a branch, whatever its name.
    pub pushes_to_upstream: bool,
    /// Paths that the user named. They accept the protected entry that they name, or in which they lie, and nothing
    /// protected below another directory.
    pub named: Vec<ByteText>,
    /// Conflicts that the user decided for the run, with the workspace's versions kept beside.
    pub theirs: Vec<Yours>,
    /// Directories of the workspace that other runs have as theirs.
    pub homes: Vec<RunHome>,
}

/// A directory of the workspace in which another run works, or for which changes of another run are parked. If it
/// were removed, those changes could not be committed anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHome {
    /// Its path in the workspace.
    pub path: ByteText,
    /// The other run.
    pub run: String,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            protected: Names::standard(),
            hook_templates: DEFAULT_HOOK_TEMPLATES.iter().map(PathBuf::from).collect(),
            only: None,
            except: Vec::new(),
            accept_protected: false,
            // Until the configurations are read.
            pushes_to_upstream: true,
            named: Vec::new(),
            theirs: Vec::new(),
            homes: Vec::new(),
        }
    }
}

impl Rules {
    /// Returns the default rules with more protected names, as the user wrote them.
    pub fn protecting(more: &[String]) -> Result<Self, PatternError> {
        let mut rules = Self::default();
        for text in more {
            rules.protected.extend([Pattern::parse(text)?]);
        }
        Ok(rules)
    }

    /// Returns the reason to hold back the deletion or move of a directory that another run uses.
    #[must_use]
    pub fn is_home(&self, path: &[u8]) -> Option<String> {
        let home = self.homes.iter().find(|home| home.path.0 == path)?;
        Some(format!("the changes of the run {} wait", home.run))
    }

    /// Returns the class of a path by its names.
    #[must_use]
    pub fn class(&self, path: &[u8]) -> Class {
        self.protected.class(path)
    }

    /// Returns the rules for the entries of `directory`. They give each entry the class that [`Self::class`] gives to
    /// its whole path.
    #[must_use]
    pub fn entries_of<'a>(&'a self, directory: &'a [u8]) -> EntryRules<'a> {
        self.protected.entries_of(directory)
    }

    /// Adds the protected names of one workspace ([`Names::for_workspace`]).
    pub fn for_workspace(
        mut self,
        workspace: &Workspace,
        at: &Path,
        host: &Host,
        reach: Reach,
        touched: &[Vec<u8>],
    ) -> Result<Self, IoFailure> {
        let led_to = self.protected.for_workspace(workspace, at, host, reach, touched)?;
        (self.protected, self.pushes_to_upstream) = (led_to.names, led_to.pushes_to_upstream);
        Ok(self)
    }

    /// Reports whether the caller chose this path (everything, when nothing was chosen) and did not reject it.
    #[must_use]
    pub fn is_chosen(&self, path: &[u8]) -> bool {
        let beneath_any = |all: &[ByteText]| all.iter().any(|one| is_beneath(path, &one.0));
        self.only.as_ref().is_none_or(|only| beneath_any(only)) && !beneath_any(&self.except)
    }

    /// Reports whether the user accepted this path, which is held back by its name: all protected changes, the path
    /// itself, or a protected directory above it.
    #[must_use]
    pub fn accepts_protected(&self, path: &[u8]) -> bool {
        let names_it = |named: &ByteText| {
            named.0 == path || (is_beneath(path, &named.0) && self.names_what_is_protected(&named.0))
        };
        self.accept_protected || self.named.iter().any(names_it)
    }

    /// Reports whether the user accepted this path and no other: for bits and attributes, which a name does not show.
    #[must_use]
    pub fn accepts_exactly(&self, path: &[u8]) -> bool {
        self.accept_protected || self.named.iter().any(|named| named.0 == path)
    }

    /// Reports whether a named path lies below this directory, so that it cannot be had without the directory.
    #[must_use]
    pub(crate) fn accepts_below(&self, path: &[u8]) -> bool {
        self.accept_protected || self.named.iter().any(|named| is_beneath(&named.0, path))
    }

    fn names_what_is_protected(&self, path: &[u8]) -> bool {
        match self.class(path) {
            // Its other files are git's own business, and not what a user means by the name.
            Class::GitRoot => false,
            Class::MustBeDirectory => {
                let place = self.protected.place().join(&b'/');
                nexus_git::git_dir::is_hooks_directory(&crate::beneath::join(&place, path))
            }
            class => class.is_protected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(path: &str) -> Class {
        Rules::default().class(path.as_bytes())
    }

    /// A helper in a sandbox makes such directories, and a run that was killed leaves one.
    #[test]
    fn the_name_of_an_unfinished_move_waits_wherever_it_is() {
        let (rules, name) = (Rules::default(), nexus_model::moving::name(7));
        let is_listed = |class: Class| matches!(class, Class::Listed(_));
        for directory in ["", "new", ".git/refs/heads", ".GIT/x"] {
            let path = crate::beneath::join(directory.as_bytes(), &name);
            assert!(is_listed(rules.class(&path)), "{directory}");
            assert!(is_listed(rules.entries_of(directory.as_bytes()).class(&name)), "{directory}");
            assert!(is_listed(rules.entries_of(&path).class(b"x")), "{directory}");
        }
    }

    #[test]
    fn what_leads_to_a_protected_name_must_be_a_directory() {
        for path in [".config", "x/.config", ".git/hooks", "a/.git/modules", ".git/modules/m/hooks"] {
            assert_eq!(class(path), Class::MustBeDirectory, "{path}");
        }
    }

    #[test]
    fn the_files_of_git_are_distinguished() {
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
            (".git/index", Class::NoLink),
            (".git/refs/heads/config", Class::NoLink),
            (".git./config", Class::GitConfig),
            (".g\u{200c}it/hooks/x", Class::GitHook),
            ("git~1/config", Class::GitConfig),
            (".git/rebase-merge/git-rebase-todo", Class::GitState("an interrupted git rebase")),
            ("git/config", Class::Plain),
            (".github/config", Class::Plain),
        ] {
            assert_eq!(class(path), wanted, "{path}");
        }
    }

    fn named(paths: &[&str]) -> Rules {
        Rules { named: paths.iter().map(|path| (*path).into()).collect(), ..Rules::default() }
    }

    #[test]
    fn naming_a_protected_entry_accepts_it_and_its_parent_does_not() {
        for (name, path) in [
            (".vscode", ".vscode"),
            (".vscode", ".vscode/tasks.json"),
            ("src/.vscode", "src/.vscode/a/b"),
            (".vscode/tasks.json", ".vscode/tasks.json"),
            (".git/hooks", ".git/hooks/pre-commit"),
            (".git/hooks/pre-commit", ".git/hooks/pre-commit"),
            (".git/rebase-merge", ".git/rebase-merge/done"),
            (".config/fish", ".config/fish/config.fish"),
            ("src", "src"),
        ] {
            assert!(named(&[name]).accepts_protected(path.as_bytes()), "{name} {path}");
        }
        for (name, path) in [
            ("src", "src/.vscode"),
            ("src", "src/.vscode/tasks.json"),
            (".vscode/tasks.json", ".vscode/settings.json"),
            (".vscode/tasks.json", ".vscode"),
            (".config", ".config/fish/config.fish"),
            (".git", ".git/hooks/pre-commit"),
            (".git", ".git/config"),
            (".git/modules", ".git/modules/a/config"),
        ] {
            assert!(!named(&[name]).accepts_protected(path.as_bytes()), "{name} {path}");
        }
        let all = Rules { accept_protected: true, ..Rules::default() };
        assert!(all.accepts_protected(b"x") && all.accepts_exactly(b"x") && all.accepts_below(b"x"));
    }

    #[test]
    fn bits_and_attributes_need_the_exact_path() {
        let rules = named(&[".vscode", "a/b"]);
        assert!(rules.accepts_exactly(b"a/b") && !rules.accepts_exactly(b".vscode/x") && !rules.accepts_exactly(b"a"));
        assert!(rules.accepts_below(b"a") && !rules.accepts_below(b"c"));
    }

    #[test]
    fn an_entry_is_classified_as_its_whole_path_is() {
        let mut rules = Rules::protecting(&["deploy/*.sh".to_owned(), "*secret*".to_owned()]).unwrap();
        rules.protected.extend([Pattern::of_directory(b"hk/x", "a link"), Pattern::anywhere(b"tools/y", "a setting")]);
        let directories = [
            "",
            "a",
            "a/b",
            ".config",
            "a/.Config",
            ".git",
            "a/.GIT/modules/m",
            ".vscode",
            ".vscode/x",
            "deploy",
            "hk",
            "a/hk",
            "tools",
            "b/tools",
            "node_modules",
            "vendor/x",
            ".github",
            "vendor/.github",
            "x/git~1",
        ];
        let names = [
            "x",
            "y",
            "f.rs",
            ".git",
            ".GIT",
            "git~1",
            "config",
            "hooks",
            "fish",
            "Workflows",
            ".envrc",
            ".ENVRC",
            ".envrc ",
            "tasks.json",
            "run.sh",
            "my-Secret-key",
            "a.code-workspace",
            ".gitattributes",
            ".v\u{17f}code",
            "hk",
            "tools",
            "deploy",
            ".nexus-x",
            "lefthook.yml",
            ".config",
            "Jenkinsfile.x",
            "...",
            ":x",
            "AGENTS.md",
        ];
        let mut in_git = rules.clone();
        in_git.protected.stand_at(vec![b"p".to_vec(), b".git".to_vec()]);
        let mut in_config = rules.clone();
        in_config.protected.stand_at(vec![b".config".to_vec()]);
        let mut closed = rules.clone();
        closed.protected.protect_everything("closed".to_owned());
        for rules in [rules, in_git, in_config, closed] {
            for directory in directories {
                let entries = rules.entries_of(directory.as_bytes());
                for name in names {
                    let path = crate::beneath::join(directory.as_bytes(), name.as_bytes());
                    assert_eq!(entries.class(name.as_bytes()), rules.class(&path), "{directory} {name}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_read_may_push_to_upstreams() {
        assert!(Rules::default().pushes_to_upstream);
    }

    #[test]
    fn names_are_added_and_none_is_taken_away() {
        let rules = Rules::protecting(&["Makefile".to_owned()]).unwrap();
        assert_eq!(rules.class(b"sub/makefile"), Class::Listed("Makefile".to_owned()));
        assert_eq!(rules.class(b".envrc"), Class::Listed(".envrc".to_owned()));
        assert!(Rules::protecting(&["!.envrc".to_owned()]).is_err());
    }
}
