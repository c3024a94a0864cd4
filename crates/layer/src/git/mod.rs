//! Changes of a layer to git repositories, and the reasons to hold them back: git runs hooks and commands of its
//! configuration.
//!
//! * `bare`: recognizes bare repositories, and protects their hooks and configuration
//! * `bare_links`: holds back a bare repository that a run created at the target of an existing link
//! * `bases`: records the files whose content at the start of a run is also stored in git
//! * `borrowers`: finds new repositories that borrow objects or fetch them later
//! * `branches`: the deletion of branches, and the reasons to hold back a change of a ref
//! * `by_content`: classifies the files of git directories in a layer by their content
//! * `closed_directories`: holds back mode changes that take the owner's access to a git directory
//! * `further_trees`: holds back the deletion of git files that a linked working tree needs
//! * `git_damage`: holds back refs, reflogs and indexes that do not read as git writes them
//! * `git_index`: holds back an index of git that names what no working tree may have
//! * `git_lock`: files of git that a git on the host holds at the moment
//! * `git_objects`: discards the modification and deletion of git objects in a layer
//! * `git_packs`: verifies the objects that a run adds to a repository of the workspace
//! * `git_rules`: classifies changes to git's configuration, hooks and state files by their content
//! * `graphs`: leaves out the commit graphs and multi-pack indexes of git that a run wrote
//! * `halves`: refuses halves of what git takes for damaged without the rest
//! * `links_between`: holds back links that lead from one git repository into another
//! * `nested`: holds back a git repository that a layer makes inside another one
//! * `other_repositories`: looks for git repositories around the ends of links that lie outside of the workspace
//! * `outside_branches`: holds back the branches of working trees outside of the workspace (`git worktree add`)
//! * `packed`: holds back the deletion of loose ref files if the layer's `packed-refs` is not committed with them
//! * `refs_by_content`: classifies the refs of git directories by their content
//! * `replaced`: holds back a complete git directory that a run created in place of an existing one
//! * `repository_at_link`: holds back a new repository at the target of a link in another repository
//! * `shallow`: holds back the refs that need the file `shallow`, together with it
//! * `stash`: a git commit that may hold uncommitted changes that git removed from a working tree (`git stash`)
//! * `unmade`: holds back the deletion of `HEAD`, `objects` or `refs` of a git directory
//! * `with_index`: holds `HEAD` and its branch back together with the index of their working tree

pub(crate) mod bare;
pub(crate) mod bare_links;
pub(crate) mod bases;
pub(crate) mod borrowers;
pub(crate) mod branches;
pub(crate) mod by_content;
pub(crate) mod closed_directories;
pub(crate) mod further_trees;
pub(crate) mod git_damage;
pub(crate) mod git_index;
pub(crate) mod git_lock;
pub(crate) mod git_objects;
pub(crate) mod git_packs;
pub(crate) mod git_rules;
pub(crate) mod graphs;
pub(crate) mod halves;
pub(crate) mod links_between;
pub(crate) mod nested;
pub(crate) mod other_repositories;
pub(crate) mod outside_branches;
pub(crate) mod packed;
pub(crate) mod refs_by_content;
pub(crate) mod replaced;
pub(crate) mod repository_at_link;
pub(crate) mod shallow;
pub(crate) mod stash;
pub(crate) mod unmade;
pub(crate) mod with_index;
