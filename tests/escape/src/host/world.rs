//! Objects that the suite makes on the host for one column: directories, canaries, sockets, System V objects, a
//! process. Everything carries the column's token and is removed when the world is dropped.

use super::ipc;
use super::leftovers::report;
use crate::attacker::Attacker;
use crate::context::Context;
use crate::sys::{self, address, call};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A part of the world that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare {what}")]
pub struct WorldError {
    /// Object that was being made.
    pub what: String,
    /// Error of the system call.
    #[source]
    pub source: io::Error,
}

/// Adds to an I/O error what was being made.
pub fn making<T>(what: impl Into<String>, result: io::Result<T>) -> Result<T, WorldError> {
    result.map_err(|source| WorldError { what: what.into(), source })
}

/// One column's share of the host.
#[derive(Debug)]
pub struct World {
    /// Holds everything else that is on disk.
    pub base: PathBuf,
    /// The uid and gid that own the directories, when not the suite's own.
    pub owner: Option<u32>,
    /// The home of the caller.
    pub home: PathBuf,
    /// Facts that the probes get.
    pub context: Context,
    attacker: Attacker,
    stray_files: Vec<PathBuf>,
    listeners: Vec<UnixListener>,
    labelled: Option<Child>,
    ipc: Vec<(i64, i64)>,
    /// Control groups that root handed to the owner.
    handed_over: Vec<PathBuf>,
    /// Tells later attacks that this one lives.
    _lock: fs::File,
}

impl World {
    /// Makes the world of one column. `owner` is the ordinary user that will start the driver.
    pub fn make(column: &str, owner: Option<u32>, attacker: &Attacker) -> Result<Self, WorldError> {
        let token = format!("nxe{}{column}", std::process::id());
        let base = super::stale::base_of(&token);
        making("the base directory", fs::create_dir(&base))?;
        let lock = making("the lock of the base directory", super::stale::hold(&base))?;
        let home = match owner {
            None if sys::uid() == 0 => PathBuf::from("/root"),
            _ => base.join("home"),
        };
        let context = Context {
            workspace: base.join("ws"),
            read_only: base.join("ro"),
            read_write: base.join("rw"),
            hidden: ["hidden-file", "hidden-dir"].map(|name| base.join("ws").join(name)).into(),
            key: format!("{token}-key"),
            has_groups: owner.is_none() && sys::uid() == 0,
            canary_home: home.join(format!(".nexus-escape-canary-{token}")),
            canary_tmp: PathBuf::from(format!("/tmp/nexus-escape-canary-{token}")),
            canary_side: base.join("side/canary"),
            host_label: format!("{token}-host-marker"),
            secret: format!("{token}-secret-of-the-caller"),
            abstract_socket: format!("{token}-abstract"),
            ipc_key: ipc::key(std::process::id(), column),
            mqueue: ipc::queue(&token),
            token,
            ..Context::default()
        };
        let mut world = Self {
            base,
            owner,
            home,
            context,
            attacker: attacker.clone(),
            stray_files: Vec::new(),
            listeners: Vec::new(),
            labelled: None,
            ipc: Vec::new(),
            handed_over: Vec::new(),
            _lock: lock,
        };
        world.make_directories()?;
        world.hand_over_cgroups()?;
        world.make_sockets()?;
        world.make_ipc()?;
        world.make_key();
        world.start_labelled()?;
        world.prepare_workspace(&world.context.workspace.clone())?;
        Ok(world)
    }

    fn make_directories(&mut self) -> Result<(), WorldError> {
        for name in ["home", "state", "config", "ro", "rw", "side", "out", "bin", "tmp"] {
            self.directory(&self.base.join(name))?;
        }
        // World writable on the host, so that only the sandbox can be what refuses.
        making(
            "the read-only directory",
            fs::set_permissions(self.base.join("ro"), fs::Permissions::from_mode(0o777)),
        )?;
        for name in ["file", "shrinks", "removable", "renamable"] {
            self.file(&self.base.join("ro").join(name), "as it was\n", 0o666)?;
        }
        for path in [&self.context.canary_home, &self.context.canary_tmp, &self.context.canary_side] {
            self.file(path, "canary\n", 0o644)?;
        }
        self.stray_files.push(self.context.canary_home.clone());
        self.stray_files.push(self.context.canary_tmp.clone());
        Ok(())
    }

