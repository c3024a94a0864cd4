//! A driver whose guest follows a script, for tests of everything above drivers. It isolates nothing and runs
//! nothing: a thread answers on the channel.

use crate::error::{DestroyError, InventoryError, PrepareError, SetupError, StartError};
use crate::probe::{Finding, ProbeReport};
use crate::{ChangeSource, Channel, Driver, Found, Handle, MAIN_COMMAND, Sandbox, SandboxProcess};
use nexus_channel::frames::{GuestFrame, HostFrame, VERSION};
use nexus_model::plan::Writes;
use nexus_model::proof::{Expectation, ProofItem};
use nexus_model::{ExitStatus, Guarantee, Plan};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Name of this driver in handles.
const NAME: &str = "fake";

/// Behaviour of the scripted guest for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// Reads the command's first argument: `exit N` ends with N, `signal N` by that signal, `wait` stays until killed.
    Obey,
    /// Fails in the set-up.
    SetUpFails,
    /// Falls silent after the first frame.
    Vanishes,
    /// Passes output of the command on, and never reports its start.
    SpeaksFirst,
    /// Reports the end of a command that was never asked for.
    Lies,
}

/// A driver whose guest follows a script.
#[derive(Debug)]
pub struct Fake {
    script: Script,
    /// Guarantees that it claims.
    pub claims: BTreeSet<Guarantee>,
    /// Guarantees that its sandboxes state, where a test wants others than those that it claims.
    pub states: Option<BTreeSet<Guarantee>>,
    alive: Arc<Mutex<BTreeSet<String>>>,
    /// A driver with this flaw forgets to remove a sandbox; the conformance suite must notice.
    pub dangerously_leaks: bool,
}

impl Fake {
    /// A driver that follows this script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            script,
            claims: crate::REQUIRED.iter().copied().collect(),
            states: None,
            alive: Arc::default(),
            dangerously_leaks: false,
        }
    }

    fn alive(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Fake {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self) -> ProbeReport {
        let finding = |guarantee: &Guarantee| Finding {
            guarantee: *guarantee,
            given: self.claims.contains(guarantee),
            reason: "as the test says".to_owned(),
            fix: None,
            commands: Vec::new(),
        };
        ProbeReport { driver: NAME, missing: Vec::new(), findings: Guarantee::ALL.iter().map(finding).collect() }
    }

    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError> {
        for guarantee in &plan.required {
            self.probe()
                .gives(*guarantee)
                .map_err(|reason| PrepareError::Guarantee { guarantee: *guarantee, reason })?;
        }
        Ok(Handle::new(NAME, plan.run_id, Vec::new()))
    }

    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError> {
        if handle.driver != NAME {
            return Err(StartError::WrongDriver { found: handle.driver.clone(), expected: NAME.to_owned() });
        }
        let failed = |error: io::Error| {
            let errno = error.raw_os_error().unwrap_or(0);
            StartError::Setup(SetupError { step: "make_channel".to_owned(), errno, detail: NAME.to_owned() })
        };
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        let (alive, ended) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        let twin = ours.try_clone().map_err(failed)?;
        self.alive().insert(handle.run_id.to_string());
        let script = self.script.clone();
        let guest = std::thread::spawn(move || {
            follow(&script, &Channel::new(theirs));
            drop(alive);
        });
        Ok(Sandbox {
            channel: Channel::new(ours),
            guarantees: self.states.clone().unwrap_or_else(|| self.claims.clone()),
            changes: match plan.workspace.writes {
                Writes::Direct { .. } => ChangeSource::None,
                Writes::Layer { .. } => ChangeSource::Directory,
                Writes::MemoryLayer { .. } => ChangeSource::Descriptor(None),
            },
            expect: expectations(),
            process: Box::new(FakeProcess { channel: Channel::new(twin), ended, guest: Mutex::new(Some(guest)) }),
        })
    }

    fn inventory(&self) -> Result<Vec<Found>, InventoryError> {
        let found = |run: &String| Found { what: format!("fake sandbox {run}"), run: run.clone() };
        Ok(self.alive().iter().map(found).collect())
    }

    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError> {
        if handle.driver != NAME {
            return Err(DestroyError::WrongDriver { found: handle.driver.clone(), expected: NAME.to_owned() });
        }
        if !self.dangerously_leaks {
            self.alive().remove(&handle.run_id.to_string());
        }
        Ok(())
    }
}

