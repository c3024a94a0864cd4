//! Finds what a direct run covers read-only in the workspace.
//!
//! Protected names count at any depth, as in a commit. A git directory is covered as a whole: whatever git reads as
//! configuration, under whatever name, cannot be made there. Where git was opened git can write to it, and only what decides
//! which programs git runs is covered. A directory that cannot be looked through, because the command could open it or because its
//! path is too long for a call, is covered as a whole.

use crate::host::Host;
use crate::plan::configuration;
use crate::plan::protect::{self, ProtectError};
use crate::plan::scan::{Found, OF_GIT};
use crate::plan::watch::Watched;
use nexus_layer::entries::protected::Class;
use nexus_layer::{HeldIndex, LinksInPlace, Reach, Reads, Rules, Workspace, hold_bad_index};
use nexus_model::ByteText;
use std::collections::BTreeSet;
use std::io::Error;
use std::path::{Path, PathBuf};

/// Covers are mounts, of which a mount namespace has 100,000 (`fs.mount-max`).
const MAX_COVERED: usize = 10_000;

/// Holds the paths that a direct run covers, and the rules for them.
pub struct Direct {
    /// Paths in the workspace that cannot be changed inside.
    pub protected: Vec<ByteText>,
    /// Names that do not exist yet, so that nothing covers them.
    pub unprotected: Vec<ByteText>,
    rules: Rules,
    opens_git: bool,
    /// The state of the files of git that are not covered, at the beginning.
    watched: Watched,
}

/// Holds what a direct run left that programs of the host may act on.
#[derive(Debug, Default)]
pub struct LeftByDirectRun {
    /// Protected paths that the workspace did not have at the beginning, what git resumes and finds its history by and that is
    /// new or changed, new links to protected names, and new or changed refs that stand for others.
    pub appeared: Vec<ByteText>,
    /// Index files that git must not read.
    pub held: Vec<HeldIndex>,
}

/// A workspace cannot be the one of a direct run.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The workspace cannot be looked through.
    #[error("{} cannot be looked at: {source}", workspace.display())]
    Unreadable {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The answer of the system.
        source: Error,
    },
    /// The protected names cannot be found out.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// The kernel has not that many mounts.
    #[error("{} has {count} protected names, too many to cover", workspace.display())]
    TooMany {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The number of names.
        count: usize,
    },
    /// The configuration of Nexus would lie in the workspace, and nothing is there yet that could be covered.
    #[error("{} is read as the configuration of Nexus and is missing, so that a direct run could make it", place.display())]
    Configuration {
        /// The missing place in the workspace.
        place: PathBuf,
    },
    /// The command could write to no path of the workspace.
    #[error("{} cannot be the workspace of a direct run: all of it is protected ({why})", workspace.display())]
    AllProtected {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The rule that protects it.
        why: String,
    },
}

impl DirectError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "workspace",
            Self::Protect(inner) => inner.code(),
            Self::TooMany { .. } => "protect",
            Self::Configuration { .. } => "config_dir",
            Self::AllProtected { .. } => "protected_workspace",
        }
    }
}

impl Direct {
    /// Finds what is to be covered in the workspace: the names that a commit holds back, and those in `more`.
    pub fn find(host: &Host, workspace: &Path, more: &[String], opens_git: bool) -> Result<Self, DirectError> {
        let failed = |source| DirectError::Unreadable { workspace: workspace.to_owned(), source };
        let opened = Workspace::open(workspace).map_err(|error| failed(Error::other(error)))?;
        let homes: Vec<PathBuf> = host.home.clone().into_iter().collect();
        if let Some(place) = configuration::missing_in(&configuration::places(host, &homes), workspace) {
            return Err(DirectError::Configuration { place });
        }
        let rules = protect::within(host, more, &opened, workspace, Reach::COMMIT, &[])?;
        refuse_protected(&rules, workspace)?;
        let mut found = Found::new(&rules, opens_git);
        found.scan(workspace).map_err(failed)?;
        found.watched.follow_links(&LinksInPlace::new(&opened, &rules)).map_err(|error| failed(Error::other(error)))?;
        let Found { protected, matched, watched, .. } = found;
        if protected.len() > MAX_COVERED {
            return Err(DirectError::TooMany { workspace: workspace.to_owned(), count: protected.len() });
        }
        let mut unprotected = Vec::new();
        for name in names_of_git(&rules, opens_git) {
            if !protected.iter().any(|one| name.starts_with(one.as_path())) {
                unprotected.push(ByteText::from(name));
            }
        }
        unprotected.extend(rules.protected.texts().filter(|text| !matched.contains(*text)).map(ByteText::from));
        Ok(Self { protected: protected.into_iter().collect(), unprotected, rules, opens_git, watched })
    }

    /// Reports whether git may write to its directories.
    pub fn opens_git(&self) -> bool {
        self.opens_git
    }

