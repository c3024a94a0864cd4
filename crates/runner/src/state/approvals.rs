//! Approvals on this machine: a file for each, in the state directory, which no sandbox sees.
//!
//! ```text
//!  run that needs one ─▶ take ─ granted, for exactly this run ─▶ the use is on the disk ─▶ the command starts
//!                          └─ none ─▶ request (pending) ─▶ the run is refused, and names it
//!  nexus approvals approve|deny ─▶ answer
//! ```
//! Everything happens under one lock, and each change is on the disk before it counts: of two answers and of two uses at
//! the same time one comes first. A crash after a use and before the start costs the use; it never gives one back.
//!
//! The subject of an approval is a hash with a salt of its own over command, directory, environment, rights, files and host. The
//! values of variables are not kept: a hash without a salt of a short one could be guessed.

use crate::net::network::RunNetwork;
use crate::plan::direct::Direct;
use crate::plan::resolve::ResolvedRun;
use crate::state::container::machine_id;
use crate::state::directory::StateDir;
use nexus_model::approval::{Actor, Approval, ApprovalEvent, ApprovalKind, ApprovalRefusal, ApprovalState};
use nexus_model::{ByteText, Digest, RunId};
use nexus_receipt::DirectoryError;
use nexus_receipt::store::files;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the form of the files.
const VERSION: u32 = 1;
/// Largest file of an approval, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Largest number of approvals that are kept. Of those that are over the oldest make room for a new one.
const MAX_APPROVALS: usize = 1000;
/// Time after which an approval that is over is removed, in milliseconds.
const KEPT_MS: u64 = 7 * 86_400_000;
/// Time that another process may hold the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Largest file that a command names and that is part of what is approved, in bytes.
const MAX_FILE: u64 = 64 << 20;
const LOCK: &str = ".lock";

/// Everything that an approval of a command is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSubject {
    /// The part that a person is shown and that the file keeps.
    pub shown: Value,
    /// The part that only the hash holds: the environment with its values.
    hidden: Value,
}

/// An approval as it lies on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// Version of the form.
    pub version: u32,
    /// Id of the approval.
    pub id: RunId,
    /// Salt of the hash.
    pub salt: Digest,
    /// Time of the request, in milliseconds since 1970.
    pub asked_at: u64,
    /// Reasons why it is needed, for people.
    pub reasons: Vec<String>,
    /// The subject as a person is shown it.
    pub shown: Value,
    /// The approval itself.
    pub approval: Approval,
}

/// Approvals cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The directory cannot be used.
    #[error("{source}")]
    Directory {
        /// The reason why it cannot be used.
        source: DirectoryError,
    },
    /// A call failed.
    #[error("the approvals in {} cannot be used: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// A file cannot be understood.
    #[error("the approval {} cannot be understood: {why}", path.display())]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// The reason why it cannot be understood.
        why: String,
    },
    /// Another process holds the lock.
    #[error("another process has used the approvals for {} s", LOCK_WAIT.as_secs())]
    Busy,
    /// There are too many.
    #[error("there are more than {MAX_APPROVALS} approvals")]
    TooMany,
    /// No approval has this id.
    #[error("there is not an approval whose id begins with {text:?}, or more than one")]
    Unknown {
        /// The id as written.
        text: String,
    },
    /// A file of the command cannot be hashed.
    #[error("{} cannot become part of what is approved: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason for which it cannot.
        why: String,
    },
    /// The event cannot happen.
    #[error(transparent)]
    Refused(#[from] ApprovalRefusal),
}

impl ApprovalError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unknown { .. } => "no_approval",
            _ => "approvals",
        }
    }
}

