//! `nexus net log`: the record of a run's network.

use crate::args::NetLogArgs;
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::terminal::out;
use nexus_model::RunId;
use nexus_policy::net::Program;
use nexus_runner::net::record;
use nexus_runner::state::directory::StateDir;
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// Interval between two readings of a record that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The fields of a record's line that are shown to the user.
#[derive(Deserialize)]
struct Line {
    time_ms: u64,
    event: String,
    #[serde(default)]
    way: Option<String>,
    #[serde(default)]
    program: Option<String>,
    host: String,
    port: u16,
    code: String,
    #[serde(default)]
    explanation: Option<String>,
    /// The rule that decided.
    #[serde(default)]
    rule: Option<Rule>,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    asked: Vec<String>,
    #[serde(default)]
    dialed: Option<String>,
    #[serde(default)]
    bytes_up: Option<u64>,
    #[serde(default)]
    bytes_down: Option<u64>,
    #[serde(default)]
    duration_ms: Option<u64>,
    #[serde(default)]
    repeated: Option<u64>,
}

/// The rule of a decision, with its source.
#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    source: RuleSource,
}

/// The source of a rule. For an answer, it names the user who answered.
#[derive(Deserialize, Default)]
struct RuleSource {
    #[serde(default)]
    origin: String,
    #[serde(default)]
    file: Option<String>,
}

/// Prints the record of a run's network, and goes on while the run writes it if that is asked for.
pub fn log(args: &NetLogArgs) -> Result<u8, Failure> {
    let places = crate::host::state_dir()?;
    let run = match args.run {
        Some(run) => run,
        None => latest(&places)?,
    };
    let path = record::place(&places, run);
    let file = File::open(&path).map_err(|error| {
        let message = format!("the run {run} has no record of its network: {error}");
        Failure::refused(
            "net_log",
            message,
            "a run without a network has none, nor one that tried nothing; nexus log lists runs",
        )
    })?;
    let mut reader = BufReader::new(file);
    let mut text = String::new();
    loop {
        // Asked before the reading: what a run writes before its end is seen after it.
        let goes_on = args.follow && record::is_written(reader.get_ref()).map_err(|error| unreadable(&path, &error))?;
        while reader.read_line(&mut text).map_err(|error| unreadable(&path, &error))? > 0 {
            if !text.ends_with('\n') && goes_on {
                break;
            }
            let shown = if args.json { text.trim_end_matches('\n').to_owned() } else { render(&text) };
            text.clear();
            out::write_unless_closed(&mut std::io::stdout(), format!("{shown}\n").as_bytes())
                .map_err(|error| failures::not_written("the record", &error))?;
        }
        if !goes_on {
            return Ok(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn latest(places: &StateDir) -> Result<RunId, Failure> {
    let runs = record::runs(places).map_err(|error| unreadable(&record::directory(places), &error))?;
    runs.first().copied().ok_or_else(|| {
        Failure::refused("net_log", "no run has used a network yet", "nexus run --allow HOST -- CMD makes one")
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{} cannot be read: {error}", path.display());
    Failure::refused("net_log", message, "look at the state directory's permissions")
}

/// Renders one line for the user. A line that was cut off by a full disk is shown as it is.
fn render(text: &str) -> String {
    let Ok(line) = serde_json::from_str::<Line>(text) else { return one_line(text.trim_end_matches('\n')) };
    let target = match (line.host.as_str(), line.port) {
        ("", _) => "-".to_owned(),
        (host, 0) => host.to_owned(),
        (host, port) if host.contains(':') => format!("[{host}]:{port}"),
        (host, port) => format!("{host}:{port}"),
    };
    let time = crate::utc::utc(line.time_ms);
    let mut parts = vec![time, format!("{:7}", line.event), target];
    parts.extend(line.way.map(|way| format!("by {way}")));
    parts.extend(line.program.map(|program| format!("from {}", Program(program))));
    if line.code != "OK" {
        parts.push(line.code);
    }
    if !line.addresses.is_empty() {
        parts.push(format!("→ {}", line.addresses.join(" ")));
    }
    if !line.asked.is_empty() {
        parts.push(format!("naming {}", line.asked.join(" ")));
    }
    parts.extend(line.dialed.map(|address| format!("at {address}")));
    if let (Some(up), Some(down)) = (line.bytes_up, line.bytes_down) {
        parts.push(format!("{up} B out, {down} B in"));
    }
    parts.extend(line.duration_ms.map(|ms| format!("{ms} ms")));
    parts.extend(line.repeated.map(|times| format!("{times} times")));
    let by = line.rule.filter(|rule| line.event == "allow" && rule.source.origin == "approval");
    parts.extend(by.and_then(|rule| rule.source.file).map(|by| format!("approved by {by}")));
    parts.extend(line.explanation.map(|why| format!("({why})")));
    one_line(&parts.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_shows_the_other_hosts_that_were_asked_for() {
        let line = |more: &str| {
            let text = r#"{"v":1,"time_ms":0,"event":"close","id":1,"host":"a.test","port":443,"code":"OK""#;
            render(&format!("{text}{more}}}\n"))
        };
        assert!(line(r#","asked":["b.test","c.test"]"#).ends_with("a.test:443  naming b.test c.test"));
        assert!(line("").ends_with("a.test:443"), "a line of a version before");
    }
}
