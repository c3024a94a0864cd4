//! Finds what trusted things of the host lead to in a workspace: paths that are protected although their names say
//! nothing.
//!
//! * `place`: the workspace's own path, since `hooks/pre-commit` in the workspace `.git` is a hook.
//! * `links`: links at protected names. `fixed` looks those up that are known by name, without a bound.
//! * `git`: the files that git's configurations include or name, of every repository around and in the workspace, and
//!   of the user and the system. `settings` knows which those are, `resolve` where a path leads.
//! * the configuration of Nexus, which a link or a missing directory may lead into the workspace: it grants rights.
//! * `scripts`: what existing hooks, `.envrc` files and configurations start or read by its path. `words` finds the
//!   paths. Hooks that git starts in every repository name a helper in each directory, since a run may make a
//!   repository of any.
//!
//! All of it is looked up when there is something to commit, in the workspace as it is then: the layer is not part of
//! it. The work is bounded. What cannot be read within the bounds of a configuration is an error, and the changes wait.

mod collect;
mod fixed;
mod git;
mod links;
mod place;
mod queue;
mod resolve;
mod scripts;
mod settings;
mod variables;
mod word_lists;
mod words;

use crate::names::Names;
pub use collect::{Host, Reach};
use nexus_beneath::meta::EntryType;
use nexus_beneath::{Doing as _, IoFailure, Workspace};

use collect::{Leads, join};
use resolve::Top;
use std::collections::HashSet;
use std::path::Path;

/// The protected names of a workspace, and what its configurations say about `git push`.
#[derive(Debug)]
pub struct LedTo {
    /// The names, with those that something leads to.
    pub names: Names,
    /// A configuration has `git push` go to the upstream of a branch, whatever its name. True where none was read.
    pub pushes_to_upstream: bool,
}

impl Names {
    /// Adds the protected names of one workspace, which is open and has the real path `at`: those that its own place
    /// makes, and what links and git's configurations lead to. `touched` are directories of the workspace in which a
    /// layer changes something: a repository there is found however far it is from the top. Everything is protected
    /// where a directory that has to be looked into is closed to its owner.
    pub fn for_workspace(
        mut self,
        workspace: &Workspace,
        at: &Path,
        host: &Host,
        reach: Reach,
        touched: &[Vec<u8>],
    ) -> Result<LedTo, IoFailure> {
        let pushes_to_upstream = match self.look_up(workspace, at, host, reach, touched) {
            // What it leads to is unknown, so that everything waits.
            Err(failure) if failure.source.kind() == std::io::ErrorKind::PermissionDenied => {
                let place = join(at, &failure.path.0);
                let closed = resolve::closed_on_the_way(&place, at).unwrap_or(place);
                let closed = closed.strip_prefix(at).unwrap_or(&closed).display().to_string();
                let closed = if closed.is_empty() { "the workspace".to_owned() } else { closed };
                self.protect_everything(format!("{closed} is closed to its owner and may name this path"));
                true
            }
            other => other?,
        };
        self.trim_place();
        Ok(LedTo { names: self, pushes_to_upstream })
    }

    fn look_up(
        &mut self,
        workspace: &Workspace,
        at: &Path,
        host: &Host,
        reach: Reach,
        touched: &[Vec<u8>],
    ) -> Result<bool, IoFailure> {
        let above = git::above(at)?;
        self.stand_at(place::names(&above));
        let mut leads = Leads {
            top: Top { workspace, path: at },
            host,
            known: HashSet::new(),
            found: Vec::new(),
            everywhere: Vec::new(),
            everything: None,
            pushes_to_upstream: false,
            hooks: Vec::new(),
            hooks_of_all: Vec::new(),
        };
        let mut repositories = git::around(at, &above)?;
        repositories.extend(git::at(at, at)?);
        let searched = links::search(&mut leads, self, reach)?;
        repositories.extend(searched.repositories.iter().cloned());
        for path in touched.iter().filter(|path| !searched.listed.contains(*path)) {
            repositories.extend(git::at(&join(at, path), at)?);
        }
        fixed::follow_all(&mut leads, self, &repositories, &searched)?;
        links::from_outside(&mut leads, self, &repositories, &searched, reach)?;
        for place in &host.configurations {
            let way = leads.follow(place)?;
            leads.protect(&way, &format!("Nexus reads {} here", place.display()), true)?;
        }
        let begins = git::read(&mut leads, &repositories)?;
        scripts::read(&mut leads, &repositories, &begins, &searched)?;
        let not_listed = touched.iter().filter(|path| !searched.listed.contains(*path));
        scripts::envrcs(&mut leads, searched.envrcs.iter().chain(not_listed))?;
        let Leads { found, everywhere, everything, pushes_to_upstream, .. } = leads;
        self.extend(found.into_iter().chain(everywhere));
        if let Some(why) = everything {
            self.protect_everything(why);
        }
        Ok(pushes_to_upstream)
    }
}

/// Directories of one layer that are looked at.
const MAX_TOUCHED: usize = 1 << 20;

/// Returns the directories of a tree that the workspace has too. Where the tree's own directory is closed, those of the
/// workspace's stand for it.
pub fn touched(upper: &Workspace, workspace: &Workspace) -> Result<Vec<Vec<u8>>, IoFailure> {
    let mut all = vec![Vec::new()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        let dir = match upper.readable_dir(&path) {
            Err(error) if is_closed(&error) || nexus_beneath::is_gone(&error) => match workspace.readable_dir(&path) {
                Err(error) if resolve::leads_nowhere(&error) => continue,
                other => other.doing("open", &path)?,
            },
            other => other.doing("open", &path)?,
        };
        for entry in links::list(&dir, usize::MAX).doing("list", &path)? {
            let inner = nexus_beneath::join(&path, &entry.name);
            if entry.kind == EntryType::Directory && workspace.dir(&inner).is_ok() {
                all.push(inner);
            }
        }
        if all.len() > MAX_TOUCHED {
            return Err(std::io::Error::other("too many directories changed")).doing("list", &path);
        }
    }
    Ok(all)
}
