//! The user's side of a launcher: the namespace driver with every sandbox cloned by another process.

use super::wire::{Answer, Request, Started, handle_from_json, handle_to_json};
use crate::driver::{Namespace, changes_of};
use crate::name::NAME;
use crate::process::NamespaceProcess;
use crate::state::State;
use nexus_driver::{
    Channel, DestroyError, Driver, Found, Handle, InventoryError, PrepareError, ProbeReport, Sandbox, StartError,
};
use nexus_jail::clone::Child;
use nexus_model::{Plan, RunId};
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A launcher process. Threads may share it: a request and its answer are one exchange.
#[derive(Debug)]
pub struct Launcher {
    link: Mutex<Link>,
    /// Answers what changes nothing, and removes: this needs no process of one thread.
    local: Namespace,
}

/// The launcher's process and the connection to it.
#[derive(Debug)]
struct Link {
    program: Command,
    process: std::process::Child,
    channel: Channel,
    /// An exchange did not come to its end: what comes next may be the answer to another request.
    is_lost: bool,
}

impl Link {
    fn start(mut program: Command) -> io::Result<Self> {
        let (process, channel) = spawn(&mut program)?;
        Ok(Self { program, process, channel, is_lost: false })
    }

    /// Replaces a process that has died, or of which no answer can be believed any more. Its sandboxes have died with it, or do now.
    fn revive(&mut self) -> io::Result<bool> {
        if !self.is_lost && self.process.try_wait()?.is_none() {
            return Ok(false);
        }
        self.process.kill().ok();
        self.process.wait()?;
        // Another one only when this one is there: until then every request is refused.
        self.is_lost = true;
        (self.process, self.channel) = spawn(&mut self.program)?;
        self.is_lost = false;
        Ok(true)
    }

    fn exchange(&mut self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), String> {
        if std::mem::replace(&mut self.is_lost, true) {
            return Err("an earlier request to the launcher was cut off".to_owned());
        }
        let failed = |error| {
            tracing::debug!(request = request.name(), "the launcher does not answer");
            format!("the launcher does not answer: {error}")
        };
        self.channel.send(request, &[]).map_err(failed)?;
        let answer = self.channel.receive::<Answer>().map_err(failed)?;
        self.is_lost = false;
        Ok(answer)
    }
}

fn spawn(program: &mut Command) -> io::Result<(std::process::Child, Channel)> {
    let (ours, theirs) = UnixStream::pair()?;
    let process = program.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
    // The command keeps its end otherwise, and the launcher's death would not close the connection.
    program.stdin(Stdio::null());
    tracing::debug!(pid = process.id(), "a launcher was started");
    Ok((process, Channel::new(ours.into())))
}

impl Launcher {
    /// Starts a program that calls [`crate::launcher::serve`] on its standard input. `local` is the driver of this
    /// process's user.
    pub fn start(program: Command, local: Namespace) -> io::Result<Self> {
        Ok(Self { link: Mutex::new(Link::start(program)?), local })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), String> {
        self.link().exchange(request)
    }

    /// The launcher's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.link().process.id()
    }

    /// Starts the launcher again when it has died. Returns whether it had.
    pub fn revive(&self) -> io::Result<bool> {
        self.link().revive()
    }

    /// Makes the launcher kill the sandbox of a run at this time of CLOCK_BOOTTIME, whatever became of its user by then, and
    /// refuse to start one after it. Call it before the sandbox is started, and again for a later time.
    pub fn keep_until(&self, run: RunId, until: Duration) -> Result<(), KeepError> {
        match self.exchange(&Request::KeepUntil { run, until }).map_err(|reason| KeepError { reason })?.0 {
            Answer::Noted => Ok(()),
            Answer::Prepared(_) | Answer::NotPrepared(_) | Answer::Started(_) | Answer::NotStarted(_) => {
                Err(KeepError { reason: OTHER_ANSWER.to_owned() })
            }
        }
    }

    /// Ends the launcher and waits for it.
    pub fn stop(self) -> io::Result<()> {
        let Link { mut process, channel, .. } = self.link.into_inner().unwrap_or_else(PoisonError::into_inner);
        drop(channel);
        process.wait().map(drop)
    }
}