    /// As an administrator would: a v1 subtree of the memory and cpu controllers for the ordinary user.
    fn hand_over_cgroups(&mut self) -> Result<(), WorldError> {
        let Some(uid) = self.owner.filter(|_| sys::uid() == 0) else { return Ok(()) };
        for controller in ["memory", "cpu"] {
            let mount = Path::new("/sys/fs/cgroup").join(controller);
            let own = mount.join("nexus").join(uid.to_string());
            if mount.is_dir() && !own.exists() {
                making(format!("the control group {}", own.display()), fs::create_dir_all(&own))?;
                self.handed_over.push(own.clone());
                self.own(&own)?;
            }
        }
        Ok(())
    }

    fn own(&self, path: &Path) -> Result<(), WorldError> {
        match self.owner {
            Some(uid) => making(format!("the owner of {}", path.display()), chown(path, Some(uid), Some(uid))),
            None => Ok(()),
        }
    }

    fn directory(&self, path: &Path) -> Result<(), WorldError> {
        making(format!("folder {}", path.display()), fs::create_dir_all(path))?;
        self.own(path)
    }

    /// Writes a file with its directories, owned by the caller of the driver.
    pub fn file(&self, path: &Path, text: &str, mode: u32) -> Result<(), WorldError> {
        if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
            self.directory(parent)?;
        }
        making(format!("file {}", path.display()), fs::write(path, text))?;
        making(format!("mode of {}", path.display()), fs::set_permissions(path, fs::Permissions::from_mode(mode)))?;
        self.own(path)
    }

    fn make_sockets(&mut self) -> Result<(), WorldError> {
        let token = &self.context.token;
        let mut places = BTreeMap::from([
            ("tmp".to_owned(), PathBuf::from(format!("/tmp/{token}.sock"))),
            ("side".to_owned(), self.base.join("side/host.sock")),
        ]);
        if sys::uid() == 0 {
            places.insert("run".to_owned(), PathBuf::from(format!("/run/{token}.sock")));
        }
        for path in places.values() {
            self.listeners.push(making(format!("socket {}", path.display()), UnixListener::bind(path))?);
            self.stray_files.push(path.clone());
            making("the socket's mode", fs::set_permissions(path, fs::Permissions::from_mode(0o777)))?;
        }
        self.context.sockets = places;
        let name = making("the abstract name", SocketAddr::from_abstract_name(&self.context.abstract_socket))?;
        self.listeners.push(making("the abstract socket", UnixListener::bind_addr(&name))?);
        Ok(())
    }

    fn make_ipc(&mut self) -> Result<(), WorldError> {
        let key = self.context.ipc_key as usize;
        let create = (libc::IPC_CREAT | 0o666) as usize;
        let failed = |number| io::Error::from_raw_os_error(number);
        let shm = making("shared memory", call(libc::SYS_shmget, &[key, 4096, create]).map_err(failed))?;
        self.context.shm_id = shm as i32;
        self.ipc.push((libc::SYS_shmctl, shm));
        let msg = making("a message queue", call(libc::SYS_msgget, &[key, create]).map_err(failed))?;
        self.ipc.push((libc::SYS_msgctl, msg));
        let sem = making("semaphores", call(libc::SYS_semget, &[key, 1, create]).map_err(failed))?;
        self.ipc.push((libc::SYS_semctl, sem));
        let name = sys::c_path(self.context.mqueue.trim_start_matches('/'));
        let flags = (libc::O_CREAT | libc::O_RDWR) as usize;
        making(
            "a POSIX message queue",
            call(libc::SYS_mq_open, &[address(name.as_bytes_with_nul()), flags, 0o666, 0]).map_err(failed),
        )?;
        Ok(())
    }

    /// Puts a key into the session keyring that every driver inherits from the suite.
    fn make_key(&mut self) {
        if ipc::add_key(&self.context.key).is_err() {
            self.context.key.clear();
        }
    }

    fn start_labelled(&mut self) -> Result<(), WorldError> {
        let child = Command::new(&self.attacker.program)
            .args(&self.attacker.words)
            .args(["act", "linger", &self.context.host_label, "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = making("the labelled process", child)?;
        self.context.host_pid = child.id() as i32;
        self.labelled = Some(child);
        for name in ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"] {
            let found = making(format!("namespace {name}"), fs::metadata(format!("/proc/self/ns/{name}")))?;
            self.context.namespaces.insert(name.to_owned(), found.ino());
        }
        Ok(())
    }

    /// Fills a directory so that it can be the workspace of a run: the probe itself, its context, bait.
    pub fn prepare_workspace(&self, workspace: &Path) -> Result<(), WorldError> {
        self.directory(workspace)?;
        let probe = workspace.join("nexus-escape");
        making("a copy of the probe", fs::copy(&self.attacker.program, &probe))?;
        making("the probe's mode", fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)))?;
        self.own(&probe)?;
        let context = serde_json::to_string(&self.context).map_err(io::Error::from);
        self.file(&workspace.join("context.json"), &making("the context", context)?, 0o644)?;
        self.file(&workspace.join("own-file"), "mine\n", 0o644)?;
        for hidden in &self.context.hidden {
            let name = hidden.file_name().map_or(hidden.as_path(), Path::new);
            if name.to_string_lossy().ends_with("dir") {
                self.directory(&workspace.join(name))?;
            } else {
                self.file(&workspace.join(name), "hidden\n", 0o644)?;
            }
        }
        for (name, target) in [
            ("link-canary", self.context.canary_side.as_path()),
            ("link-root", Path::new("/")),
            ("link-up", Path::new("../../../../../../../..")),
        ] {
            making(format!("link {name}"), symlink(target, workspace.join(name)))?;
        }
        Ok(())
    }

    /// Returns the command that plays a part inside: the probe in the workspace, and the words before the name of the
    /// part.
    pub fn attack(&self, part: &[&str]) -> Vec<String> {
        let probe = self.context.workspace.join("nexus-escape").to_string_lossy().into_owned();
        let words = self.attacker.words.iter().cloned();
        std::iter::once(probe).chain(words).chain(part.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Copies the driver to where an ordinary user can read it.
    pub fn install(&self, program: &Path) -> Result<PathBuf, WorldError> {
        let target = self.base.join("bin/nexus");
        making(format!("a copy of {}", program.display()), fs::copy(program, &target))?;
        making("the driver's mode", fs::set_permissions(&target, fs::Permissions::from_mode(0o755)))?;
        Ok(target)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The token is in every path and argument that this world gave out, so only its own processes match.
        super::inspect::end_strays(&self.context.token);
        if let Some(mut labelled) = self.labelled.take() {
            report("the labelled process", labelled.kill().and_then(|()| labelled.wait().map(drop)));
        }
        for (control, id) in &self.ipc {
            report("a System V object", ipc::remove(*control, *id));
        }
        if !self.context.key.is_empty() {
            report("the key", ipc::remove_key(&self.context.key));
        }
        report("the message queue", ipc::remove_queue(&self.context.token));
        for path in &self.stray_files {
            report(&path.display().to_string(), fs::remove_file(path));
        }
        for group in &self.handed_over {
            report(&group.display().to_string(), fs::remove_dir(group));
        }
        for directory in ["/tmp", "/dev/shm", "/var/tmp"] {
            remove_marked(Path::new(directory), &self.context.token);
        }
        report(&self.base.display().to_string(), super::inspect::remove_tree(&self.base));
    }
}

/// Removes what a killed probe could not remove itself: files and directories that end with the token.
fn remove_marked(directory: &Path, token: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let marked = name.ends_with(&format!("-{token}")) && name != format!("nexus-escape-{token}");
        if marked && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            report(&name, fs::remove_dir_all(entry.path()));
        } else if marked {
            report(&name, fs::remove_file(entry.path()));
        }
    }
}
