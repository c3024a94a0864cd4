//! The egress of one run, from before the sandbox until after it.
//!
//! ```text
//!  prepare ─▶ Ready ─serve(listeners)─▶ Serving ─finish─▶ Ended
//!               └──────── finish: the sandbox never stood ──┘
//! ```

use super::ask::{self, Asker};
use super::ended::Ended;
use super::network::Network;
use crate::failure::Failure;
use crate::terminal::Hold;
use nexus_driver::{Listeners as Handed, ProcessView};
use nexus_egress::{Clock, Config, Egress, FileSink, Limits, Listeners, Processes};
use nexus_model::RunId;
use nexus_model::network::HTTP_PORT;
use nexus_runner::live::attendant::NetworkServer;
use nexus_runner::net::record;
use nexus_runner::state::directory::StateDir;
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// The egress of one run.
pub struct Service {
    state: State,
    failure: Option<Failure>,
    notes: Vec<String>,
}

enum State {
    Ready(Box<Ready>),
    Serving { egress: Arc<Egress>, asker: Option<Asker> },
    Over,
}

/// Inputs with which an egress is started.
struct Ready {
    config: Config,
    /// Present when questions are asked.
    ask: Option<Asking>,
}

/// Inputs of the thread that asks the questions of a run.
struct Asking {
    terminal: File,
    /// The time for which a question waits for its answer.
    patience: Duration,
    hold: Arc<Hold>,
}

impl Service {
    /// Makes what must be there before the sandbox is.
    pub fn prepare(network: &Network, places: &StateDir, run: RunId) -> Result<Self, Failure> {
        let file = record::create(places, run)?;
        let sink = Arc::new(FileSink::new(file, record::MAX_BYTES));
        let mut config = Config::new(Arc::new(network.policy.clone()), Clock::start(), sink);
        config.upstream_proxy.clone_from(&network.upstream);
        let ask = match (network.ask, &network.hold) {
            (Some(patience), Some(hold)) => Some(Asking { terminal: terminal()?, patience, hold: Arc::clone(hold) }),
            (None, _) | (_, None) => None,
        };
        let ready = Ready { config, ask };
        Ok(Self { state: State::Ready(Box::new(ready)), failure: None, notes: network.notes.clone() })
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
    /// that the sandbox has to end; [`Service::failure`] says why.
    pub fn serve(&mut self, handed: Handed) -> Result<(), NotServed> {
        let served = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(ready) => start(*ready, handed),
            State::Serving { .. } | State::Over => {
                Err(Failure::refused("net", "the sandbox handed its listeners out twice", "nothing more was run"))
            }
        };
        match served {
            Ok(serving) => {
                self.state = serving;
                Ok(())
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(NotServed)
            }
        }
    }

    /// Takes the failure that keeps the service from serving, if there is one.
    pub fn failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Ends it and sums up. Empty and old records go.
    pub fn finish(self, places: &StateDir, run: RunId) -> Ended {
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

    fn ended(self) -> Ended {
        let notes = self.notes;
        let State::Serving { egress, asker } = self.state else { return Ended { notes, ..Ended::default() } };
        // First: it holds on to the egress while it changes the policy.
        let asked = asker.map_or(Ok(()), Asker::end);
        let stopped = match Arc::try_unwrap(egress) {
            Ok(egress) => egress.stop().map_err(|error| error.to_string()),
            Err(_) => Err("the egress is still held by its questions".to_owned()),
        };
        match (stopped, asked) {
            (Ok(summary), Ok(())) => Ended { summary, notes, ..Ended::default() },
            (Ok(summary), Err(panicked)) => Ended { summary, problem: Some(panicked.to_string()), notes, record: None },
            (Err(problem), _) => Ended { problem: Some(problem), notes, ..Ended::default() },
        }
    }
}

impl NetworkServer for Service {
    fn serve(&mut self, listeners: Handed) -> io::Result<()> {
        Service::serve(self, listeners).map_err(io::Error::other)
    }
}

/// The egress could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the network could not be served")]
pub struct NotServed;

fn terminal() -> Result<File, Failure> {
    ask::terminal().map_err(|error| {
        let message = format!("--ask has no terminal to ask on: {error}");
        Failure::usage("ask", message, "leave --ask out and name the destinations with --allow")
    })
}

fn start(ready: Ready, handed: Handed) -> Result<State, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::refused("net", format!("the network cannot be served: {error}"), "nothing was run")
    };
    raise_descriptors();
    let Ready { mut config, ask } = ready;
    let mut asker = None;
    if let Some(Asking { terminal, patience, hold }) = ask {
        let (started, questions) = Asker::start(terminal, patience, hold).map_err(|error| failed(&error))?;
        config.approver = Some(questions);
        asker = Some(started);
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
    let egress = Arc::new(Egress::start(config, listeners).map_err(|error| failed(&error))?);
    if let Some(asker) = &asker {
        asker.attach(&egress);
    }
    Ok(State::Serving { egress, asker })
}

/// Refuses where the kernel does not tell whose a connection is: every rule for one program would say no, without a
/// hint.
pub fn known(processes: io::Result<Processes>, listener: SocketAddr) -> Result<Processes, Failure> {
    let checked = processes.and_then(|processes| processes.check(listener).map(|()| processes));
    checked.map_err(|error| {
        let message = format!("the kernel does not tell which program connects: {error}");
        Failure::refused("net", message, "load its modules inet_diag and tcp_diag, or leave @/PATH out of the rules")
    })
}

/// Raises the limit of descriptors, since every tunnel needs two. The sandbox exists already, so that its commands
/// keep the caller's limit.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        // If it cannot be raised, the egress counts what there is and serves as many.
        Ok(()) | Err(_) => {}
    }
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
            let failure = refused.unwrap_err();
            assert_eq!((failure.code, failure.exit), ("net", Failure::refused("net", "", "").exit));
            assert!(failure.text().contains("@/PATH"), "{}", failure.text());
        }
    }
}
