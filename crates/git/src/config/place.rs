//! The git directory that a configuration belongs to, and what else is known of its settings. Pure.

/// The share of a repository's settings that the evaluated file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The git directory is new: there are no others.
    New,
    /// All of an existing repository, except its `config.worktree`.
    All,
    /// Nothing: the file was not there, and another one may have been before.
    Nothing,
    /// A part: `config.worktree` is read beside the configuration of the repository.
    Part,
}

/// Tells whether the `.git` file in a directory of the workspace names a git directory.
pub type NamesBack<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Tells whether a branch of a repository goes away together with its settings.
pub type BranchGoes<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Returns the URL that the workspace's `.gitmodules` says for a submodule, as `git submodule init` writes it.
pub type ModuleUrl<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// Tells whether a repository has a branch of a remote, and no configuration has `git push` go to upstreams.
pub type Upstream<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

/// The git directory of a configuration.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Relative to the workspace.
    pub git_dir: &'a [u8],
    /// The share of its settings that is known.
    pub known: Known,
    /// For this git directory.
    pub names_back: NamesBack<'a>,
    /// For the branches of this repository.
    pub branch_goes: BranchGoes<'a>,
    /// For the remotes of this repository and their branches.
    pub has_upstream: Upstream<'a>,
    /// For the submodules of this repository, or of the one around `module`.
    pub module_url: ModuleUrl<'a>,
    /// The submodule that the git directory is of, in a repository that the workspace has already.
    pub module: Option<&'a [u8]>,
}

impl<'a> Place<'a> {
    /// The git directory of a new repository that is not a submodule.
    #[must_use]
    pub fn of_new(git_dir: &'a [u8]) -> Self {
        Self {
            git_dir,
            known: Known::New,
            names_back: &|_| false,
            branch_goes: &|_| false,
            has_upstream: &|_, _| false,
            module_url: &|_| None,
            module: None,
        }
    }
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("git_dir", &self.git_dir).field("known", &self.known).finish_non_exhaustive()
    }
}

/// Every submodule has a `core.worktree`. It is inert when it stays inside the workspace and out of git's directories,
/// and leads to the working tree whose `.git` file names the git directory, as `git submodule` writes both.
pub(super) fn is_own_worktree(value: &[u8], at: &Place<'_>) -> bool {
    let mut place: Vec<&[u8]> = at.git_dir.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let is = |name: &[u8], wanted: &[u8]| nexus_beneath::fold::fold(name).as_ref() == wanted;
    let is_of_submodule = place.windows(2).any(|two| is(two[0], b".git") && is(two[1], b"modules"));
    if value.starts_with(b"/") || !is_of_submodule {
        return false;
    }
    for name in value.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                if place.pop().is_none() {
                    return false;
                }
            }
            // Submodules live in no hidden directory, and most protected names are one.
            _ if name.starts_with(b".") => return false,
            _ => place.push(name),
        }
    }
    let is_in_git = place.iter().any(|name| nexus_beneath::fold::fold(name).as_ref() == b".git");
    !place.is_empty() && !is_in_git && (at.names_back)(&place.join(&b'/'))
}
