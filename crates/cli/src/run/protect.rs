//! The protected names of a run: what a commit holds back, and what `--direct` covers read-only.

use crate::failure::Failure;
use nexus_facility::protected::Class;
use nexus_facility::{Layer, Reach, Rules, Workspace};
use nexus_model::ByteText;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// What of git `--direct` protects besides the names that a commit holds back, in a workspace and in one that is a git
/// directory itself.
const OF_GIT: [(&str, &str); 2] = [(".git/hooks", "hooks"), (".git/config", "config")];

/// Returns the rules of a commit of `layer` to the workspace at `path`, with the names that the run adds.
pub fn rules(more: &[String], layer: &Layer, workspace: &Workspace, path: &Path) -> Result<Rules, Failure> {
    let touched = layer.touched(workspace).map_err(|error| {
        let message = format!("the directories of the layer cannot be listed: {}", super::chain(&error));
        Failure::refused(
            "protect",
            message,
            "look at it in the state directory, or throw it away: nexus changes reject",
        )
    })?;
    within(more, workspace, path, Reach::COMMIT, &touched)
}

fn within(
    more: &[String],
    workspace: &Workspace,
    path: &Path,
    reach: Reach,
    touched: &[Vec<u8>],
) -> Result<Rules, Failure> {
    let rules = Rules::protecting(more).map_err(|error| {
        // The names were checked when they were read. Only a changed file of the state directory comes here.
        Failure::refused("protect", error.to_string(), "take the name out of the run's run.json in the state directory")
    })?;
    let host = super::git_host::find(path);
    rules.for_workspace(workspace, path, &host, reach, touched).map_err(|error| {
        let message = format!("the workspace's protected names cannot be found out: {}", super::chain(&error));
        Failure::refused("protect", message, "make that readable, or take it out of the configuration that names it")
    })
}

/// Returns the protected names that are in the workspace, as far as their first name is in its top folder, and those
/// that are not there to be protected. The names are those that a commit holds back: in every spelling, and a pattern
/// stands for all that it matches.
pub fn of_direct_run(workspace: &Path, more: &[String]) -> Result<(Vec<ByteText>, Vec<ByteText>), Failure> {
    let failed = |error: &Error| {
        let message = format!("{} cannot be looked at: {error}", workspace.display());
        Failure::refused("workspace", message, "leave --direct out, or make it readable")
    };
    let opened = Workspace::open(workspace).map_err(|error| failed(&Error::other(error)))?;
    let rules = within(more, &opened, workspace, Reach::TOP, &[])?;
    refuse_protected(&rules, workspace)?;
    let is_git_directory = rules.class(b"") == Class::GitRoot;
    let mut found = Found { rules: &rules, protected: BTreeSet::new(), matched: BTreeSet::new() };
    found.look(workspace, Path::new("")).map_err(|error| failed(&error))?;
    let mut unprotected = Vec::new();
    for (usual, bare) in OF_GIT {
        let name = if is_git_directory { bare } else { usual };
        if !found.protected.iter().any(|one| Path::new(name).starts_with(one.as_path())) {
            unprotected.push(ByteText::from(name));
        }
    }
    let missing = rules.protected.texts().filter(|text| !found.matched.contains(*text));
    unprotected.extend(missing.map(ByteText::from));
    Ok((found.protected.into_iter().collect(), unprotected))
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

struct Found<'a> {
    rules: &'a Rules,
    protected: BTreeSet<ByteText>,
    /// The patterns that found something.
    matched: BTreeSet<String>,
}

impl Found<'_> {
    /// Looks into the folder `at` and those that lead to protected names.
    fn look(&mut self, workspace: &Path, at: &Path) -> Result<(), Error> {
        let entries = match std::fs::read_dir(workspace.join(at)) {
            Ok(entries) => entries,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = at.join(entry.file_name());
            let class = self.class(&path);
            match class {
                Class::Listed(pattern) => {
                    self.matched.insert(pattern);
                    self.protected.insert(ByteText::from(path));
                }
                // In a git directory what decides what git runs. Its other files are git's own business.
                Class::GitConfig | Class::GitCommonDir | Class::GitHook => {
                    self.protected.insert(ByteText::from(path));
                }
                Class::GitState(_) if at.ends_with("info") => {
                    self.protected.insert(ByteText::from(path));
                }
                // A name that leads on, such as `.config`, and a git directory.
                Class::GitRoot | Class::MustBeDirectory | Class::NoLink => {
                    let kind = entry.file_type()?;
                    if self.class(&path.join("any name")) == Class::GitHook
                        || kind.is_symlink()
                        || (kind.is_file() && class == Class::GitRoot)
                    {
                        self.protected.insert(ByteText::from(path));
                    } else if kind.is_dir() {
                        self.look_below(workspace, &path)?;
                    }
                }
                Class::Plain | Class::GitState(_) => {}
            }
        }
        Ok(())
    }

    /// Looks into a directory that may hold protected names. Of what git itself fills, nothing is looked at but the
    /// places of objects elsewhere.
    fn look_below(&mut self, workspace: &Path, at: &Path) -> Result<(), Error> {
        let of_git = matches!(self.class(&at.join("any name")), Class::NoLink);
        let name = at.file_name().unwrap_or_default();
        match name.as_encoded_bytes() {
            b"objects" if of_git => self.look(workspace, &at.join("info")),
            b"refs" | b"logs" | b"lfs" if of_git => Ok(()),
            _ => self.look(workspace, at),
        }
    }

    fn class(&self, path: &Path) -> Class {
        self.rules.class(path.as_os_str().as_encoded_bytes())
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_run_finds_names_chains_and_patterns() {
        let folder = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(folder.path()).unwrap();
        let files =
            [".VSCode/x", ".config/fish/x", ".config/other/x", "x.code-workspace", "Makefile", ".git/config", "hk/x"];
        for path in files {
            std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            std::fs::write(at.join(path), "[core]\nhooksPath = hk\n").unwrap();
        }
        let (found, missing) = of_direct_run(&at, &["makefile".to_owned(), "more".to_owned()]).unwrap();
        let text =
            |names: &[ByteText]| names.iter().map(|name| name.as_path().display().to_string()).collect::<Vec<_>>();
        assert_eq!(text(&found), [".VSCode", ".config/fish", ".git/config", "Makefile", "hk", "x.code-workspace"]);
        let missing = text(&missing);
        for name in [".git/hooks", "more", ".envrc", ".config/git"] {
            assert!(missing.contains(&name.to_owned()), "{name}: {missing:?}");
        }
        assert!(!missing.contains(&".vscode".to_owned()) && !missing.contains(&".config/fish".to_owned()));
    }
}
