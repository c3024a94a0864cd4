//! `nexus net proxy`: the egress alone, for programs that Nexus does not run.
//!
//! It listens on loopback, where every process of this host can use it: it restricts the destinations, not the clients.

use super::args::ProxyArgs;
use super::check::resolved;
use super::network::own_addresses;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::profile::resolution::NO_SUCH_PROFILE;
use crate::signals::Signals;
use crate::terminal::out;
use nexus_egress::{Clock, Config, Egress, FileSink, Listeners, Processes};
use nexus_hints::blocked;
use nexus_model::RunId;
use nexus_policy::net::Policy;
use nexus_runner::net::ended::NetworkEnd;
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::{record, service};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

const HANGUP: u8 = 1;

/// Serves until a signal asks the process to end.
pub fn proxy(args: &ProxyArgs) -> Result<u8, Failure> {
    if args.rules.net.ask.is_some() {
        let hint = "name the destinations with --allow";
        return Err(Failure::usage("ask", "nexus net proxy asks no questions", hint));
    }
    if !args.rules.net.allow_host_port.is_empty() {
        let message =
            "--allow-host-port is for sandboxes: the programs that nexus net proxy serves are on this machine";
        return Err(Failure::usage("host_port", message, "let them connect to 127.0.0.1 without the proxy"));
    }
    let signals = Signals::catch().map_err(|error| failed("signals", &error))?;
    let listener = listen(args.listen)?;
    let address = listener.local_addr().map_err(|error| failed("the listener", &error))?;
    let socks = args.socks.map(listen).transpose()?;
    let socks_address = socks.as_ref().map(TcpListener::local_addr).transpose();
    let socks_address = socks_address.map_err(|error| failed("the listener", &error))?;
    let own: Vec<SocketAddr> = [address].into_iter().chain(socks_address).collect();

    let network = read(args, &own, 1)?.ok_or_else(|| {
        let hint = "give --allow, --allow-group, --net or a --profile with a network";
        Failure::usage("net", "there is nothing that the proxy may reach", hint)
    })?;
    let places = crate::host::ready_state_dir()?;
    let id = RunId::new();
    let sink = Arc::new(FileSink::new(record::create(&places, id)?, record::MAX_BYTES));
    let named = blocked::named(&network.policy);
    let mut config = Config::new(Arc::new(network.policy), Clock::start(), sink);
    config.upstream_proxy = network.upstream;
    // Rules that are read again may be for one program, too.
    let processes = service::known(Processes::of_this_host(), address);
    let unknown = match processes {
        Ok(processes) => {
            config.programs = Arc::new(processes);
            None
        }
        Err(error) if config.policy.names_programs() => return Err(error.into()),
        Err(error) => Some(Failure::from(error).text()),
    };
    let listeners = Listeners { http: Some(listener), socks, ..Listeners::default() };
    let egress = Egress::start(config, listeners)
        .map_err(|error| Failure::refused("net", error.to_string(), "nothing is served"))?;
    let mut text = format!("http://{address}\n");
    text.extend(socks_address.map(|address| format!("socks5h://{address}\n")));
    out::write_unless_closed(&mut io::stdout(), text.as_bytes())
        .map_err(|error| failures::not_written("the address", &error))?;
    for note in &network.notes {
        print_note(note);
    }
    let mut generation = 1;
    while next_signal(&signals, &egress)? == HANGUP {
        generation += 1;
        reload(args, &own, generation, &egress, unknown.as_deref());
    }
    let ended = match egress.stop() {
        Ok(summary) => NetworkEnd { summary, ..NetworkEnd::default() },
        Err(error) => NetworkEnd { problem: Some(error.to_string()), ..NetworkEnd::default() },
    };
    record::forget_if_empty(&places, id).map_err(|error| failed("the record", &error))?;
    for line in blocked::lines(&ended, &named, None) {
        print_note(&line);
    }
    if record::place(&places, id).exists() {
        print_note(&format!("the record is nexus net log {id}"));
    }
    Ok(u8::from(ended.problem.is_some()))
}

/// Waits for the next signal; fails if the egress has ended.
fn next_signal(signals: &Signals, egress: &Egress) -> Result<u8, Failure> {
    let a_while = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        // With a time limit: no signal reports that the egress ended on its own.
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&a_while)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed("signals", &error.into())),
        }
        let numbers = signals.take().map_err(|error| failed("signals", &error))?;
        // The one that ends counts before the one that reloads.
        if let Some(number) = numbers.iter().copied().max_by_key(|number| *number != HANGUP) {
            return Ok(number);
        }
        if !egress.is_running() {
            return Err(Failure::refused("net", "the egress ended on its own", "look at the messages before"));
        }
    }
}

/// Reads the rules from the files again. Files that allow nothing any more, or are gone, allow nothing; where they
/// cannot be read, or are for programs that are not known, the old rules stay.
fn reload(args: &ProxyArgs, own: &[SocketAddr], generation: u64, egress: &Egress, unknown: Option<&str>) {
    let reloaded = match read(args, own, generation) {
        Ok(Some(network)) => match unknown.filter(|_| network.policy.names_programs()) {
            Some(why) => Err(why.to_owned()),
            None => egress.reload(Arc::new(network.policy)).map_err(|error| error.to_string()),
        },
        Ok(None) => egress.reload(nothing(generation)).map_err(|error| error.to_string()),
        Err(failure) if failure.code == NO_SUCH_PROFILE => {
            print_note(&failure.message);
            egress.reload(nothing(generation)).map_err(|error| error.to_string())
        }
        Err(failure) => Err(failure.text()),
    };
    match reloaded {
        Ok(cut) => print_note(&format!("the rules were read again; connections that they forbid: {cut}")),
        Err(why) => print_note(&format!("the rules stay as they were: {why}")),
    }
}

/// `None` where nothing is allowed.
fn read(args: &ProxyArgs, own: &[SocketAddr], generation: u64) -> Result<Option<RunNetwork>, Failure> {
    let Some(network) = resolved(&args.rules)?.0 else { return Ok(None) };
    Ok(Some(network.on_host(&own_addresses()?, own, generation)))
}

fn nothing(generation: u64) -> Arc<Policy> {
    Arc::new(Policy::default().numbered(generation))
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() {
        let message =
            format!("{address} is not a loopback address: every process that reaches the proxy has your network");
        return Err(Failure::usage("listen", message, "use 127.0.0.1:PORT"));
    }
    TcpListener::bind(address).map_err(|error| {
        let message = format!("no process can listen on {address}: {error}");
        Failure::refused("listen", message, "choose another port, or 0 for a free one")
    })
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::refused("internal", format!("{what}: {error}"), "this should not happen; run nexus doctor")
}

fn print_note(text: &str) {
    // An error is ignored: standard error is the only place for the line.
    io::stderr().write_all(format!("nexus: {}\n", one_line(text)).as_bytes()).ok();
}
