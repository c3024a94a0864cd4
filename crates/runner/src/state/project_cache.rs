//! Keeps what build tools download and build for later runs in the same workspace.
//!
//! ```text
//!  take: lock, kept ─rename─▶ busy ──▶ parts of busy are shown to the run, which writes to them
//!  settle: all changes of the run came? ─┬─ yes: busy ─rename─▶ kept        ─┬─▶ the lock goes with the process
//!                                        └─ no, or no room: busy is removed ─┘
//!  a killed run leaves busy behind, which the next take removes
//! ```
//! A run writes to the cache around its layer, and a later run builds with what is in it. So the cache counts as accepted only
//! together with the changes of each run that wrote to it: where anything of a run waits, was thrown away or was cut short, the
//! whole cache goes. It belongs to one directory, by inode and time of birth, and no other workspace is ever shown it. One run at a
//! time has it.
//!
//! Only the parts are shown, each at a place of its own: a run that could replace a part by a link would choose what the next run is shown.

use crate::plan::homes::Homes;
use crate::state::directory::StateDir;
use crate::state::identity::DirectoryId;
use nexus_layer::disk::state_file;
use nexus_layer::remove_directory;
use nexus_model::ByteText;
use nexus_model::plan::{Access, Bind, HOME};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The directory inside that tools are pointed to by variables.
pub const INSIDE: &str = "/home/nexus/.project-cache";
/// The parts of a cache. A tool's own directory is shown where the tool has it outside, if it keeps that path.
const PARTS: &[Part] = &[
    Part { name: "main", home: None, below: "", usual: Some(".project-cache") },
    Part { name: "cargo-registry", home: Some("CARGO_HOME"), below: "registry", usual: Some(".cargo/registry") },
    Part { name: "cargo-git", home: Some("CARGO_HOME"), below: "git", usual: Some(".cargo/git") },
    // Elsewhere it is a directory of the first part.
    Part { name: "go-mod", home: Some("GOMODCACHE"), below: "", usual: None },
];

/// A part of a cache.
struct Part {
    name: &'static str,
    /// The variable of the tool's own directory, and the place below it. Only a run with a network has such a part: without one,
    /// downloads of the caller are shown in its place.
    home: Option<&'static str>,
    below: &'static str,
    /// The directory below HOME, where the tool has no directory that keeps its path.
    usual: Option<&'static str>,
}
/// A cache is kept only where so many bytes stay free on its disk.
const MIN_FREE: u64 = 1 << 30;
/// A cache that no run had for so long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The cache of a workspace, while a run has it.
#[derive(Debug)]
pub struct ProjectCache {
    directory: PathBuf,
    /// Held until this process ends.
    lock: File,
}

/// Returns the paths inside at which a run is shown a cache.
pub fn targets(has_network: bool, homes: &Homes) -> impl Iterator<Item = PathBuf> + '_ {
    parts(has_network, homes).map(|(_, target)| target)
}

/// Returns the parts of a cache that a run is shown, with their places.
fn parts(has_network: bool, homes: &Homes) -> impl Iterator<Item = (&'static str, PathBuf)> + '_ {
    let shown = PARTS.iter().filter(move |part| has_network || part.home.is_none());
    shown.filter_map(|part| {
        let kept = part
            .home
            .and_then(|variable| homes.named(variable))
            .map(|home| home.join(part.below).components().collect());
        let target = kept.or_else(|| part.usual.map(|usual| Path::new(HOME).join(usual)));
        target.map(|target| (part.name, target))
    })
}

impl ProjectCache {
    /// Takes the cache of a workspace for one run. `None` while another run has it.
    pub fn take(places: &StateDir, workspace: DirectoryId) -> io::Result<Option<Self>> {
        let directory = places.state.join("caches").join(workspace.name());
        make(&directory, true)?;
        let lock = state_file::open_writable(&directory.join("lock"), true).map_err(io::Error::other)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let cache = Self { directory, lock };
        // A run that was killed wrote to it.
        remove_directory(&cache.directory, "busy")?;
        match std::fs::rename(cache.directory.join("kept"), cache.directory.join("busy")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&cache.directory.join("busy"), false)?,
            moved => moved?,
        }
        for part in PARTS {
            make(&cache.directory.join("busy").join(part.name), true)?;
        }
        Ok(Some(cache))
    }

    /// Returns what a run is shown of it.
    pub fn binds<'c>(&'c self, has_network: bool, homes: &'c Homes) -> impl Iterator<Item = Bind> + 'c {
        parts(has_network, homes).map(|(part, target)| Bind {
            source: ByteText::from(self.directory.join("busy").join(part)),
            target: ByteText::from(target),
            access: Access::ReadWrite,
        })
    }

    /// Keeps the cache for the next run, or removes it. `is_accepted` says that all that the run changed is in the workspace.
    pub fn settle(&self, is_accepted: bool) -> io::Result<()> {
        let room = rustix::fs::statvfs(&self.directory)?;
        if is_accepted && room.f_bavail.saturating_mul(room.f_frsize) >= MIN_FREE {
            std::fs::rename(self.directory.join("busy"), self.directory.join("kept"))?;
            // The time of the last use.
            self.lock.set_modified(SystemTime::now())?;
        } else {
            remove_directory(&self.directory, "busy")?;
        }
        self.sweep()
    }

    /// Removes caches that were not used for long, and those of directories that are probably gone with them.
    fn sweep(&self) -> io::Result<()> {
        let Some(all) = self.directory.parent() else { return Ok(()) };
        for entry in std::fs::read_dir(all)? {
            let one = entry?.path();
            let Ok(lock) = state_file::open_writable(&one.join("lock"), false) else { continue };
            let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > UNUSED);
            if one != self.directory
                && is_old(lock.metadata()?.modified()?)
                && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                remove_directory(&one, "busy")?;
                remove_directory(&one, "kept")?;
            }
        }
        Ok(())
    }
}