struct FakeProcess {
    channel: Channel,
    /// Becomes readable when the thread of the guest ends, which holds the other end.
    ended: OwnedFd,
    guest: Mutex<Option<JoinHandle<()>>>,
}

impl SandboxProcess for FakeProcess {
    fn kill(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both)?)
    }

    fn wait(&self) -> io::Result<()> {
        let guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner).take();
        guest.map_or(Ok(()), |guest| guest.join().map_err(|_| io::Error::other("the fake guest panicked")))
    }

    fn release(&self) -> io::Result<()> {
        Ok(())
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.as_fd())
    }

    fn oom_kills(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// A guest's life; whatever fails on the channel ends it, as it would end a real one.
fn follow(script: &Script, channel: &Channel) {
    let first = match script {
        Script::SetUpFails => {
            GuestFrame::SetupFailed { step: "pivot_root".to_owned(), errno: 1, detail: "scripted".to_owned() }
        }
        _ => GuestFrame::Hello { version: VERSION },
    };
    if channel.send(&first, &[]).is_err() || matches!(script, Script::SetUpFails | Script::Vanishes) {
        return;
    }
    while let Ok((frame, descriptors)) = channel.receive::<HostFrame>() {
        let answers = match frame {
            HostFrame::Exec(_) if *script == Script::SpeaksFirst => {
                if descriptors.get(1).is_none_or(|stdout| rustix::io::write(stdout, b"x").is_err()) {
                    return;
                }
                Vec::new()
            }
            HostFrame::Exec(request) => {
                let started = GuestFrame::Started { exec: request.exec, proof: held(&request.proof) };
                let words: Vec<_> = request.argv.iter().map(|word| String::from_utf8_lossy(&word.0)).collect();
                let number = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                match (script, words.first().map(AsRef::as_ref)) {
                    (Script::Lies, _) => vec![ended(request.exec + 1, ExitStatus::Code(0))],
                    (_, Some("exit")) => vec![started, ended(request.exec, ExitStatus::Code(number))],
                    (_, Some("signal")) => vec![started, ended(request.exec, ExitStatus::Signal(number))],
                    _ => vec![started],
                }
            }
            HostFrame::Signal { exec, signal } => vec![ended(exec.unwrap_or(MAIN_COMMAND), ExitStatus::Signal(signal))],
            HostFrame::Hello { .. } | HostFrame::Resize { .. } | HostFrame::EndWithin { .. } => Vec::new(),
            // ECONNREFUSED: there is no network in it.
            HostFrame::Forward { forward, .. } => vec![GuestFrame::ForwardFailed { forward, errno: 111 }],
            HostFrame::Shutdown => return,
        };
        for answer in answers {
            let last = matches!(answer, GuestFrame::Exited { exec: MAIN_COMMAND, .. });
            if channel.send(&answer, &[]).is_err() || last {
                return;
            }
        }
    }
}

/// Returns the attempts that this driver demands of its scripted guest.
#[must_use]
pub fn expectations() -> Vec<Expectation> {
    vec![
        Expectation::new("write_root", "EROFS|EACCES"),
        Expectation::new("open_host_marker", "ENOENT").about("/nowhere".into()),
        Expectation::new("namespace_net", "own").about("42".into()),
    ]
}

/// Returns a proof of these expectations in which every check holds.
#[must_use]
pub fn held(expected: &[Expectation]) -> Vec<ProofItem> {
    let item = |one: &Expectation| ProofItem {
        check: one.check.clone(),
        expected: one.allowed.clone(),
        seen: one.allowed.split('|').next().unwrap_or_default().to_owned(),
    };
    expected.iter().map(item).collect()
}

fn ended(exec: u32, status: ExitStatus) -> GuestFrame {
    GuestFrame::Exited { exec, status, cpu_us: 0, max_rss_bytes: 0 }
}
