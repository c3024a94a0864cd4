//! P8: the egress measured from inside a sandbox, beside no proxy, the egress on the host, and other proxies, in turn.
//!
//! ```text
//!  sandbox: client ─▶ listeners of the sandbox ─▶ egress ──┐
//!     host: client ─▶ nexus net proxy, tinyproxy, squid ───┼─▶ server in a network namespace of its own
//!     host: client ────────────────────────────────────────┘
//! ```
//! Client and server are the example `egress_bench` of the egress crate, the same in each way.

use crate::failure::Failure;
use crate::far_server::{FIRST, FarServer, RANGE};
use crate::options::P;
use crate::place::Place;
use crate::proxies::{PEERS, Proxy};
use crate::report::{Bound, Report};
use crate::runner::Runner;
use crate::stats::Sample;
use crate::{announce, failed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 5;
const SECONDS: &str = "1";
const NAMES: [&str; 4] = ["new_connect_per_s", "p99_ms", "keep_alive_per_s", "bulk_gb_per_s"];

/// One way to the server.
struct Setup {
    name: String,
    how: How,
    /// In the order of [`NAMES`].
    figures: [Sample; 4],
}

enum How {
    Direct,
    /// From inside a sandbox of the runner with this number.
    InSandbox(usize),
    Through(Proxy),
}

impl Setup {
    fn new(name: impl Into<String>, how: How) -> Self {
        Self { name: name.into(), how, figures: Default::default() }
    }

    fn figure(&self, name: &str) -> Option<f64> {
        NAMES.iter().zip(&self.figures).find(|(known, _)| **known == name)?.1.median()
    }
}

/// All ways, one after the other, five times.
pub fn measure(place: &Place, report: &mut Report) -> Result<(), Failure> {
    announce("the egress from inside, beside other proxies");
    // The last runner is the ordinary user, if there is one: a proxy needs no more.
    let Some(host) = place.runners.last() else { return Err(failed("there is no identity to measure as")) };
    if !place.runners.iter().any(|runner| runner.uid.is_none()) {
        report.note("P8 needs root: its server lives in a network namespace of its own");
        return Ok(());
    }
    let server = FarServer::start(&place.egress_bench)?;
    let mut ways = vec![Setup::new("direct", How::Direct)];
    for (number, runner) in place.runners.iter().enumerate() {
        ways.push(Setup::new(format!("nexus run, inside, as {}", runner.who), How::InSandbox(number)));
    }
    let proxy = Proxy::nexus(host, &place.nexus, server.port)?;
    ways.push(Setup::new("nexus net proxy", How::Through(proxy)));
    for peer in PEERS {
        match peer.start(host, server.port)? {
            Some(proxy) => ways.push(Setup::new(peer.name, How::Through(proxy))),
            None => report.note(format!("{} is not installed; `{}` brings it", peer.name, peer.install)),
        }
    }
    let clients: Vec<PathBuf> =
        place.runners.iter().map(|runner| lend(&place.egress_bench, runner)).collect::<Result<_, _>>()?;
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let reported = load(place, host, &clients, way, server.port)?;
            for (name, sample) in NAMES.iter().zip(&mut way.figures) {
                let figure = reported[name].as_f64().ok_or_else(|| failed(&format!("{}: no {name}", way.name)))?;
                sample.push(figure);
            }
        }
    }
    for client in &clients {
        std::fs::remove_file(client).map_err(|error| failed(&format!("{}: {error}", client.display())))?;
    }
    table(report, &ways);
    for way in ways.iter().filter(|way| matches!(way.how, How::InSandbox(_))) {
        evaluate(report, way, &ways);
    }
    Ok(())
}

/// The client where a sandbox sees it: in the workspace.
fn lend(client: &Path, runner: &Runner) -> Result<PathBuf, Failure> {
    let to = runner.project.join("egress_bench");
    std::fs::copy(client, &to).map_err(|error| failed(&format!("{}: {error}", to.display())))?;
    Ok(to)
}

