//! What a run with `--direct` covers read-only in the workspace.
//!
//! Protected names count at any depth, as in a commit. A git directory is covered as a whole: whatever git reads as
//! configuration, under whatever name, cannot be made there. With `--direct-git` git can write to it, and only what decides
//! which programs git runs is covered. A directory that cannot be looked through, because the command could open it or because its
//! path is too long for a call, is covered as a whole.

use super::look::{Found, OF_GIT};
use super::protect;
use super::watch::Watched;
use crate::failure::Failure;
use nexus_facility::protected::Class;
use nexus_facility::{HeldIndex, LinksInPlace, Reach, Reads, Rules, Workspace, hold_bad_index};
use nexus_model::ByteText;
use std::collections::BTreeSet;
use std::io::Error;
use std::path::{Path, PathBuf};

/// Covers are mounts, of which a mount namespace has 100,000 (`fs.mount-max`).
const MAX_COVERED: usize = 10_000;

/// What a direct run covers, and by which rules.
pub struct Direct {
    /// Paths in the workspace that cannot be changed inside.
    pub protected: Vec<ByteText>,
    /// Names that do not exist yet, so that nothing covers them.
    pub unprotected: Vec<ByteText>,
    rules: Rules,
    opens_git: bool,
    /// How the files of git were that are not covered.
    watched: Watched,
}

/// What a direct run left that programs of the host may act on.
#[derive(Debug, Default)]
pub struct Left {
    /// Protected paths that the workspace did not have at the beginning, what git resumes and finds its history by and that is
    /// new or changed, new links to protected names, and new or changed refs that stand for others.
    pub appeared: Vec<ByteText>,
    /// Index files that git must not read.
    pub held: Vec<HeldIndex>,
}

