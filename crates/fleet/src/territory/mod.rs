//! The machine of a territory: it joins a control plane, keeps its certificate, and runs the daemon.
//!
//! * `commands`: `nexus territory`: joins this machine, and looks at territories
//! * `credentials`: certificate and key of a territory, in one file of its data directory
//! * `enroll`: joins a machine to a control plane: a header on loopback, a certificate elsewhere
//! * `launcher`: the launcher process of a daemon: this very program, started before there is a second thread
//! * `renew`: renews the certificate of a territory while its daemon runs
//! * `services`: a daemon of this process: launcher, settings, signals
//! * `upkeep`: the recovery that the daemon needs from the command line, and its words for the operator

pub(crate) mod commands;
pub(crate) mod credentials;
pub(crate) mod enroll;
pub(crate) mod launcher;
pub(crate) mod renew;
pub(crate) mod services;
pub(crate) mod upkeep;
