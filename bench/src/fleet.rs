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

/// Directives and territories that the store holds beside those of the clients.
struct Case {
    stored: &'static str,
    territories: &'static str,
}

/// Few of both, many directives, many territories.
const CASES: [Case; 3] = [
    Case { stored: "1000", territories: "10" },
    Case { stored: "1000000", territories: "10" },
    Case { stored: "1000", territories: "1000" },
];
/// Directives of one block beside as many runs.
const BLOCK: usize = 10;

/// Measures P9: whole lives of directives, and the wait of a new one.
pub fn lives(options: &Options, place: &Place, report: &mut Report) -> Result<(), Failure> {
    announce("lives of directives");
    let rounds = options.rounds.div_ceil(20).clamp(1, 5);
    for (mode, database) in [("lives", "SQLite"), ("shared", "PostgreSQL")] {
        let (mut figures, mut of_pgbench) = ([const { None::<Sample> }; CASES.len()], Sample::default());
        let mut why = "no samples".to_owned();
        // In turn, so that a machine whose speed drifts slows all of them.
        for _ in 0..rounds {
            for (case, found) in CASES.iter().zip(&mut figures) {
                let words = [mode, SECONDS, CLIENTS, case.stored, case.territories];
                let answer = ask(Command::new(&place.fleet_bench).args(words))?;
                match number(&answer, "lives_per_second") {
                    Ok(figure) => found.get_or_insert_default().push(figure),
                    Err(reason) => why = reason,
                }
                of_pgbench.extend(number(&answer, "of_pgbench"));
            }
        }
        let medians = figures.map(|found| found.and_then(|found| found.median()).ok_or_else(|| why.clone()));
        hold_cases(report, database, &medians);
        if mode == "shared" {
            let share = of_pgbench.median().map(|value| (format!("{value:.3}"), value)).ok_or(why);
            let what = "PostgreSQL: lives over the transactions of pgbench -N on the same server";
            report.hold(P::Fleet, what, share, "x", Bound::AtLeast(0.08));
        }
    }
    let count = (options.rounds * 5).to_string();
    let answer = ask(Command::new(&place.fleet_bench).args(["idle", &count]))?;
    let p99 = number(&answer, "p99_us").map(|us| (ms(us), us / 1000.0));
    report.hold(P::Fleet, "p99 from the creation to the claim by a waiting poll", p99, "ms", Bound::AtMost(20.0));
    let count = options.rounds.clamp(10, 100).to_string();
    for stored in ["10000", "1000000"] {
        let answer = ask(Command::new(&place.fleet_bench).args(["page", &count, stored]))?;
        let p99 = number(&answer, "p99_us").map(|us| (ms(us), us / 1000.0));
        let what = format!("p99 of the console's page of 10,000 directives, {stored} stored");
        report.hold(P::Fleet, &what, p99, "ms", Bound::AtMost(200.0));
    }
    append(place, report)
}

/// Events of the audit chain that the life of a directive writes: created, started, ended.
const EVENTS_OF_A_LIFE: f64 = 3.0;
/// Time of a life at the least number of lives a second.
const LIFE_US: f64 = 1e6 / 1500.0;

/// Measures what the audit chain takes of a life.
fn append(place: &Place, report: &mut Report) -> Result<(), Failure> {
    let answer = ask(Command::new(&place.fleet_bench).args(["append", "100000"]))?;
    let share = number(&answer, "event_us").map(|us| {
        let percent = us * EVENTS_OF_A_LIFE / LIFE_US * 100.0;
        (format!("{us:.1} µs an event, {percent:.1}"), percent)
    });
    let what = "the audit chain's three events of a directive, of the time of a life at 1500 a second";
    report.hold(P::Fleet, what, share, "%", Bound::AtMost(5.0));
    Ok(())
}

/// Lives of one database: SQLite has a target of its own, and with either many directives and territories cost little.
fn hold_cases(report: &mut Report, database: &str, medians: &[Result<f64, String>]) {
    for (case, median) in CASES.iter().zip(medians) {
        let Case { stored, territories } = case;
        let what = format!(
            "lives of directives a second, {database}, {CLIENTS} clients, {stored} stored, {territories} more territories"
        );
        // PostgreSQL is measured against another program on the same server.
        let least = if database == "SQLite" { 1500.0 } else { 1.0 };
        let figure = median.clone().map(|value| (format!("{value:.0}"), value));
        report.hold(P::Fleet, &what, figure, "a second", Bound::AtLeast(least));
    }
    for (case, other) in CASES.iter().zip(medians).skip(1) {
        let first = medians.first().cloned().unwrap_or_else(|| Err("no samples".to_owned()));
        let ratio = first.and_then(|first| other.clone().map(|other| first / other));
        let what =
            format!("{database}: few of both over {} stored and {} more territories", case.stored, case.territories);
        report.hold(P::Fleet, &what, ratio.map(|ratio| (format!("{ratio:.2}"), ratio)), "x", Bound::AtMost(1.25));
    }
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