impl ExecSubject {
    /// Describes a run that was resolved: command, directory, environment, rights, files and host. `around` is what the
    /// caller adds: its ports and its standard input.
    pub fn of(run: &ResolvedRun, around: &Value) -> Result<Self, ApprovalError> {
        let plan = &run.plan;
        let state = &run.site.places.state;
        let binds: Vec<Value> = plan
            .binds
            .iter()
            .map(|bind| {
                // What Nexus made for this run lies in its state directory, at another path each time.
                let source = (!bind.source.as_path().starts_with(state)).then_some(&bind.source);
                json!({"target": bind.target, "source": source, "access": bind.access})
            })
            .collect();
        let (mut network, mut policy) = (None, None);
        if let Some(asked) = &run.network {
            let in_force = asked.for_receipt();
            let recorded = policy_of(asked)?;
            network = Some(json!({
                "mode": in_force.mode, "rules": in_force.rules, "upstream": in_force.upstream, "ask": in_force.ask,
                "methods": recorded["methods"], "budget": recorded["budget"],
            }));
            policy = Some(recorded);
        }
        let mut profiles: Vec<String> =
            run.profiles.iter().map(|profile| format!("{} {}", profile.name, profile.hash)).collect();
        profiles.sort();
        let shown = json!({
            "argv": plan.argv,
            "cwd": plan.cwd,
            "workspace": plan.workspace.source,
            "sandbox": plan.profile,
            "binds": binds,
            "hidden": plan.hidden,
            "network": network,
            "host_ports": plan.host_ports,
            "limits": plan.limits,
            "grace_ms": u64::try_from(run.grace.as_millis()).unwrap_or(u64::MAX),
            "max_output": run.max_output,
            "timeout_ms": run.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            "allow_ptrace": plan.allow_ptrace,
            "changes": if run.direct.is_some() { "direct" } else { run.changes.name() },
            "direct_git": run.direct.as_ref().is_some_and(Direct::opens_git),
            "protect": run.protect,
            "sockets": run.allowed_sockets,
            "secrets": run.env_secrets,
            "variables": plan.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "documents": profiles,
            "files": files_of(run)?,
            "around": around,
            "host": {
                "machine": machine_id(),
                "name": rustix::system::uname().nodename().to_string_lossy(),
                "uid": rustix::process::geteuid().as_raw(),
            },
        });
        Ok(Self { shown, hidden: json!({"env": plan.env, "policy": policy}) })
    }

    fn digest(&self, salt: Digest) -> Result<Digest, ApprovalError> {
        let all = json!({"salt": salt, "shown": self.shown, "hidden": self.hidden});
        Digest::of_json(&all).ok_or_else(|| ApprovalError::Broken { path: PathBuf::new(), why: "no hash".to_owned() })
    }
}

/// Returns the whole policy of a network without what differs from run to run: all that decides is part of what is approved.
fn policy_of(network: &RunNetwork) -> Result<Value, ApprovalError> {
    let broken =
        || ApprovalError::Broken { path: PathBuf::new(), why: "the network cannot be written down".to_owned() };
    let (_, mut policy) = network.policy.recorded().ok_or_else(broken)?;
    let fields = policy.as_object_mut().ok_or_else(broken)?;
    for of_this_run in ["generation", "own_addresses", "own_listeners"] {
        fields.remove(of_this_run);
    }
    fields.insert("upstream".to_owned(), json!(network.upstream.as_ref().map(nexus_egress::UpstreamProxy::identity)));
    // A time from now on is another one in each run.
    let ends = fields.remove("expires").is_some_and(|expires| !expires.is_null());
    fields.insert("ends".to_owned(), json!(ends));
    Ok(policy)
}

/// Returns the files of the workspace that the words of the command name, with their hashes: a script that is changed
/// after the answer is another script.
fn files_of(run: &ResolvedRun) -> Result<Vec<Value>, ApprovalError> {
    let workspace = run.plan.workspace.source.as_path();
    // The workspace may appear at another place inside.
    let inside = run.plan.workspace.target.as_path();
    let cwd = run.plan.cwd.as_path();
    let mut found = Vec::new();
    for word in &run.plan.argv {
        let named = cwd.join(word.as_path());
        let Ok(below) = named.strip_prefix(inside) else { continue };
        let Ok(path) = std::fs::canonicalize(workspace.join(below)) else { continue };
        if !path.starts_with(workspace) || !path.is_file() {
            continue;
        }
        let failed = |why: &dyn std::fmt::Display| ApprovalError::File { path: path.clone(), why: why.to_string() };
        let length = std::fs::metadata(&path).map_err(|error| failed(&error))?.len();
        if length > MAX_FILE {
            return Err(failed(&format!("it has more than {MAX_FILE} bytes")));
        }
        let digest = files::digest(&path).map_err(|error| failed(&error))?;
        found.push(json!({"path": ByteText::from(path.as_path()), "hash": digest.hash}));
    }
    Ok(found)
}

