//! P1, P12, P13: whole programs started cold, Nexus and every peer in turn, as root and as an ordinary user; Nexus also with
//! a warm launcher.

use crate::failure::Failure;
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::runner::{Runner, State};
use crate::stats::{mib, ms};
use crate::tools::{self, NO_BWRAP, Tool, argv};
use crate::{announce, failed};

const WARM_UP: usize = 5;
const TRUE: &[&str] = &["/bin/true"];
const PYTHON: &[&str] = &["/usr/bin/python3", "-c", "print(1)"];
/// Bound of `nexus run`, as a share of bubblewrap's time.
const P1_BOUND: Bound = Bound::AtMost(0.9);
/// The same with a warm launcher.
const WARM_BOUND: Bound = Bound::AtMost(0.65);
const WARM: &str = "nexus run, warm launcher";

/// P12 and its bounds.
const VERSION_BOUND: Bound = Bound::AtMost(3.0);
const SIZE_BOUND: Bound = Bound::AtMost(25.0);
/// Fresh sandbox to plain; the launcher's figures are held against the bounds of P13 in `launches`.
const PYTHON_COMMAND: &str = "python3 -c 'print(1)'";

/// Measures P1, P12 and P13.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    if options.wants(P::Cold) {
        let title = format!("One cold `/bin/true`, {} rounds in turn, medians", options.rounds);
        let all = in_turn(options.rounds, place, report, TRUE)?;
        table(report, &title, &all);
        for (who, tools) in &all {
            evaluate_cold(report, who, tools);
        }
    }
    if options.wants(P::Version) {
        version(options, place, report)?;
    }
    if options.wants(P::Python) {
        let rounds = (options.rounds / 2).max(10);
        let title = format!("`{PYTHON_COMMAND}`, {rounds} rounds in turn, medians");
        let all = in_turn(rounds, place, report, PYTHON)?;
        table(report, &title, &all);
    }
    Ok(())
}

/// Each tool as each identity, one after the other, `rounds` times.
fn in_turn(
    rounds: usize,
    place: &mut Place,
    report: &mut Report,
    command: &[&str],
) -> Result<Vec<(&'static str, Vec<Tool>)>, Failure> {
    announce(&format!("{} beside every peer", command.join(" ")));
    let mut all = Vec::new();
    for runner in &mut place.runners {
        all.push((runner.who, line_up(&place.nexus, runner, report, &argv(command))?));
    }
    for round in 0..rounds + WARM_UP {
        for (runner, (_, tools)) in place.runners.iter_mut().zip(&mut all) {
            for tool in tools {
                let us = runner.time_in(&tool.argv, tool.state)?;
                if round >= WARM_UP {
                    tool.sample.push(us);
                }
            }
        }
    }
    for runner in &mut place.runners {
        launcher(&place.nexus, runner, &["--stop"])?;
    }
    Ok(all)
}

/// Starts or ends the warm launcher of an identity, as a command of it: a launcher serves processes like the one that started it.
fn launcher(nexus: &str, runner: &mut Runner, words: &[&str]) -> Result<(), Failure> {
    let argv: Vec<String> = argv(&[nexus, "warm"]).into_iter().chain(argv(words)).collect();
    let done = runner.explain_in(&argv, State::Warm)?;
    done.map_err(|reason| failed(&format!("`{}` as {}: {reason}", argv.join(" "), runner.who)))
}

/// The plain command first, then Nexus, then the peers.
fn line_up(nexus: &str, runner: &mut Runner, report: &mut Report, command: &[String]) -> Result<Vec<Tool>, Failure> {
    let with = |words: &[&str]| argv(words).into_iter().chain(command.iter().cloned()).collect::<Vec<_>>();
    let mut tools = vec![
        Tool::new("plain", command.to_vec()),
        Tool::new("nexus run", with(&[nexus, "run", "--"])),
        Tool::new(WARM, with(&[nexus, "run", "--"])).warm(),
        Tool::new("nexus run --direct", with(&[nexus, "run", "--direct", "--"])),
    ];
    launcher(nexus, runner, &["--idle", "1h"])?;
    for tool in &tools {
        if let Err(reason) = runner.explain_in(&tool.argv, tool.state)? {
            return Err(failed(&format!("`{}` as {}: {reason}", tool.argv.join(" "), runner.who)));
        }
    }
    tools.extend(tools::peers(runner, command, report)?);
    Ok(tools)
}

fn median(tools: &[Tool], name: &str) -> Option<f64> {
    tools.iter().find(|tool| tool.name == name)?.sample.median()
}

fn table(report: &mut Report, title: &str, all: &[(&'static str, Vec<Tool>)]) {
    let mut rows = Vec::new();
    for (who, tools) in all {
        let (plain, bwrap) = (median(tools, "plain"), median(tools, "bwrap"));
        for tool in tools {
            let Some(us) = tool.sample.median() else { continue };
            let ratio = |to: Option<f64>| to.map_or("-".to_owned(), |to| format!("{:.2}", us / to));
            let p90 = tool.sample.percentile(90).map_or_else(String::new, ms);
            rows.push(vec![(*who).to_owned(), tool.name.clone(), ms(us), p90, ratio(plain), ratio(bwrap)]);
        }
    }
    report.table(title, &["as", "", "median", "p90", "x plain", "x bwrap"], rows);
}

fn evaluate_cold(report: &mut Report, who: &str, tools: &[Tool]) {
    let cases = [
        ("nexus run", "layered", P1_BOUND),
        (WARM, "layered, with a warm launcher", WARM_BOUND),
        ("nexus run --direct", "direct", P1_BOUND),
    ];
    for (name, mode, bound) in cases {
        let what = format!("nexus run -- /bin/true, {mode}, as {who}");
        let found = match (median(tools, name), median(tools, "bwrap")) {
            (Some(us), Some(bwrap)) => Ok((ms(us), us / bwrap)),
            _ => Err(NO_BWRAP.to_owned()),
        };
        report.hold(P::Cold, &what, found, "x bwrap", bound);
    }
}

fn version(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("nexus --version");
    let Place { nexus, runners, .. } = place;
    let Some(runner) = runners.first_mut() else { return Ok(()) };
    let mut tools = [Tool::new("plain", argv(TRUE)), Tool::new("nexus --version", argv(&[nexus, "--version"]))];
    for round in 0..options.rounds * 3 + WARM_UP {
        for tool in &mut tools {
            let us = runner.time(&tool.argv)?;
            if round >= WARM_UP {
                tool.sample.push(us);
            }
        }
    }
    if let (Some(plain), Some(us)) = (tools[0].sample.median(), tools[1].sample.median()) {
        report.evaluate(P::Version, "nexus --version", ms(us), us / plain, "x posix_spawn", VERSION_BOUND);
    }
    let size = std::fs::metadata(&*nexus).map_err(|error| failed(&format!("{nexus}: {error}")))?.len() as f64;
    report.evaluate(P::Version, "size of the stripped program", mib(size), size / 1e6, "MB", SIZE_BOUND);
    Ok(())
}