fn load(place: &Place, host: &Runner, clients: &[PathBuf], way: &Setup, server: u16) -> Result<Value, Failure> {
    let port = server.to_string();
    let seconds = format!("NEXUS_BENCH_SECONDS={SECONDS}");
    let mut command = match &way.how {
        How::Direct | How::Through(_) => {
            let mut command = host.command(&place.egress_bench);
            let proxy = if let How::Through(proxy) = &way.how { proxy.address.to_string() } else { "direct".into() };
            command.args(["load", &port, &proxy]).env("NEXUS_BENCH_SECONDS", SECONDS).env("NEXUS_BENCH_SERVER", FIRST);
            command
        }
        How::InSandbox(number) => {
            let (Some(runner), Some(client)) = (place.runners.get(*number), clients.get(*number)) else {
                return Err(failed("no such runner"));
            };
            let mut command = runner.command(place.nexus.as_ref());
            let first = format!("NEXUS_BENCH_SERVER={FIRST}");
            command.args(["run", "--env", &seconds, "--env", &first, "--net", "allowlist", "--allow-private"]);
            command.arg(format!("{RANGE}:{server}")).arg("--").arg(client).args(["load", &port, "env"]);
            command
        }
    };
    answer(&way.name, &mut command)
}

/// The one line of JSON.
fn answer(name: &str, command: &mut Command) -> Result<Value, Failure> {
    let reported = |error: &dyn std::fmt::Display| failed(&format!("{name}: {error}"));
    let output = command.stdin(Stdio::null()).output().map_err(|error| reported(&error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(reported(&format!("{}: {}", output.status, said.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).ok_or_else(|| reported(&"it printed no figures"))?;
    serde_json::from_str(line).map_err(|error| reported(&error))
}

fn table(report: &mut Report, ways: &[Setup]) {
    let rows = ways.iter().map(|way| {
        let cell = |name: &str, digits: usize| way.figure(name).map_or("-".into(), |it| format!("{it:.digits$}"));
        vec![
            way.name.clone(),
            cell(NAMES[0], 0),
            format!("{} ms", cell(NAMES[1], 2)),
            cell(NAMES[2], 0),
            format!("{} GB/s", cell(NAMES[3], 2)),
        ]
    });
    let title =
        format!("16 connections to a server in a network namespace of its own, {ROUNDS} rounds in turn, medians");
    report.table(&title, &["", "new CONNECT/s", "p99 of it", "requests/s, kept", "bulk"], rows.collect());
}

/// Comparisons: measure, figure, the figure to compare with, the bound.
const BOUNDS: &[(&str, &str, &str, &str, f64)] = &[
    ("new CONNECT", NAMES[0], "direct", "x direct", 0.38),
    ("new CONNECT", NAMES[0], "squid", "x squid", 1.6),
    ("kept", NAMES[2], "squid", "x squid", 1.0),
    ("bulk", NAMES[3], "squid", "x squid", 1.4),
];
const P99_MS: Bound = Bound::AtMost(2.5);

fn evaluate(report: &mut Report, way: &Setup, ways: &[Setup]) {
    for (what, name, other, unit, bound) in BOUNDS {
        let to = ways.iter().find(|way| way.name == *other);
        let found = match (way.figure(name), to.and_then(|to| to.figure(name))) {
            (Some(own), Some(to)) => {
                let figure = if *name == NAMES[3] { format!("{own:.2} GB/s") } else { format!("{own:.0}/s") };
                Ok((figure, own / to))
            }
            _ => Err(format!("{other} is not there to compare with")),
        };
        report.hold(P::Egress, &format!("{what}: {}", way.name), found, unit, Bound::AtLeast(*bound));
    }
    let found = way.figure(NAMES[1]).map(|ms| (format!("{ms:.2} ms"), ms)).ok_or("nothing was measured".to_owned());
    report.hold(P::Egress, &format!("p99 of new CONNECT: {}", way.name), found, "ms", P99_MS);
}