impl Direct {
    /// Finds what is to be covered in the workspace: the names that a commit holds back, and those in `more`.
    pub fn find(workspace: &Path, more: &[String], opens_git: bool) -> Result<Self, Failure> {
        let failed = |error: &Error| failure(workspace, error);
        let opened = Workspace::open(workspace).map_err(|error| failed(&Error::other(error)))?;
        let rules = protect::within(more, &opened, workspace, Reach::COMMIT, &[])?;
        refuse_protected(&rules, workspace)?;
        let mut found = Found::new(&rules, opens_git);
        found.look(workspace).map_err(|error| failed(&error))?;
        found
            .watched
            .follow_links(&LinksInPlace::new(&opened, &rules))
            .map_err(|error| failed(&Error::other(error)))?;
        let Found { protected, matched, watched, .. } = found;
        if protected.len() > MAX_COVERED {
            let message = format!("{} has {} protected names, too many to cover", workspace.display(), protected.len());
            let hint = "name a smaller workspace with --workspace, or leave --direct out";
            return Err(Failure::refused("protect", message, hint));
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

    /// Looks at what the run left, once it is over, and moves index files aside that git must not read.
    pub fn left(&self, workspace: &Path) -> Result<Left, Failure> {
        let failed = |error: &Error| failure(workspace, error);
        let mut found = Found::new(&self.rules, self.opens_git);
        found.look(workspace).map_err(|error| failed(&error))?;
        let known: BTreeSet<&ByteText> = self.protected.iter().collect();
        let mut appeared: Vec<ByteText> =
            found.protected.iter().filter(|path| !known.contains(path)).cloned().collect();
        // What is in a git directory is looked at only there.
        let is_git = |path: &&ByteText| self.rules.class(&path.0) == Class::GitRoot;
        let new: Vec<Vec<u8>> = appeared.iter().filter(is_git).map(|path| path.0.clone()).collect();
        let mut inside = Found::new(&self.rules, true);
        inside.look_below(workspace, new).map_err(|error| failed(&error))?;
        let indexes: BTreeSet<&ByteText> =
            [&found, &inside].into_iter().flat_map(|found| found.watched.changed_indexes(&self.watched)).collect();
        let mut held = Vec::new();
        // The command may have removed the workspace.
        if !indexes.is_empty() || found.watched.has_links() {
            let opened = Workspace::open(workspace).map_err(|error| failed(&Error::other(error)))?;
            let reads = Reads::default();
            for path in indexes {
                held.extend(hold_bad_index(&opened, &path.0, &reads).map_err(|error| failed(&Error::other(error)))?);
            }
            let links = LinksInPlace::new(&opened, &self.rules);
            found.watched.follow_links(&links).map_err(|error| failed(&Error::other(error)))?;
        }
        appeared.extend(found.watched.changed_states(&self.watched).cloned());
        appeared.extend(found.watched.changed_links(&self.watched).cloned());
        // Those of a new repository too.
        appeared.extend(found.watched.changed_refs(&self.watched).cloned());
        appeared.extend(inside.watched.changed_refs(&self.watched).cloned());
        appeared.sort();
        appeared.dedup();
        Ok(Left { appeared, held })
    }
}

/// Names that a message lists.
const MAX_SHOWN: usize = 20;

/// The line about protected names that came during a run.
pub fn appeared_line(appeared: &[ByteText]) -> String {
    let what = "protected names, links to them, work that git resumes, refs of git that stand for others, or directories that cannot \
         be looked through, came into the workspace or changed during this direct run, and programs on this machine may act on them";
    format!("{what}: {}. look at them, and remove what you did not want", some_of(appeared))
}

/// The line about an index that git must not read.
pub fn held_line(held: &HeldIndex) -> String {
    let path = held.path.as_path().display();
    match &held.aside {
        Ok(aside) => format!(
            "{path} was moved to {}: the direct run left {}, and git would write by it. `git reset` makes a new one",
            aside.as_path().display(),
            held.why
        ),
        Err(error) => format!(
            "{path} is still there and could not be moved aside ({}): the direct run left {}, and git would write by it. Remove it \
             before git runs in that repository",
            error.source, held.why
        ),
    }
}

/// The line about a run that was ended because a cover was gone.
pub fn uncovered_line(path: &Path) -> String {
    format!(
        "The run was ended: a program outside of the sandbox replaced {}, which takes its cover away, so that the command could \
         have read or changed it. Run it again while no program saves that file, or leave --direct out.",
        path.display()
    )
}

/// The first names of a list, and how many more there are.
pub fn some_of(all: &[ByteText]) -> String {
    let names: Vec<_> = all.iter().take(MAX_SHOWN).map(|name| name.as_path().display().to_string()).collect();
    match all.len().saturating_sub(MAX_SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more (--json lists them)", names.join(", ")),
    }
}

fn failure(workspace: &Path, error: &Error) -> Failure {
    let message = format!("{} cannot be looked at: {error}", workspace.display());
    Failure::refused("workspace", message, "leave --direct out, or make it readable")
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
fn refuse_protected(rules: &Rules, workspace: &Path) -> Result<(), Failure> {
    // A name that no rule knows tells what holds for all names.
    let why = match rules.class(b"any name") {
        Class::Listed(why) => why,
        _ if rules.class(b"") == Class::GitRoot => return Ok(()),
        Class::Plain | Class::MustBeDirectory => return Ok(()),
        _ => "inside a git directory".to_owned(),
    };
    let message =
        format!("{} cannot be the workspace of a direct run: all of it is protected ({why})", workspace.display());
    let hint = "leave --direct out: then the changes wait, and nexus changes accept brings those that you name";
    Err(Failure::refused("protected_workspace", message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = Direct::find(&at, &more, false).unwrap();
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
        let found = Direct::find(&at, &more, true).unwrap();
        assert_eq!(text(&found.protected), wanted(&[".git/config", "sub/.git/config"]));
        let missing = text(&found.unprotected);
        for name in [".git/hooks", ".git/commondir", ".git/config.worktree"] {
            assert!(missing.contains(&name.to_owned()), "{name}: {missing:?}");
        }
        assert_eq!(found.left(&at).unwrap().appeared, []);
        std::fs::write(at.join(".git/commondir"), "../evil").unwrap();
        std::fs::write(at.join("deep/.envrc"), "x").unwrap();
        assert_eq!(text(&found.left(&at).unwrap().appeared), [".git/commondir", "deep/.envrc"]);
    }
}
