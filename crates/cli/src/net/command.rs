//! `nexus net`: the commands about the network that need no run.

use super::args::{NetAction, NetArgs};
use super::{check, proxy};
use crate::failures;

/// Does it and returns the exit code.
pub fn command(args: &NetArgs) -> u8 {
    let (done, json) = match &args.action {
        NetAction::Check(args) => (check::check(args), args.json),
        NetAction::Log(args) => (nexus_history::net::log(args), false),
        NetAction::Proxy(args) => (proxy::proxy(args), false),
    };
    done.unwrap_or_else(|failure| failures::print_failure(&failure, json && failure.exit != nexus_model::exit::USAGE))
}
