//! `nexus mcp`: gives the server of agents' tools its supervisors and its bounds.

use crate::args::{McpArgs, RunArgs};
use crate::failure::Failure;
use crate::failures;
use crate::net::args::AskOn;
use crate::profile::resolution::Resolution;
use crate::request;
use crate::run::parsed_run;
use crate::supervisor;
use nexus_mcp::commands::{Commands, Engine, Started};
use nexus_mcp::narrow::Bounds;
use nexus_mcp::serve::serve;
use nexus_mcp::tools::Tools;
use nexus_policy::profile::LimitKind;
use nexus_runner::plan::site::Site;
use std::ffi::OsString;
use std::io;

/// Serves the client, and returns the exit code.
pub fn command(args: &McpArgs) -> u8 {
    match served(args) {
        Ok(()) => 0,
        Err(failure) => failures::print_failure(&failure, false),
    }
}

fn served(args: &McpArgs) -> Result<(), Failure> {
    refuse_what_a_server_does_not_take(&args.run)?;
    parsed_run::refuse_what_is_not_here(&args.run)?;
    let site = Site::open(crate::host::choice(args.run.workspace.as_deref())?, &crate::host::here())?;
    let engine = Supervisors { args: args.run.clone(), words: own_words() };
    let commands = Commands::new(Box::new(engine), site.workspace, site.places)?;
    serve(Tools { commands, may_accept: args.may_accept })
}

/// Returns the flags of this process for its supervisors, which know all but one of them.
fn own_words() -> Vec<OsString> {
    std::env::args_os().skip(2).filter(|word| word != "--may-accept").collect()
}

/// Starts a supervisor for each command.
struct Supervisors {
    args: RunArgs,
    words: Vec<OsString>,
}

impl Engine for Supervisors {
    fn launch(&self, flags: Vec<OsString>) -> io::Result<Started> {
        let own = self.words.iter().cloned().chain(["--ends-with-caller".into()]);
        let (launched, process, owner) = supervisor::launch(own.chain(flags))?;
        Ok(Started { launched, process, owner })
    }

    fn bounds(&self) -> Result<Bounds, Failure> {
        let site = Site::open(crate::host::choice(self.args.workspace.as_deref())?, &crate::host::here())?;
        let grants = Resolution::of(&self.args, &site.workspace, &site.places)?.grants;
        if let Some(port) = grants.net.host_ports.first() {
            let message = format!(
                "{} opens port {} of this machine, and a server of agents' tools has no such ports",
                port.from, port.value
            );
            return Err(Failure::refused("host_port", message, "Use a profile without it."));
        }
        let limit = |kind| grants.limits.get(&kind).map(|limit| limit.value);
        Ok(Bounds {
            timeout_ms: limit(LimitKind::Timeout),
            memory: limit(LimitKind::Memory),
            pids: limit(LimitKind::Pids),
            changes: request::changes(&grants, &RunArgs { json: true, ..self.args.clone() }),
        })
    }
}

/// Refuses flags that are about one command, or that no agent may have.
fn refuse_what_a_server_does_not_take(run: &RunArgs) -> Result<(), Failure> {
    let given = [
        (!run.command.is_empty() || run.shell.is_some(), "a command"),
        (run.tty, "--tty"),
        (run.stdin || run.no_stdin, "--stdin and --no-stdin"),
        (run.json, "--json"),
        (run.detach || run.name.is_some(), "--detach and --name"),
        (!run.publish.is_empty(), "--publish"),
        (run.direct, "--direct"),
        (run.live, "--live"),
        (run.facility.is_some(), "--facility"),
        (run.cwd.is_some(), "--cwd"),
        (run.full_output.is_some() || run.full_output_most.is_some(), "--full-output"),
        (run.receipt.is_some(), "--receipt"),
        (run.no_network || run.ends_with_caller, "--no-network and --ends-with-caller"),
        (run.cache, "--cache"),
        (run.quiet || run.verbose, "--quiet and --verbose"),
        (!run.net.allow_host_port.is_empty(), "--allow-host-port"),
        (run.net.ask == Some(AskOn::Terminal), "--ask on the terminal"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, what)) => {
            let message = format!(
                "nexus mcp does not take {what}: its calls say which commands run, and standard input and output are the protocol's"
            );
            Err(Failure::usage("mcp", message, "nexus mcp --help shows an example"))
        }
    }
}