/// Returns the time in milliseconds since 1970.
pub fn now() -> u64 {
    // A clock before 1970 says 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The approvals of one state directory, locked.
pub struct Approvals {
    path: PathBuf,
    directory: OwnedFd,
    _lock: OwnedFd,
}

impl Approvals {
    /// Opens and locks the approvals; makes their directory.
    pub fn open(places: &StateDir) -> Result<Self, ApprovalError> {
        let path = places.state.join("approvals");
        let directory = files::directory(&path).map_err(|source| ApprovalError::Directory { source })?;
        let io = |source: io::Error| ApprovalError::Io { path: path.clone(), source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&directory, LOCK, flags, Mode::from_raw_mode(0o600));
        let lock = lock.map_err(|error| io(error.into()))?;
        let start = Instant::now();
        while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if start.elapsed() > LOCK_WAIT {
                return Err(ApprovalError::Busy);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Self { path, directory, _lock: lock })
    }

    /// Returns all approvals, the latest first, with what time did to them.
    pub fn list(&self, now: u64) -> Result<Vec<Stored>, ApprovalError> {
        let names = files::names(&self.directory).map_err(|source| self.io(source))?;
        let mut all = Vec::new();
        for name in names.iter().filter(|name| name.parse::<RunId>().is_ok()) {
            let mut stored = self.read(name)?;
            stored.approval = stored.approval.step(&ApprovalEvent::Tick, now)?;
            all.push(stored);
        }
        all.sort_by_key(|stored| std::cmp::Reverse((stored.asked_at, stored.id.to_string())));
        Ok(all)
    }

    /// Finds an approval by its id, or by a beginning that no other has.
    pub fn find(&self, text: &str, now: u64) -> Result<Stored, ApprovalError> {
        let mut found = self.list(now)?;
        found.retain(|stored| !text.is_empty() && stored.id.to_string().starts_with(text));
        match (found.pop(), found.is_empty()) {
            (Some(stored), true) => Ok(stored),
            _ => Err(ApprovalError::Unknown { text: text.chars().take(80).collect() }),
        }
    }

    /// Asks for an approval; one that waits for the same subject already is returned.
    pub fn request(
        &self,
        subject: &ExecSubject,
        requester: Actor,
        reasons: Vec<String>,
        life: Duration,
        now: u64,
    ) -> Result<Stored, ApprovalError> {
        let all = self.list(now)?;
        for stored in all.iter().filter(|stored| stored.approval.state == ApprovalState::Pending) {
            if subject.digest(stored.salt)? == stored.approval.subject {
                return Ok(stored.clone());
            }
        }
        let mut kept = all.len();
        // The oldest first: a new request needs its place more than one that cannot be answered any more.
        for stored in all.iter().rev().filter(|one| one.approval.state.is_over()) {
            if kept < MAX_APPROVALS && stored.asked_at.saturating_add(KEPT_MS) >= now {
                break;
            }
            files::remove(&self.directory, &stored.id.to_string()).map_err(|source| self.io(source))?;
            kept -= 1;
        }
        if kept >= MAX_APPROVALS {
            return Err(ApprovalError::TooMany);
        }
        let id = RunId::new();
        let salt = Digest::of(&[id.as_bytes().as_slice(), RunId::new().as_bytes()].concat());
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        let subject_hash = subject.digest(salt)?;
        let approval = Approval::request(ApprovalKind::Exec, subject_hash, requester, now.saturating_add(life), 1, 1)?;
        let shown = subject.shown.clone();
        let stored = Stored { version: VERSION, id, salt, asked_at: now, reasons, shown, approval };
        self.write(&stored)?;
        Ok(stored)
    }

    /// Takes a use of an approval that is granted for exactly this subject; `None` when there is none. The use is on the disk
    /// when this returns.
    pub fn take(&self, subject: &ExecSubject, name: &str, now: u64) -> Result<Option<RunId>, ApprovalError> {
        for mut stored in self.list(now)? {
            if stored.approval.state != ApprovalState::Granted {
                continue;
            }
            let asked = subject.digest(stored.salt)?;
            match stored.approval.step(&ApprovalEvent::Use { subject: asked, name: name.to_owned() }, now) {
                Ok(used) => {
                    stored.approval = used;
                    self.write(&stored)?;
                    return Ok(Some(stored.id));
                }
                Err(ApprovalRefusal::OtherSubject) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(None)
    }

    /// Answers an approval.
    pub fn answer(&self, id: RunId, event: &ApprovalEvent, now: u64) -> Result<Stored, ApprovalError> {
        let mut stored = self.read(&id.to_string())?;
        stored.approval = stored.approval.step(event, now)?;
        self.write(&stored)?;
        Ok(stored)
    }

    fn io(&self, source: io::Error) -> ApprovalError {
        ApprovalError::Io { path: self.path.clone(), source }
    }

    fn read(&self, name: &str) -> Result<Stored, ApprovalError> {
        let path = self.path.join(name);
        let broken = |why: String| ApprovalError::Broken { path: path.clone(), why };
        let bytes = files::read(&self.directory, name, MAX_BYTES + 1).map_err(|source| self.io(source))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(broken(format!("it has more than {MAX_BYTES} bytes")));
        }
        let version: Value = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        match version["version"].as_u64() {
            Some(version) if version == u64::from(VERSION) => {}
            other => return Err(broken(format!("it has the version {other:?}, and this program knows {VERSION}"))),
        }
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        if stored.id.to_string() != name {
            return Err(broken("it has the id of another one".to_owned()));
        }
        Ok(stored)
    }

    fn write(&self, stored: &Stored) -> Result<(), ApprovalError> {
        let path = self.path.join(stored.id.to_string());
        let text =
            serde_json::to_vec(stored).map_err(|error| ApprovalError::Broken { path, why: error.to_string() })?;
        files::replace(&self.directory, &stored.id.to_string(), &text).map_err(|source| self.io(source))?;
        files::sync(&self.directory).map_err(|source| self.io(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let places = StateDir::below(std::fs::canonicalize(dir.path()).unwrap());
        (dir, places)
    }

    fn subject(word: &str) -> ExecSubject {
        ExecSubject { shown: json!({"argv": [word]}), hidden: json!({"env": [["A", "1"]]}) }
    }

    fn actor(credential: &str) -> Actor {
        Actor { user: "u".to_owned(), credential: credential.to_owned() }
    }

    fn granted(places: &StateDir, word: &str, life: u64) -> RunId {
        let approvals = Approvals::open(places).unwrap();
        let asked =
            approvals.request(&subject(word), actor("a"), Vec::new(), Duration::from_millis(life), 1000).unwrap();
        let yes = ApprovalEvent::Approve { by: actor("b"), max_uses: None, expires_at: None };
        approvals.answer(asked.id, &yes, 1001).unwrap().id
    }

    #[test]
    fn a_use_is_on_the_disk_before_anything_starts_and_is_never_given_back() {
        let (_dir, places) = scene();
        let id = granted(&places, "a", 1000);
        let taken = Approvals::open(&places).unwrap().take(&subject("a"), "run", 1002).unwrap();
        assert_eq!(taken, Some(id));
        // As after a crash right here: another process finds the use spent, and the same run finds nothing new to take.
        let approvals = Approvals::open(&places).unwrap();
        assert_eq!(approvals.take(&subject("a"), "other", 1002).unwrap(), None);
        assert_eq!(approvals.find(&id.to_string(), 1002).unwrap().approval.state, ApprovalState::Used);
    }

    #[test]
    fn one_of_two_answers_and_as_many_uses_as_were_granted_come_first() {
        let (_dir, places) = scene();
        let ask = |uses: &str| {
            Approvals::open(&places).unwrap().request(
                &subject(uses),
                actor("a"),
                Vec::new(),
                Duration::from_secs(1),
                1000,
            )
        };
        let id = ask("a").unwrap().id;
        let yes = |credential: &str| {
            let by = Actor { user: credential.to_owned(), credential: credential.to_owned() };
            let event = ApprovalEvent::Approve { by, max_uses: None, expires_at: None };
            Approvals::open(&places).unwrap().answer(id, &event, 1001)
        };
        let no = || Approvals::open(&places).unwrap().answer(id, &ApprovalEvent::Deny { by: actor("z") }, 1001);
        let done: usize = std::thread::scope(|scope| {
            let names = ["1", "2", "3", "4"];
            let running: Vec<_> = names.map(|name| scope.spawn(move || yes(name).is_ok())).into();
            running.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(done, 1);
        let uses: usize = std::thread::scope(|scope| {
            let run = |name: usize| {
                let places = &places;
                move || Approvals::open(places).unwrap().take(&subject("a"), &name.to_string(), 1002).unwrap().is_some()
            };
            let running: Vec<_> = (0..8).map(|name| scope.spawn(run(name))).collect();
            running.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(uses, 1);
        assert_eq!(no().unwrap_err().code(), "approval_over");
    }

    #[test]
    fn an_approval_that_expires_before_its_use_is_not_used_and_another_subject_finds_none() {
        let (_dir, places) = scene();
        granted(&places, "a", 100);
        let approvals = Approvals::open(&places).unwrap();
        assert_eq!(approvals.take(&subject("b"), "run", 1002).unwrap(), None);
        let mut other = subject("a");
        other.hidden = json!({"env": [["A", "2"]]});
        assert_eq!(approvals.take(&other, "run", 1002).unwrap(), None);
        assert_eq!(approvals.take(&subject("a"), "run", 1100).unwrap(), None, "its time is over");
        assert_eq!(approvals.list(1100).unwrap()[0].approval.state, ApprovalState::Expired);
    }

    #[test]
    fn what_is_over_makes_room_for_a_new_request_the_oldest_first() {
        let (_dir, places) = scene();
        let first = Approvals::open(&places).unwrap().request(
            &subject("first"),
            actor("a"),
            Vec::new(),
            Duration::from_millis(100),
            1000,
        );
        let first = first.unwrap();
        let directory = places.state.join("approvals");
        let mut oldest = None;
        for number in 1..MAX_APPROVALS as u64 {
            let mut more = Stored { id: RunId::new(), asked_at: 1000 + number, ..first.clone() };
            // All but the first have time left.
            more.approval.expires_at = 1_000_000;
            oldest.get_or_insert(more.id);
            std::fs::write(directory.join(more.id.to_string()), serde_json::to_vec(&more).unwrap()).unwrap();
        }
        let approvals = Approvals::open(&places).unwrap();
        let ask = |word: &str, now| {
            approvals.request(&subject(word), actor("a"), Vec::new(), Duration::from_secs(100), now).map(|_| ())
        };
        assert!(matches!(ask("b", 1099), Err(ApprovalError::TooMany)), "all of them wait");
        ask("b", 1101).unwrap();
        assert!(!directory.join(first.id.to_string()).exists(), "its time is over");
        assert!(matches!(ask("c", 1101), Err(ApprovalError::TooMany)));
        // What is denied makes room as well.
        let oldest = oldest.unwrap();
        approvals.answer(oldest, &ApprovalEvent::Deny { by: actor("z") }, 1101).unwrap();
        ask("c", 1101).unwrap();
        assert!(!directory.join(oldest.to_string()).exists());
        assert_eq!(approvals.list(1101).unwrap().len(), MAX_APPROVALS, "no more went than were in the way");
    }

    #[test]
    fn a_file_that_is_damaged_or_of_a_later_version_is_named_and_stays() {
        let (_dir, places) = scene();
        let id = granted(&places, "a", 1000);
        let path = places.state.join("approvals").join(id.to_string());
        let whole = std::fs::read(&path).unwrap();
        let newer =
            String::from_utf8(whole.clone()).unwrap().replacen("\"version\":1", "\"version\":2", 1).into_bytes();
        let mut flipped = whole.clone();
        flipped[10] ^= 0x20;
        for bytes in [&whole[..whole.len() / 2], &newer, &flipped, b"", b"null"] {
            std::fs::write(&path, bytes).unwrap();
            let error = Approvals::open(&places).unwrap().take(&subject("a"), "run", 1002).unwrap_err();
            assert!(error.to_string().contains(&id.to_string()), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(Approvals::open(&places).unwrap().list(1002).is_err());
    }
}
