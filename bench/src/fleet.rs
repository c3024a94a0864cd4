//! P9: lives of directives a second, and how soon a waiting daemon has a new one. P14: a directive beside a run.

use crate::failure::Failure;
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::runner::Runner;
use crate::stats::{Sample, ms};
use crate::tools::argv;
use crate::{announce, failed};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Seconds of one measure of lives.
const SECONDS: &str = "5";
/// Clients of the target.
const CLIENTS: &str = "32";
/// Ended directives in the store: few, and many.
const STORED: [&str; 2] = ["1000", "1000000"];
/// Directives of one block beside as many runs.
const BLOCK: usize = 10;

/// Measures P9: whole lives of directives, and the wait of a new one.
pub fn lives(options: &Options, place: &Place, report: &mut Report) -> Result<(), Failure> {
    announce("lives of directives");
    let mut found = Vec::new();
    for stored in STORED {
        let answer = ask(Command::new(&place.fleet_bench).args(["lives", SECONDS, CLIENTS, stored]))?;
        let per_second = number(&answer, "lives_per_second");
        found.push(per_second.clone().ok());
        let what = format!("lives of directives a second, {CLIENTS} clients, {stored} ended ones stored");
        let figure = per_second.map(|value| (format!("{value:.0}"), value));
        report.hold(P::Fleet, &what, figure, "a second", Bound::AtLeast(1500.0));
    }
    let flat = match found[..] {
        [Some(few), Some(many)] => Ok((format!("{:.2}", few / many), few / many)),
        _ => Err("a figure is missing".to_owned()),
    };
    report.hold(P::Fleet, "the same with few stored over many", flat, "x", Bound::AtMost(1.25));
    let count = (options.rounds * 5).to_string();
    let answer = ask(Command::new(&place.fleet_bench).args(["idle", &count]))?;
    let p99 = number(&answer, "p99_us").map(|us| (ms(us), us / 1000.0));
    report.hold(P::Fleet, "p99 from the creation to the claim by a waiting poll", p99, "ms", Bound::AtMost(20.0));
    Ok(())
}

/// Measures P14 as each identity.
pub fn beside_runs(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("a directive beside a run");
    let (nexus, bench) = (place.nexus.clone(), place.fleet_bench.clone());
    for runner in &mut place.runners {
        let mut fleet = Fleet::up(runner, &nexus)?;
        let command = argv(&[&nexus, "run", "--profile", "none", "--", "/bin/sh", "-c", "true"]);
        let (mut runs, mut directives, mut why) = (Sample::default(), Sample::default(), None);
        // In turn, block by block, so that a machine whose speed drifts slows both.
        for _ in 0..options.rounds.div_ceil(BLOCK) {
            for _ in 0..BLOCK {
                runs.push(runner.time(&command)?);
            }
            let answer = ask(runner
                .command(&bench)
                .args(["up", &fleet.url, &BLOCK.to_string(), "true"])
                .env("NEXUS_API_KEY", &fleet.key))?;
            match number(&answer, "median_us") {
                Ok(us) => directives.push(us),
                Err(reason) => why = Some(reason),
            }
        }
        fleet.stop();
        let found = match (why, runs.median(), directives.median()) {
            (None, Some(run), Some(directive)) => {
                Ok((format!("{} beside {}", ms(directive), ms(run)), (directive - run) / 1000.0))
            }
            (why, ..) => Err(why.unwrap_or_else(|| "no samples".to_owned())),
        };
        let what = format!("a directive through nexus up over nexus run, as {}", runner.who);
        report.hold(P::Directive, &what, found, "ms", Bound::AtMost(5.0));
    }
    Ok(())
}

/// A fleet of one machine.
struct Fleet {
    process: Child,
    url: String,
    key: String,
}

impl Fleet {
    fn up(runner: &Runner, nexus: &str) -> Result<Self, Failure> {
        let mut command = runner.command(nexus.as_ref());
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).arg(runner.directory.join("fleet"));
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&format!("nexus up: {error}")))?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or_else(|| failed("nexus up has no pipe"))?;
        BufReader::new(output).read_line(&mut line).map_err(|error| failed(&format!("nexus up: {error}")))?;
        let ready: Value =
            serde_json::from_str(&line).map_err(|error| failed(&format!("nexus up said {line:?}: {error}")))?;
        let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
        Ok(Self { process, url: text("api_url"), key: text("api_key") })
    }

    fn stop(&mut self) {
        // The directory of the benchmark goes with everything in it.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ask(command: &mut Command) -> Result<Result<Value, String>, Failure> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(&format!("fleet_bench: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(Err(said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| format!("fleet_bench said something else: {error}")))
}

fn number(answer: &Result<Value, String>, name: &str) -> Result<f64, String> {
    let answer = answer.as_ref().map_err(Clone::clone)?;
    answer[name].as_f64().ok_or_else(|| format!("fleet_bench printed no {name}"))
}
