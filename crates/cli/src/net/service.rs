//! The egress of one run, from before the sandbox until after it.
//!
//! ```text
//!  prepare ─▶ Ready ─serve(listeners)─▶ Serving ─finish─▶ Ended
//!               └──────── finish: the sandbox never stood ──┘
//! ```

use super::audit;
use super::ended::Ended;
use super::network::Network;
use crate::failure::Failure;
use crate::places::Places;
use nexus_driver::Listeners as Handed;
use nexus_egress::{Clock, Config, Egress, FileSink, Listeners};
use nexus_model::RunId;
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

/// The egress of one run.
pub struct Service {
    state: State,
    failure: Option<Failure>,
}

enum State {
    Ready(Box<Config>),
    Serving(Egress),
    Over,
}

impl Service {
    /// Makes what must be there before the sandbox is.
    pub fn prepare(network: &Network, places: &Places, run: RunId) -> Result<Self, Failure> {
        let record = audit::create(places, run)?;
        let sink = Arc::new(FileSink::new(record, audit::MOST_BYTES));
        let mut config = Config::new(Arc::new(network.policy.clone()), Clock::start(), sink);
        config.upstream_proxy.clone_from(&network.upstream);
        Ok(Self { state: State::Ready(Box::new(config)), failure: None })
    }

    /// Takes the listeners that the sandbox handed out. Connections that came meanwhile have waited. An error means
    /// that the sandbox has to end; [`Service::failure`] says why.
    pub fn serve(&mut self, handed: Handed) -> Result<(), NotServed> {
        let served = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(config) => start(*config, handed),
            State::Serving(_) | State::Over => {
                Err(Failure::refused("net", "the sandbox handed its listeners out twice", "nothing more was run"))
            }
        };
        match served {
            Ok(egress) => {
                self.state = State::Serving(egress);
                Ok(())
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(NotServed)
            }
        }
    }

    /// Why nothing is served.
    pub fn failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Ends it and sums up. Old records make room.
    pub fn finish(self, places: &Places) -> Ended {
        let mut ended = self.ended();
        if let Err(error) = audit::prune(places) {
            ended.problem.get_or_insert(format!("old records of the network could not be removed: {error}"));
        }
        ended
    }

    fn ended(self) -> Ended {
        match self.state {
            State::Serving(egress) => match egress.stop() {
                Ok(summary) => Ended { summary, problem: None },
                Err(error) => Ended { problem: Some(error.to_string()), ..Ended::default() },
            },
            State::Ready(_) | State::Over => Ended::default(),
        }
    }
}

/// The egress could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the network could not be served")]
pub struct NotServed;

fn start(config: Config, handed: Handed) -> Result<Egress, Failure> {
    raise_descriptors();
    let tcp = |fd: OwnedFd| Some(TcpListener::from(fd));
    let listeners = Listeners {
        http: tcp(handed.http),
        socks: tcp(handed.socks),
        transparent_v4: tcp(handed.transparent),
        transparent_v6: handed.transparent_ipv6.and_then(tcp),
        dns_udp: Some(UdpSocket::from(handed.dns_udp)),
        dns_tcp: tcp(handed.dns_tcp),
    };
    Egress::start(config, listeners)
        .map_err(|error| Failure::refused("net", format!("the network cannot be served: {error}"), "nothing was run"))
}

/// Every tunnel needs two. The sandbox exists already, so that its commands keep the caller's limit.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        // If it cannot be raised, the egress counts what there is and serves as many.
        Ok(()) | Err(_) => {}
    }
}
