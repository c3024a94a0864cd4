//! The commands of the users of a fleet, over HTTP with the key of a user.
//!
//! * `access`: finds the control plane and the key of a user, and calls it
//! * `artifacts`: `nexus directive artifacts`: lists the kept files of a directive, and writes them into a new
//!   directory
//! * `audit`: `nexus audit`: exports the audit chain of an account, keeps its signed heads, and checks an export
//!   without a server
//! * `call`: calls to a control plane: the client, and errors as a person sees them
//! * `directive`: `nexus directive`: creates directives, ends them, and reads what they left
//! * `display`: lines about directives, facilities and territories for a person
//! * `facility`: `nexus facility`: creates and shows facilities, and removes the files of one from a territory
//! * `follow`: `nexus directive logs`: prints the output of a directive, and goes on until it ends
//! * `local`: the facilities of `nexus run` on this machine
//! * `login`: `nexus login`: remembers one control plane, in a file that only its user can read
//! * `past_runs`: directives that a control plane has, as runs that policy documents can be asked about (`nexus
//!   policy replay --fleet`)
//! * `progress`: prints how far long work on this machine is
//! * `snapshots`: `nexus facility snapshot|restore|fork|diff|gc` on this machine
//! * `watch`: `nexus directive ls --watch`: lists directives, and prints each line again when it has changed

pub mod access;
pub(crate) mod artifacts;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod directive;
pub(crate) mod display;
pub(crate) mod facility;
pub(crate) mod follow;
pub(crate) mod local;
pub(crate) mod login;
pub mod past_runs;
pub(crate) mod progress;
pub(crate) mod snapshots;
pub(crate) mod watch;
