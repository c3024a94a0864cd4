//! The egress of one run, from before the sandbox until after it.
//!
//! ```text
//!  prepare ─▶ Ready ─serve(listeners)─▶ Serving ─finish─▶ NetworkEnd
//!               └──────── finish: the sandbox never stood ──┘
//! ```

use crate::live::attendant::NetworkServer;
use crate::net::ended::NetworkEnd;
use crate::net::network::RunNetwork;
use crate::net::record;
use crate::state::directory::StateDir;
use nexus_driver::{Listeners as Handed, ProcessView};
use nexus_egress::{Approver, Clock, Config, Egress, FileSink, Limits, Listeners, Processes, StartError};
use nexus_model::RunId;
use nexus_model::network::HTTP_PORT;
use rustix::fd::OwnedFd;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

pub use nexus_receipt::Approved;

/// Asks the user about connections that no rule allows, while the run goes on.
pub trait Questions: Send {
    /// Starts to ask, and returns the side that the egress sees.
    fn start(&mut self) -> io::Result<Arc<dyn Approver>>;
    /// Names the egress whose policy a lasting answer changes.
    fn attach(&self, egress: &Arc<Egress>);
    /// Ends the questions that are open, and lets the egress go. Returns what a person let through.
    fn end(self: Box<Self>) -> Result<Vec<Approved>, QuestionsPanicked>;
}

/// The thread that asks ended in a panic.
#[derive(Debug, thiserror::Error)]
#[error("the questions ended by a panic; everything that would have been asked was denied from then on")]
pub struct QuestionsPanicked;

/// The part of the caller in the network of a run.
pub struct CallerSide {
    /// Asks questions, where the run has them.
    pub questions: Option<Box<dyn Questions>>,
    /// Is called when the sandbox stands and the egress is about to be started: a caller raises its limit of descriptors here,
    /// so that the commands inside keep the lower one.
    pub before_serving: fn(),
}

/// The egress of one run.
pub struct Service {
    state: State,
    error: Option<ServeError>,
    notes: Vec<String>,
}

enum State {
    Ready(Box<Ready>),
    Serving { egress: Arc<Egress>, questions: Option<Box<dyn Questions>> },
    Over,
}

/// Inputs with which an egress is started.
struct Ready {
    config: Config,
    caller: CallerSide,
}

impl Service {
    /// Creates the parts of the service that must exist before the sandbox does.
    pub fn prepare(
        network: &RunNetwork,
        places: &StateDir,
        run: RunId,
        caller: CallerSide,
    ) -> Result<Self, record::CreateError> {
        let file = record::create(places, run)?;
        let sink = Arc::new(FileSink::new(file, record::MAX_BYTES));
        let mut config = Config::new(Arc::new(network.policy.clone()), Clock::start(), sink);
        config.upstream_proxy.clone_from(&network.upstream);
        let ready = Ready { config, caller };
        Ok(Self { state: State::Ready(Box::new(ready)), error: None, notes: network.notes.clone() })
    }

    /// Bounds what the egress holds for a sandbox that may use so much memory itself.
    #[must_use]
    pub fn within(mut self, memory_bytes: Option<u64>) -> Self {
        if let (State::Ready(ready), Some(memory)) = (&mut self.state, memory_bytes) {
            ready.config.limits = Limits::within(memory);
        }
        self
    }

