//! Classifies the files of git directories in a layer by their content.

use crate::beneath::{Doing as _, IoFailure, Workspace, split};
use crate::entries::protected::Class;
use crate::entries::tree::{LayerTree, Role, Verdict};
use crate::git::branches::{Branches, ByPath};
use crate::git::git_rules::{Existing, GitDirectory, Made, Version, classify};
use crate::meta::EntryType;
use crate::read::walk::{Walk, WalkError, lower_path};
use nexus_git::git_dir::EXCLUDE;
use nexus_git::refs as git_refs;
use nexus_git::submodules::Modules;
use std::os::fd::AsFd as _;

impl Walk<'_> {
    /// Sets the verdicts of the files of git directories that are known by their name.
    pub(crate) fn classify(&self, tree: &mut LayerTree) -> Result<(), WalkError> {
        let by_path = ByPath::default();
        for at in 1..tree.nodes.len() {
            let one = &tree.nodes[at];
            let class = self.rules.class(&one.path.0);
            let by_content = match class {
                Class::GitConfig | Class::GitHook | Class::GitCommonDir | Class::GitRoot | Class::GitState(_) => true,
                Class::Plain | Class::Listed(_) | Class::MustBeDirectory | Class::NoLink => false,
            };
            if class == Class::NoLink
                && let Some(inside) = git_refs::inside_git(&one.path.0)
                && let Some(why) = self.holds_ref(tree, at, inside)?
            {
                tree.nodes[at].rare.verdict = Some(Verdict::Park(why.to_owned()));
                continue;
            }
            // A git directory that goes is classified as a whole (`nested`).
            let goes = class == Class::GitRoot
                && one.role != Role::Entry
                && one.covers.as_ref().is_some_and(|old| old.meta.kind == EntryType::Directory);
            if !by_content || goes || (one.role == Role::Entry && one.meta.kind == EntryType::Directory) {
                continue;
            }
            let is_new = lower_path(&tree.nodes[one.parent]).is_none();
            let verdict = self.classify_by(&class, (tree, &by_path), at, is_new)?;
            tree.nodes[at].rare.verdict = Some(verdict);
        }
        Ok(())
    }

    /// Reads a version of a file, up to what may still be read of the layer.
    pub(crate) fn version(&self, tree: &Workspace, path: &[u8], class: &Class) -> Result<Version, IoFailure> {
        let (parent, name) = split(path);
        let dir = tree.dir(parent).doing("open", parent)?;
        Version::read(dir.as_fd(), name, class, &self.reads).doing("read", path)
    }

    /// Returns the verdict for a file of a git directory by its content. In a git directory that is new, the entry that
    /// the workspace has at the place of the file was not a file of git.
    pub(crate) fn classify_by(
        &self,
        class: &Class,
        (tree, by_path): (&LayerTree, &ByPath),
        at: usize,
        is_new: bool,
    ) -> Result<Verdict, IoFailure> {
        let one = &tree.nodes[at];
        let path = &one.path.0;
        // Its directory may be new in a git directory that is not.
        let is_new = is_new
            && (*class != Class::GitState(EXCLUDE) || lower_path(&tree.nodes[tree.nodes[one.parent].parent]).is_none());
        let new = match one.role {
            Role::Whiteout | Role::Implied => Version::Absent,
            Role::Entry if one.meta.kind != EntryType::File => Version::Unreadable,
            Role::Entry => self.version(self.upper, &one.path.0, class)?,
        };
        let base = match &one.covers {
            Some(found) if !is_new && found.meta.kind != EntryType::Directory => {
                self.version(self.base, &found.at.0, class)?
            }
            _ => Version::Absent,
        };
        let git_dir = split(path).0;
        let names_back = |tree: &[u8]| nexus_git::submodules::names_back(self.base, tree, git_dir);
        let modules = Modules::around(self.base, git_dir);
        let module_url = |name: &[u8]| modules.url(name);
        let branches = Branches::new(self, tree, by_path, one.parent);
        let branch_goes = |branch: &[u8]| branches.goes(branch);
        let has_upstream =
            |remote: &[u8], branch: &[u8]| !self.rules.pushes_to_upstream && branches.tracks(remote, branch);
        let has_old_remotes = match lower_path(&tree.nodes[one.parent]) {
            Some(base) if *class == Class::GitConfig && !is_new => {
                crate::read::git_dirs::has_old_remotes(self.base, base)?
            }
            Some(_) | None => false,
        };
        let directory = if is_new {
            GitDirectory::New(Made { names_back: &names_back, module_url: &module_url, module: modules.own() })
        } else {
            GitDirectory::Stays(Existing {
                branch_goes: &branch_goes,
                has_upstream: &has_upstream,
                module_url: &module_url,
                has_old_remotes,
            })
        };
        Ok(match classify(self.rules, class, path, &new, &base, directory) {
            // A part of the file would take the place of a file of the workspace.
            Verdict::Strip(_) if is_new && one.covers.is_some() => {
                Verdict::Park(crate::entries::verdict::stripped(class).to_owned())
            }
            other => other,
        })
    }
}
