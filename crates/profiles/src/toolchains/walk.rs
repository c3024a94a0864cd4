//! Follows a path of the host step by step, and stops where another user or an earlier run decides where it leads.

use super::access::{self, Part, PrivateGroups};
use super::places;
use super::reading;
use crate::host::Host;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Error of a path that is not followed to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nothing is there, or the caller cannot reach it.
    Missing,
    /// The path lies in the workspace, or leads through it.
    InWorkspace,
    /// Other users decide what is at this path.
    Open(PathBuf),
    /// A link leads to this path, which is not a known place of toolchains.
    Elsewhere(PathBuf),
}

/// Places to which links may lead.
#[derive(Clone, Copy)]
pub(super) enum Links {
    /// None of them, and below its own directory only the links of a manager: for a directory that is shown.
    OfManager,
    /// Places below the directory of the link, and the known places of tools: for an entry of PATH and for a program.
    Known,
    /// Any place, for a file of which only harmless settings are taken.
    Anywhere,
}

/// Rules by which paths are followed, with the answers of the host that were read already.
#[derive(Clone)]
pub(super) struct Walk {
    home: Option<PathBuf>,
    workspace: PathBuf,
    /// Identity of the workspace.
    own: Option<(u64, u64)>,
    /// Identities of the directories above the workspace, read when the first directory is compared with them.
    above: OnceCell<Vec<(u64, u64)>>,
    /// True if owners and known places count.
    is_strict: bool,
    groups: PrivateGroups,
    /// Directories that are not links, and that were evaluated. Each is spelled in one way, so that bytes are compared.
    real: RefCell<BTreeSet<OsString>>,
    /// The path that was followed last and was no link at its end, with the kind of what lies there.
    last: RefCell<Option<(PathBuf, FileType)>>,
}

impl Walk {
    pub(super) fn new(home: Option<PathBuf>, workspace: &Path) -> Self {
        Self {
            home,
            workspace: workspace.to_owned(),
            own: identity(workspace),
            above: OnceCell::new(),
            is_strict: false,
            groups: PrivateGroups::default(),
            real: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// Returns the same rules with owners and known places.
    pub(super) fn strict(&self) -> Self {
        Self { is_strict: true, real: RefCell::default(), ..self.clone() }
    }

    /// Reports whether owners and known places count.
    pub(super) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the kind of what lies at a real path: of the one that was followed just now without another question.
    pub(super) fn kind(&self, real: &Path) -> Option<FileType> {
        match &*self.last.borrow() {
            Some((path, kind)) if path.as_os_str() == real.as_os_str() => Some(*kind),
            _ => real.metadata().ok().map(|meta| meta.file_type()),
        }
    }

    /// Reports whether a directory is the workspace or holds it, also at a second mount of it.
    pub(super) fn holds_workspace(&self, directory: &Path) -> bool {
        if self.workspace.starts_with(directory) {
            return true;
        }
        let found = identity(directory);
        let above = self.above.get_or_init(|| self.workspace.ancestors().skip(1).filter_map(identity).collect());
        found.is_some_and(|found| self.own == Some(found) || above.contains(&found))
    }

    /// Returns the path with its links resolved. Each step is evaluated: a check of the ends alone would accept a
    /// directory of the workspace that is now a link (`.venv` → a directory of the home).
    pub(super) fn resolve(&self, caller: &Host, path: &Path, allowed: Links) -> Result<PathBuf, Refused> {
        let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
        let mut rest = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        // Links that an earlier run may have made.
        let mut by_content: Vec<PathBuf> = Vec::new();
        let mut evaluated = PathBuf::new();
        if !self.real.borrow().contains(at.as_os_str()) {
            self.evaluate(caller, &at, &at.symlink_metadata().map_err(|_| Refused::Missing)?, false)?;
            self.real.borrow_mut().insert(at.clone().into());
        }
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next().ok_or(Refused::Missing)? {
                Component::ParentDir => {
                    at.pop();
                }
                Component::RootDir => at = PathBuf::from("/"),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = at.join(name);
                    if next.starts_with(&self.workspace) {
                        return Err(Refused::InWorkspace);
                    }
                    if !rest.is_empty() && self.real.borrow().contains(next.as_os_str()) {
                        at = next;
                        continue;
                    }
                    let meta = next.symlink_metadata().map_err(|_| Refused::Missing)?;
                    self.evaluate(caller, &next, &meta, rest.is_empty())?;
                    if !meta.is_symlink() {
                        evaluated = if rest.is_empty() { next.clone() } else { PathBuf::new() };
                        if rest.is_empty() {
                            *self.last.borrow_mut() = Some((next.clone(), meta.file_type()));
                        }
                        // If something lies below it, it is a directory.
                        if !rest.is_empty() {
                            self.real.borrow_mut().insert(next.clone().into());
                        }
                        at = next;
                        continue;
                    }
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Refused::Missing);
                    }
                    if !(meta.uid() == 0 && places::is_of_system(&next)) {
                        by_content.push(next.clone());
                    }
                    rest.extend(parts(&std::fs::read_link(&next).map_err(|_| Refused::Missing)?));
                }
            }
        }
        // The path ended with `..`.
        if evaluated != at {
            self.evaluate(caller, &at, &at.symlink_metadata().map_err(|_| Refused::Missing)?, true)?;
        }
        let is_below = |link: &PathBuf| link.parent().is_some_and(|parent| at.starts_with(parent) && at != parent);
        let home = self.home.as_deref();
        let is_allowed = match allowed {
            Links::Anywhere => true,
            // Files below the directory of a link may be hidden from the run that made it.
            Links::OfManager => by_content.iter().all(|link| is_below(link) && places::is_of_manager(link, &at, home)),
            Links::Known => by_content.iter().all(is_below) || (places::is_target(&at, home) && !is_in_venv(&at, home)),
        };
        if self.is_strict && !is_allowed { Err(Refused::Elsewhere(at)) } else { Ok(at) }
    }

    /// Refuses a second mount of the workspace, and what other users decide.
    fn evaluate(&self, caller: &Host, path: &Path, meta: &Metadata, is_last: bool) -> Result<(), Refused> {
        if meta.is_dir() && self.own == Some((meta.dev(), meta.ino())) {
            return Err(Refused::InWorkspace);
        }
        let part = if is_last { Part::Last } else { Part::Above };
        if self.is_strict && access::is_open(caller, &self.groups, path, meta, part) {
            return Err(Refused::Open(path.to_owned()));
        }
        Ok(())
    }
}