    /// Takes the listeners that the sandbox handed out. Connections that came meanwhile have waited. An error means
    /// that the sandbox has to end; [`Service::error`] says why.
    pub fn serve(&mut self, handed: Handed) -> Result<(), NotServed> {
        let served = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(ready) => start(*ready, handed),
            State::Serving { .. } | State::Over => Err(ServeError::Twice),
        };
        match served {
            Ok(serving) => {
                self.state = serving;
                Ok(())
            }
            Err(error) => {
                self.error = Some(error);
                Err(NotServed)
            }
        }
    }

    /// Takes the error that stopped the service, if there is one.
    pub fn error(&mut self) -> Option<ServeError> {
        self.error.take()
    }

    /// Ends it and sums up. Empty and old records go.
    pub fn finish(self, places: &StateDir, run: RunId) -> NetworkEnd {
        let mut ended = self.ended();
        match nexus_receipt::store::files::digest(&record::place(places, run)) {
            Ok(record) => ended.record = Some(record),
            Err(error) => {
                ended.problem.get_or_insert(format!("the record of the network could not be read: {error}"));
            }
        }
        match record::forget_if_empty(places, run).and_then(|()| record::prune(places, run)) {
            Ok(pruned) => ended.notes.extend(pruned.notes()),
            Err(error) => {
                ended.problem.get_or_insert(format!("old records of the network could not be removed: {error}"));
            }
        }
        ended
    }

    fn ended(self) -> NetworkEnd {
        let notes = self.notes;
        let State::Serving { egress, questions } = self.state else {
            return NetworkEnd { notes, ..NetworkEnd::default() };
        };
        // First: it holds on to the egress while it changes the policy.
        let asked = questions.map_or_else(|| Ok(Vec::new()), Questions::end);
        let stopped = match Arc::try_unwrap(egress) {
            Ok(egress) => egress.stop().map_err(|error| error.to_string()),
            Err(_) => Err("the egress is still held by its questions".to_owned()),
        };
        let empty = NetworkEnd { notes, ..NetworkEnd::default() };
        match (stopped, asked) {
            (Ok(summary), Ok(approved)) => NetworkEnd { summary, approved, ..empty },
            (Ok(summary), Err(panicked)) => NetworkEnd { summary, problem: Some(panicked.to_string()), ..empty },
            (Err(problem), asked) => {
                NetworkEnd { problem: Some(problem), approved: asked.unwrap_or_default(), ..empty }
            }
        }
    }
}

impl NetworkServer for Service {
    fn serve(&mut self, listeners: Handed) -> io::Result<()> {
        Service::serve(self, listeners).map_err(io::Error::other)
    }
}

/// The egress could not be started; [`Service::error`] says why.
#[derive(Debug, thiserror::Error)]
#[error("the network could not be served")]
pub struct NotServed;

/// The network of a run cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The sandbox handed its listeners out twice.
    #[error("the sandbox handed its listeners out twice")]
    Twice,
    /// The questions cannot be asked.
    #[error("the network cannot be served: {source}")]
    Questions {
        /// The answer of the system.
        source: io::Error,
    },
    /// The egress cannot be started.
    #[error("the network cannot be served: {source}")]
    Egress {
        /// The error of the egress.
        source: StartError,
    },
    /// Every rule for one program would say no, without a hint.
    #[error("the kernel does not tell which program connects: {source}")]
    Programs {
        /// The answer of the kernel.
        source: io::Error,
    },
}

impl ServeError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "net"
    }
}

fn start(ready: Ready, handed: Handed) -> Result<State, ServeError> {
    let Ready { mut config, caller } = ready;
    (caller.before_serving)();
    let mut questions = caller.questions;
    if let Some(questions) = &mut questions {
        config.approver = Some(questions.start().map_err(|source| ServeError::Questions { source })?);
    }
    if let Some(ProcessView { proc, sockets }) = handed.processes {
        let processes = Processes::of_sandbox(proc, sockets);
        config.programs = Arc::new(known(processes, (Ipv4Addr::LOCALHOST, HTTP_PORT).into())?);
    }
    let tcp = |fd: OwnedFd| Some(TcpListener::from(fd));
    let listeners = Listeners {
        http: tcp(handed.http),
        socks: tcp(handed.socks),
        transparent_v4: tcp(handed.transparent),
        transparent_v6: handed.transparent_ipv6.and_then(tcp),
        dns_udp: Some(UdpSocket::from(handed.dns_udp)),
        dns_tcp: tcp(handed.dns_tcp),
        host_ports: handed.host_ports.into_iter().map(|(port, fd)| (port, TcpListener::from(fd))).collect(),
    };
    let egress = Arc::new(Egress::start(config, listeners).map_err(|source| ServeError::Egress { source })?);
    if let Some(questions) = &questions {
        questions.attach(&egress);
    }
    Ok(State::Serving { egress, questions })
}

/// Refuses where the kernel does not tell whose a connection is: every rule for one program would say no, without a
/// hint.
pub fn known(processes: io::Result<Processes>, listener: SocketAddr) -> Result<Processes, ServeError> {
    let checked = processes.and_then(|processes| processes.check(listener).map(|()| processes));
    checked.map_err(|source| ServeError::Programs { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_tells_nothing_refuses_rules_for_one_program() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        known(Processes::of_this_host(), address).unwrap();
        drop(listener);
        let unsupported = || Err(io::ErrorKind::Unsupported.into());
        for refused in [known(Processes::of_this_host(), address), known(unsupported(), address)] {
            let error = refused.unwrap_err();
            assert!(matches!(error, ServeError::Programs { .. }) && error.code() == "net", "{error}");
        }
    }
}