/// Makes a directory that no other user can enter.
fn make(directory: &Path, may_be_there: bool) -> io::Result<()> {
    DirBuilder::new().recursive(may_be_there).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_layer::Workspace;

    struct Scene(tempfile::TempDir);

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["state", "one", "two"] {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            Self(dir)
        }

        fn take(&self, workspace: &str) -> Option<ProjectCache> {
            let id = DirectoryId::of_open(&Workspace::open(&self.0.path().join(workspace)).unwrap()).unwrap();
            ProjectCache::take(&StateDir::below(self.0.path().join("state")), id).unwrap()
        }

        /// Looks for what an earlier run wrote to the cache of a workspace.
        fn has(&self, workspace: &str) -> bool {
            let cache = self.take(workspace).unwrap();
            let has = main(&cache).join("built").exists();
            cache.settle(true).unwrap();
            has
        }
    }

    fn main(cache: &ProjectCache) -> PathBuf {
        cache.binds(false, &Homes::default()).next().unwrap().source.as_path().to_owned()
    }

    fn write(cache: &ProjectCache) {
        let directory = main(cache).join("built");
        std::fs::create_dir(&directory).unwrap();
        // As those of Go's modules are.
        std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    }

    #[test]
    fn what_an_accepted_run_wrote_is_there_for_its_workspace_alone() {
        let scene = Scene::new();
        let cache = scene.take("one").unwrap();
        write(&cache);
        cache.settle(true).unwrap();
        drop(cache);
        assert!(scene.has("one") && !scene.has("two"));
    }

    #[test]
    fn what_another_run_wrote_goes_with_the_whole_cache() {
        let scene = Scene::new();
        let cache = scene.take("one").unwrap();
        write(&cache);
        cache.settle(false).unwrap();
        drop(cache);
        assert!(!scene.has("one"));
        // Also what was there before the run that was not accepted, and what a killed one left.
        for is_killed in [false, true] {
            let cache = scene.take("one").unwrap();
            write(&cache);
            cache.settle(true).unwrap();
            drop(cache);
            let cache = scene.take("one").unwrap();
            if !is_killed {
                cache.settle(false).unwrap();
            }
            drop(cache);
            assert!(!scene.has("one"), "{is_killed}");
        }
    }

    #[test]
    fn one_run_at_a_time_has_the_cache() {
        let scene = Scene::new();
        let cache = scene.take("one").unwrap();
        assert!(scene.take("one").is_none() && scene.take("two").is_some());
        drop(cache);
        assert!(scene.take("one").is_some());
    }

    #[test]
    fn a_part_is_never_a_link_that_a_run_left() {
        let scene = Scene::new();
        let cache = scene.take("one").unwrap();
        std::os::unix::fs::symlink("/etc", main(&cache).join("cargo-registry")).unwrap();
        cache.settle(true).unwrap();
        drop(cache);
        let cache = scene.take("one").unwrap();
        let sources: Vec<_> =
            cache.binds(true, &Homes::default()).map(|bind| bind.source.as_path().to_owned()).collect();
        assert_eq!(sources.len(), 3);
        assert!(sources.iter().all(|source| source.symlink_metadata().unwrap().is_dir()));
        assert!(sources[1..].iter().all(|source| !source.starts_with(&sources[0])));
    }

    #[test]
    fn a_cache_that_was_not_used_for_long_goes() {
        let scene = Scene::new();
        for workspace in ["one", "two"] {
            let cache = scene.take(workspace).unwrap();
            write(&cache);
            cache.settle(true).unwrap();
        }
        let cache = scene.take("one").unwrap();
        let lock = File::open(cache.directory.join("lock")).unwrap();
        cache.settle(true).unwrap();
        lock.set_modified(SystemTime::now() - UNUSED - Duration::from_secs(60)).unwrap();
        drop((lock, cache));
        scene.take("two").unwrap().settle(true).unwrap();
        assert!(!scene.has("one") && scene.has("two"));
    }
}
