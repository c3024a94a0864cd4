//! The files of approvals.

use super::error::{ApprovalError, LOCK_WAIT, MAX_APPROVALS};
use super::subject::Subject;
use crate::state::directory::StateDir;
use nexus_model::approval::{Actor, Approval, ApprovalEvent, ApprovalRefusal, ApprovalState};
use nexus_model::{Digest, RunId};
use nexus_receipt::store::files;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the form of the files.
const VERSION: u32 = 1;
/// Largest file of an approval, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Time after which an approval that is over is removed, in milliseconds.
const KEPT_MS: u64 = 7 * 86_400_000;
const LOCK: &str = ".lock";

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

/// Bounds that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Time within which it is answered and used.
    pub life: Duration,
    /// Time that the act waits for the answer, if it waits.
    pub waits: Option<Duration>,
    /// Number of uses.
    pub max_uses: u32,
}

impl Terms {
    /// One use within `life`, of an act that does not wait.
    #[must_use]
    pub fn once(life: Duration) -> Self {
        Self { life, waits: None, max_uses: 1 }
    }
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
        subject: &Subject,
        requester: Actor,
        reasons: Vec<String>,
        terms: Terms,
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
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let (subject_hash, ends) = (subject.digest(salt)?, after(terms.life));
        let approval = Approval::request(subject.kind, subject_hash, requester, ends, terms.max_uses, 1)?;
        let approval = match terms.waits {
            Some(waits) => approval.answered_by(after(waits)),
            None => approval,
        };
        let shown = subject.shown.clone();
        let stored = Stored { version: VERSION, id, salt, asked_at: now, reasons, shown, approval };
        self.write(&stored)?;
        Ok(stored)
    }

    /// Returns an approval, with what time did to it.
    pub fn inspect(&self, id: RunId, now: u64) -> Result<Stored, ApprovalError> {
        let mut stored = self.read(&id.to_string())?;
        stored.approval = stored.approval.step(&ApprovalEvent::Tick, now)?;
        Ok(stored)
    }

    /// Takes a use of this approval for exactly this subject. The use is on the disk when this returns.
    pub fn take_from(&self, id: RunId, subject: &Subject, name: &str, now: u64) -> Result<Stored, ApprovalError> {
        let mut stored = self.read(&id.to_string())?;
        let asked = subject.digest(stored.salt)?;
        stored.approval = stored.approval.step(&ApprovalEvent::Use { subject: asked, name: name.to_owned() }, now)?;
        self.write(&stored)?;
        Ok(stored)
    }

    /// Takes a use of an approval that is granted for exactly this subject; `None` when there is none. The use is on the disk
    /// when this returns.
    pub fn take(&self, subject: &Subject, name: &str, now: u64) -> Result<Option<RunId>, ApprovalError> {
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

    /// Changes an approval: an answer, or the end of its act.
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
    use nexus_model::approval::ApprovalKind;
    use serde_json::json;

    fn scene() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let places = StateDir::below(std::fs::canonicalize(dir.path()).unwrap());
        (dir, places)
    }

    fn subject(word: &str) -> Subject {
        Subject { kind: ApprovalKind::Exec, shown: json!({"argv": [word]}), hidden: json!({"env": [["A", "1"]]}) }
    }

    fn actor(credential: &str) -> Actor {
        Actor { user: "u".to_owned(), credential: credential.to_owned() }
    }

    fn granted(places: &StateDir, word: &str, life: u64) -> RunId {
        let approvals = Approvals::open(places).unwrap();
        let asked = approvals
            .request(&subject(word), actor("a"), Vec::new(), Terms::once(Duration::from_millis(life)), 1000)
            .unwrap();
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
                Terms::once(Duration::from_secs(1)),
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
            Terms::once(Duration::from_millis(100)),
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
            approvals
                .request(&subject(word), actor("a"), Vec::new(), Terms::once(Duration::from_secs(100)), now)
                .map(|_| ())
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