    /// Examines the changes of a direct run after its end, and moves index files aside that git must not read.
    pub fn examine_and_set_aside(&self, workspace: &Path) -> Result<LeftByDirectRun, DirectError> {
        let failed = |source| DirectError::Unreadable { workspace: workspace.to_owned(), source };
        let mut found = Found::new(&self.rules, self.opens_git);
        found.scan(workspace).map_err(failed)?;
        let known: BTreeSet<&ByteText> = self.protected.iter().collect();
        let mut appeared: Vec<ByteText> =
            found.protected.iter().filter(|path| !known.contains(path)).cloned().collect();
        // What is in a git directory is looked at only there.
        let is_git = |path: &&ByteText| self.rules.class(&path.0) == Class::GitRoot;
        let new: Vec<Vec<u8>> = appeared.iter().filter(is_git).map(|path| path.0.clone()).collect();
        let mut inside = Found::new(&self.rules, true);
        inside.scan_below(workspace, new).map_err(failed)?;
        let indexes: BTreeSet<&ByteText> =
            [&found, &inside].into_iter().flat_map(|found| found.watched.changed_indexes(&self.watched)).collect();
        let mut held = Vec::new();
        // The command may have removed the workspace.
        if !indexes.is_empty() || found.watched.has_links() {
            let opened = Workspace::open(workspace).map_err(|error| failed(Error::other(error)))?;
            let reads = Reads::default();
            for path in indexes {
                held.extend(hold_bad_index(&opened, &path.0, &reads).map_err(|error| failed(Error::other(error)))?);
            }
            let links = LinksInPlace::new(&opened, &self.rules);
            found.watched.follow_links(&links).map_err(|error| failed(Error::other(error)))?;
        }
        appeared.extend(found.watched.changed_states(&self.watched).cloned());
        appeared.extend(found.watched.changed_links(&self.watched).cloned());
        // Those of a new repository too.
        appeared.extend(found.watched.changed_refs(&self.watched).cloned());
        appeared.extend(inside.watched.changed_refs(&self.watched).cloned());
        appeared.sort();
        appeared.dedup();
        Ok(LeftByDirectRun { appeared, held })
    }
}

/// Names of git that no pattern has.
fn names_of_git(rules: &Rules, opens_git: bool) -> Vec<PathBuf> {
    let is_git_directory = rules.class(b"") == Class::GitRoot;
    match (is_git_directory, opens_git) {
        (true, _) => OF_GIT.iter().map(PathBuf::from).collect(),
        (false, true) => OF_GIT.iter().map(|name| Path::new(".git").join(name)).collect(),
        (false, false) => vec![PathBuf::from(".git")],
    }
}

/// Refuses a workspace in which nothing could be written: all of it is protected, or is a part of a git directory.
fn refuse_protected(rules: &Rules, workspace: &Path) -> Result<(), DirectError> {
    // A name that no rule knows has the class that holds for all names.
    let why = match rules.class(b"any name") {
        Class::Listed(why) => why,
        _ if rules.class(b"") == Class::GitRoot => return Ok(()),
        Class::Plain | Class::MustBeDirectory => return Ok(()),
        _ => "inside a git directory".to_owned(),
    };
    Err(DirectError::AllProtected { workspace: workspace.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { variables: std::collections::BTreeMap::new(), home: None, uid: rustix::process::geteuid().as_raw() }
    }

    fn text(names: &[ByteText]) -> Vec<String> {
        names.iter().map(|name| name.as_path().display().to_string()).collect()
    }

    fn workspace(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(directory.path()).unwrap();
        for path in files {
            std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            std::fs::write(at.join(path), "[core]\nhooksPath = hk\n").unwrap();
        }
        (directory, at)
    }

    #[test]
    fn a_direct_run_finds_names_chains_and_patterns() {
        let (_directory, at) = workspace(&[
            ".VSCode/x",
            ".config/fish/x",
            ".config/other/x",
            "x.code-workspace",
            "Makefile",
            ".git/config",
            ".git/index",
            "hk/x",
            "deep/er/.vscode/x",
            "sub/.git/config",
            "linked/.git",
            "node_modules/a/.npmrc",
            "bare/HEAD",
            "bare/objects/x",
            "bare/refs/x",
            "bare/config",
        ]);
        let more = ["makefile".to_owned(), "more".to_owned()];
        let found = Direct::find(&host(), &at, &more, false).unwrap();
        let names = [".VSCode", ".config/fish", "Makefile", "bare/config", "deep/er/.vscode", "hk", "linked/.git"];
        let wanted = |git: &[&str]| {
            let mut all: Vec<String> = names.iter().chain(git).map(|name| (*name).to_owned()).collect();
            all.push("x.code-workspace".to_owned());
            all.sort();
            all
        };
        assert_eq!(text(&found.protected), wanted(&[".git", "sub/.git"]));
        let missing = text(&found.unprotected);
        for name in ["more", ".envrc", ".config/git"] {
            assert!(missing.contains(&name.to_owned()), "{name}: {missing:?}");
        }
        for name in [".vscode", ".config/fish", ".git", ".git/hooks"] {
            assert!(!missing.contains(&name.to_owned()), "{name}");
        }
        let found = Direct::find(&host(), &at, &more, true).unwrap();
        assert_eq!(text(&found.protected), wanted(&[".git/config", "sub/.git/config"]));
        let missing = text(&found.unprotected);
        for name in [".git/hooks", ".git/commondir", ".git/config.worktree"] {
            assert!(missing.contains(&name.to_owned()), "{name}: {missing:?}");
        }
        assert_eq!(found.examine_and_set_aside(&at).unwrap().appeared, []);
        std::fs::write(at.join(".git/commondir"), "../evil").unwrap();
        std::fs::write(at.join("deep/.envrc"), "x").unwrap();
        assert_eq!(text(&found.examine_and_set_aside(&at).unwrap().appeared), [".git/commondir", "deep/.envrc"]);
    }
}
