//! A temporary host for tests: a home directory with tools and a workspace.

use nexus_profiles::Host as ProfileHost;
use nexus_profiles::ToolHost as Host;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A made host.
pub struct Scene {
    /// Removes the directory at the end.
    _dir: tempfile::TempDir,
    /// The host as the toolchains see it.
    pub host: Host,
}

impl Scene {
    /// An empty home.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let (home, workspace) = (root.join("home"), root.join("home/code/ws"));
        std::fs::create_dir_all(&workspace).unwrap();
        let caller = ProfileHost { variables: BTreeMap::new(), home: Some(home), ..nexus_caller::profiles::caller() };
        let host = Host::of(&caller, &workspace, false);
        Self { _dir: dir, host }
    }

    /// Returns the home directory.
    pub fn home(&self) -> PathBuf {
        self.host.home.clone().unwrap()
    }

    /// Makes a program in the home.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Puts a directory of the home on the PATH.
    pub fn on_path(&mut self, name: &str) {
        let directory = self.home().join(name);
        self.host.path.push(directory);
    }
}