impl Driver for Launcher {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self) -> ProbeReport {
        self.local.probe()
    }

    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError> {
        let failed = |reason| PrepareError::Launcher { reason };
        match self.exchange(&Request::Prepare(plan.clone())).map_err(failed)?.0 {
            Answer::Prepared(json) => handle_from_json(&json).map_err(failed),
            Answer::NotPrepared(error) => Err(error),
            Answer::Started(_) | Answer::NotStarted(_) | Answer::Noted => Err(failed(OTHER_ANSWER.to_owned())),
        }
    }

    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError> {
        let failed = |reason| StartError::Launcher { reason };
        let state = State::read(handle)?;
        let handle = handle_to_json(handle).map_err(|reason| StartError::Handle { reason })?;
        let (answer, descriptors) = self.exchange(&Request::Start { plan: plan.clone(), handle }).map_err(failed)?;
        let Started { pid, guarantees, expect } = match answer {
            Answer::Started(started) => started,
            Answer::NotStarted(error) => return Err(error),
            Answer::Prepared(_) | Answer::NotPrepared(_) | Answer::Noted => {
                return Err(failed(OTHER_ANSWER.to_owned()));
            }
        };
        let mut descriptors = descriptors.into_iter();
        let (Some(channel), Some(pidfd), Some(pid)) = (descriptors.next(), descriptors.next(), Pid::from_raw(pid))
        else {
            return Err(failed("the launcher sent no descriptors".to_owned()));
        };
        // The launcher holds mounts of dead sandboxes for a while: no process can tell when an overlay is gone.
        let process = NamespaceProcess::new(Child { pid, pidfd }, state.group, None, Vec::new());
        Ok(Sandbox {
            channel: Channel::new(channel),
            guarantees,
            expect,
            changes: changes_of(plan, descriptors.next()),
            process: Box::new(process),
        })
    }

    fn inventory(&self) -> Result<Vec<Found>, InventoryError> {
        self.local.inventory()
    }

    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError> {
        self.local.destroy(handle)
    }
}

/// The launcher did not note until when a sandbox may live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepError {
    /// Reason, for a person to read.
    pub reason: String,
}

impl fmt::Display for KeepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the end of the lease could not be given to the launcher: {}", self.reason)
    }
}

impl std::error::Error for KeepError {}

const OTHER_ANSWER: &str = "the launcher gave the answer to another request";

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher whose process is another program: `cat` sends the request back.
    fn played_by(program: &str) -> Launcher {
        let mut command = Command::new(program);
        command.stdout(Stdio::null());
        Launcher::start(command, Namespace::with_defaults()).unwrap()
    }

    fn plan() -> Plan {
        let workspace = std::path::Path::new("/srv/w");
        Plan::new(nexus_model::plan::PlanDraft::direct(workspace, ["true"], std::path::Path::new("/nowhere"))).unwrap()
    }

    #[test]
    fn a_launcher_that_is_gone_gives_an_error_with_its_code() {
        let launcher = played_by("true");
        let handle = Namespace::with_defaults().prepare(&plan()).unwrap();
        for _ in 0..2 {
            assert_eq!(launcher.prepare(&plan()).unwrap_err().code(), "launcher");
            assert_eq!(launcher.start(&plan(), &handle).map(drop).unwrap_err().code(), "launcher");
        }
        launcher.stop().unwrap();
    }

    #[test]
    fn a_launcher_that_has_died_is_started_again() {
        let mut command = Command::new("sleep");
        command.arg("60").stdout(Stdio::null());
        let launcher = Launcher::start(command, Namespace::with_defaults()).unwrap();
        let first = launcher.pid();
        assert!(!launcher.revive().unwrap() && launcher.pid() == first, "it lives");
        let kill = || {
            let pid = Pid::from_raw(launcher.pid().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        };
        kill();
        while !launcher.revive().unwrap() {
            std::thread::yield_now();
        }
        assert_ne!(launcher.pid(), first);
        assert!(!launcher.revive().unwrap(), "the second one lives");
        // An exchange that was cut off makes every later answer worthless, also where the process is not seen as dead yet.
        kill();
        assert_eq!(launcher.prepare(&plan()).map_err(|error| error.code()).unwrap_err(), "launcher");
        assert!(launcher.revive().unwrap() && !launcher.revive().unwrap());
        kill();
        launcher.stop().unwrap();
    }

    #[test]
    fn after_an_exchange_that_was_cut_off_no_answer_is_believed() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut link = Link { channel: Channel::new(ours), ..Link::start(Command::new("true")).unwrap() };
        let launcher = Channel::new(theirs);
        // Not an answer, and then one that is late.
        rustix::io::write(&launcher, &[1, 0, 0, 0, 0xff]).unwrap();
        launcher.send(&Answer::Prepared(String::new()), &[]).unwrap();
        assert!(link.exchange(&Request::Prepare(plan())).is_err());
        assert!(link.exchange(&Request::Prepare(plan())).unwrap_err().contains("cut off"));
    }
}