/// Reports whether a path lies in a version of pyenv that is the environment of a project.
fn is_in_venv(path: &Path, home: Option<&Path>) -> bool {
    places::version_of_pyenv(path, home).is_some_and(reading::is_virtual)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_second_mount_of_the_workspace_is_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("code/ws/bin")).unwrap();
        let walk = |workspace: &Path| {
            let mut walk = Walk::new(None, workspace).strict();
            assert!(walk.holds_workspace(workspace) && !walk.holds_workspace(&root.join("missing")));
            // A second mount has another path and the same identity.
            walk.workspace = PathBuf::from("/elsewhere/ws");
            walk
        };
        let resolve = |walk: &Walk, name: &str| walk.resolve(&host(), &root.join(name), Links::Known);
        let of_workspace = walk(&root.join("code/ws"));
        assert_eq!(resolve(&of_workspace, "code/ws/bin"), Err(Refused::InWorkspace));
        assert_eq!(resolve(&of_workspace, "code"), Ok(root.join("code")));
        assert!(of_workspace.holds_workspace(&root.join("code")), "the directory above holds it");
        std::fs::create_dir(root.join("other")).unwrap();
        assert!(!of_workspace.holds_workspace(&root.join("other")));
    }

    #[test]
    fn a_link_leads_to_known_places_and_to_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["home/.nvm/versions/node/v22/bin", "home/secret/bin", "home/bin"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["home/.nvm/versions/node/v22/bin/node", "home/secret/bin/node", "home/bin/node"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        symlink(root.join("home/.nvm/versions/node/v22/bin/node"), root.join("home/bin/known")).unwrap();
        symlink("../secret/bin/node", root.join("home/bin/elsewhere")).unwrap();
        symlink("node", root.join("home/bin/neighbour")).unwrap();
        symlink("loop", root.join("home/bin/loop")).unwrap();
        let walk = Walk::new(Some(root.join("home")), Path::new("/ws"));
        let strict = walk.strict();
        let at = root.join("home/bin");
        let of = |walk: &Walk, name: &str, links| walk.resolve(&host(), &at.join(name), links);
        let secret = root.join("home/secret/bin/node");
        assert!(of(&strict, "known", Links::Known).is_ok());
        assert_eq!(of(&strict, "elsewhere", Links::Known), Err(Refused::Elsewhere(secret.clone())));
        assert_eq!(of(&strict, "elsewhere", Links::Anywhere), Ok(secret.clone()));
        assert_eq!(of(&walk, "elsewhere", Links::Known), Ok(secret));
        assert_eq!(of(&strict, "neighbour", Links::Known), Ok(at.join("node")));
        for link in ["known", "neighbour"] {
            assert!(of(&strict, link, Links::OfManager).is_err(), "{link}");
        }
        let versions = root.join("home/.nvm/versions/node");
        symlink("v22", versions.join("current")).unwrap();
        symlink("../../../secret", versions.join("odd")).unwrap();
        let of_manager = |name: &str| strict.resolve(&host(), &versions.join(name), Links::OfManager);
        assert_eq!(of_manager("current"), Ok(versions.join("v22")));
        assert!(of_manager("odd").is_err());
        symlink(".", root.join("home/bin/itself")).unwrap();
        assert!(of(&strict, "itself", Links::Known).is_err());
        assert_eq!(of(&strict, "loop", Links::Anywhere), Err(Refused::Missing));
        assert_eq!(of(&strict, "../secret/bin/node", Links::Known), Ok(root.join("home/secret/bin/node")));
    }
}
