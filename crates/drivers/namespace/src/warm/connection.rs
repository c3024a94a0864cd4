//! A caller's connection to a warm launcher: found, looked at, greeted, used once.
//!
//! ```text
//!  dial ─▶ socket of the own name ─▶ the process that listens: the own user, namespaces and program ─▶ Connection
//!  start ─▶ Greeting within GREETED_WITHIN ─▶ Start ─▶ taken within TAKEN_WITHIN ─▶ Answer within STARTED_WITHIN
//! ```
//! Until the launcher takes the request, every failure means that the caller starts its sandbox itself. Afterwards the launcher
//! may be starting one, and only its own word that it did not lets the caller do so.

use super::claim::Claim;
use super::likeness::Likeness;
use super::peer::Peer;
use super::place::{Place, PlaceError};
use super::wire::{Answer, Greeting, Start};
use crate::launcher::deadlines::boot_time;
use crate::launcher::wire::{Started, handle_to_json};
use nexus_channel::{ChannelError, Partial, codec};
use nexus_driver::{Channel, Handle, StartError};
use nexus_model::Plan;
use nexus_model::plan::PlanDraft;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::de::DeserializeOwned;
use std::io;
use std::time::{Duration, Instant};

/// Time for the first words of a door. A door that is busy or stopped costs a run that much and no more.
const GREETED_WITHIN: Duration = Duration::from_millis(300);
/// Time until a launcher that answers in no time is expected to have taken the request. One that is stopped or busy costs a run that
/// much and no more.
const TAKEN_WITHIN: Duration = Duration::from_millis(300);
/// Time for the start of a sandbox: more than a new template may take.
const STARTED_WITHIN: Duration = Duration::from_secs(15);

/// A connection that may be used for one sandbox.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    partial: Partial,
    door: Peer,
}

/// A sandbox that the launcher started.
#[derive(Debug)]
pub struct StartedSandbox {
    /// Statements of the driver.
    pub started: Started,
    /// The guest channel.
    pub channel: OwnedFd,
    /// The first process, as a pidfd.
    pub pidfd: OwnedFd,
    /// The upper directory of a layer in memory.
    pub upper: Option<OwnedFd>,
    /// The watch of the overlay.
    pub watch: Option<OwnedFd>,
    /// Keeps the sandbox: the launcher kills it when this is closed.
    pub link: Channel,
}

/// No sandbox was started.
#[derive(Debug)]
pub enum Failed {
    /// Nothing was asked for.
    NotAsked(String),
    /// The launcher has nothing ready, and did nothing.
    Declined,
    /// The launcher says that it did not start one.
    Refused(StartError),
    /// The launcher was asked and gave no answer that can be used: there may be a sandbox, which ends with its channel.
    Unknown(String),
}

impl Connection {
    /// Connects to the launcher of this name without waiting. `None` where there is none, or a process that is not to be trusted.
    pub fn dial(place: &Place, name: &str, own: &Likeness) -> Result<Option<Self>, PlaceError> {
        Self::dial_if(place, name, |door| own.strangeness(door).is_empty())
    }

    fn dial_if(place: &Place, name: &str, is_own: impl Fn(&Likeness) -> bool) -> Result<Option<Self>, PlaceError> {
        let Some(socket) = place.connect(name)? else { return Ok(None) };
        let Ok(door) = Peer::of(&socket) else { return Ok(None) };
        match door.read(Likeness::identity_of) {
            Ok(found) if is_own(&found) => {}
            Ok(_) | Err(_) => {
                tracing::debug!("a stranger listens in the place of the warm launcher");
                return Ok(None);
            }
        }
        Ok(Some(Self { channel: Channel::new(socket), partial: Partial::default(), door }))
    }

    /// Waits for the first words of the door.
    pub fn greeting(&mut self) -> Result<Greeting, String> {
        let until = Instant::now() + GREETED_WITHIN;
        let greeting = receive::<Greeting>(&self.channel, &mut self.partial, until);
        greeting.map(|(greeting, _)| greeting).map_err(|error| format!("the warm launcher did not greet: {error}"))
    }

    /// Asks the process that listens to end.
    pub fn end(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(self.door.process(), Signal::TERM)?)
    }

    /// Returns the number of the process that listens.
    pub fn pid(&self) -> i32 {
        self.door.pid
    }

    /// Has a sandbox started.
    pub fn start(mut self, plan: &Plan, handle: &Handle) -> Result<StartedSandbox, Failed> {
        match self.greeting() {
            Ok(Greeting::Ready { .. }) => {}
            Ok(Greeting::Unlike { what, .. }) => {
                return Err(Failed::NotAsked(format!("the caller differs in: {}", what.join(", "))));
            }
            Err(reason) => return Err(Failed::NotAsked(reason)),
        }
        let handle = handle_to_json(handle).map_err(Failed::NotAsked)?;
        let plan = without_command(plan).ok_or_else(|| Failed::NotAsked("the plan has no short form".to_owned()))?;
        let request = Start { plan, handle, until: boot_time() + STARTED_WITHIN };
        let bytes = codec::encode(&request).map_err(|error| Failed::NotAsked(error.to_string()))?;
        let claim = Claim::new().map_err(|error| Failed::NotAsked(error.to_string()))?;
        let asked = Instant::now();
        send(&self.channel, &bytes, &claim, asked + TAKEN_WITHIN)
            .map_err(|error| Failed::NotAsked(format!("the warm launcher took no request: {error}")))?;
        self.answered(&claim, asked)
    }

    fn answered(mut self, claim: &Claim, asked: Instant) -> Result<StartedSandbox, Failed> {
        let odd =
            |reason: String| Failed::Unknown(format!("the warm launcher gave no answer that can be used: {reason}"));
        let mut answer = receive::<Answer>(&self.channel, &mut self.partial, asked + TAKEN_WITHIN);
        if let Err(ChannelError::Io(Errno::TIMEDOUT)) = answer {
            if claim.take() {
                return Err(Failed::NotAsked("the warm launcher did not take the request in time".to_owned()));
            }
            // It is at work, or was stopped at it.
            answer = receive::<Answer>(&self.channel, &mut self.partial, asked + STARTED_WITHIN);
        }
        let (answer, descriptors) = answer.map_err(|error| odd(error.to_string()))?;
        let (started, has_upper, has_watch) = match answer {
            Answer::Started { started, has_upper, has_watch } => (started, has_upper, has_watch),
            Answer::NotStarted(error) => return Err(Failed::Refused(error)),
            Answer::Declined => return Err(Failed::Declined),
        };
        let expected = 2 + usize::from(has_upper) + usize::from(has_watch);
        if descriptors.len() != expected {
            return Err(odd(format!("{} descriptors came, not {expected}", descriptors.len())));
        }
        let mut descriptors = descriptors.into_iter();
        let (Some(channel), Some(pidfd)) = (descriptors.next(), descriptors.next()) else {
            return Err(odd("no descriptors came".to_owned()));
        };
        let upper = if has_upper { descriptors.next() } else { None };
        Ok(StartedSandbox { started, channel, pidfd, upper, watch: descriptors.next(), link: self.channel })
    }
}

/// A plan without its command and the variables: a guest gets those from the caller itself.
fn without_command(plan: &Plan) -> Option<Plan> {
    let draft = PlanDraft { argv: vec!["true".into()], env: Vec::new(), ..PlanDraft::from(plan.clone()) };
    Plan::new(draft).ok()
}

/// One launcher that a person may want to know of.
#[derive(Debug)]
pub struct Found {
    /// Name of its socket.
    pub name: String,
    /// The connection to it and its first words; `None` where no process answers for it.
    pub door: Option<(Connection, Result<Greeting, String>)>,
}

/// Looks for all launchers of this user, those of another version of this program too.
pub fn inspect_all(place: &Place, own: &Likeness) -> Result<Vec<Found>, PlaceError> {
    let found = place.names()?.into_iter().map(|name| {
        let door = Connection::dial_if(place, &name, |door| own.is_neighbour(door))?.map(|mut connection| {
            let greeting = connection.greeting();
            (connection, greeting)
        });
        Ok(Found { name, door })
    });
    found.collect()
}

/// Waits for a frame until `until` at most.
fn receive<F: DeserializeOwned>(
    channel: &Channel,
    partial: &mut Partial,
    until: Instant,
) -> Result<(F, Vec<OwnedFd>), ChannelError> {
    loop {
        if let Some(found) = channel.receive_ready(partial)? {
            return Ok(found);
        }
        wait(channel, PollFlags::IN, until)?;
    }
}

/// Sends a request with its claim, which goes with the first bytes.
fn send(channel: &Channel, bytes: &[u8], claim: &Claim, until: Instant) -> Result<(), ChannelError> {
    let mut sent = 0;
    while sent < bytes.len() {
        let beside = [claim.as_fd()];
        let beside: &[BorrowedFd<'_>] = if sent == 0 { &beside } else { &[] };
        match channel.send_ready(&bytes[sent..], beside)? {
            0 => wait(channel, PollFlags::OUT, until)?,
            count => sent += count,
        }
    }
    Ok(())
}

fn wait(channel: &Channel, flags: PollFlags, until: Instant) -> Result<(), ChannelError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ChannelError::Io(Errno::TIMEDOUT));
    }
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(channel, flags)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
