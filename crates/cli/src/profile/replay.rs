//! `nexus policy replay`: runs that were recorded, under documents that are not in force yet.
//!
//! ```text
//!  receipts/RUN.json (signed) ─┐
//!  net/RUN.jsonl (its hash) ───┴▶ PastRun ─▶ nexus_policy: the same questions under both sets of documents ─▶ lines
//! ```

use crate::failure::{Failure, one_line};
use nexus_caller::utc::utc;
use nexus_fleet::args::ServerArgs;
use nexus_fleet::client::past_runs::past_runs;
use nexus_history::{command_line, local};
use nexus_model::RunId;
use nexus_model::plan::Access;
use nexus_model::spec::SandboxProfile;
use nexus_policy::document::{
    BudgetKind, Destination, Difference, Effective, Outcome, PastAttempt, PastChanges, PastRun, PathPattern,
    differences,
};
use nexus_policy::net::Port;
use nexus_policy::profile::{LimitKind, NetMode};
use nexus_receipt::verify::check_net_record;
use nexus_receipt::{Keyring, Receipt, Store, open};
use nexus_runner::net::record;
use nexus_runner::state::directory::StateDir;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit code of a replay with differences, or with runs that could not be replayed.
const DIFFERS: u8 = 1;
/// Most bytes of a record that are read.
const MAX_RECORD: u64 = 256 << 20;

/// One run, or one directive, with what would be decided in another way.
struct Replayed {
    /// Name of the id in JSON.
    kind: &'static str,
    /// Id of the run or of the directive.
    id: String,
    started_ms: u64,
    command: String,
    found: Vec<Difference>,
    /// Parts that the record does not have, so that nothing was decided about them.
    missing: Vec<&'static str>,
}

/// A run that could not be replayed, and why.
struct Skipped {
    id: String,
    why: String,
}

/// Choice of runs, and the form of the answer.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Time that the oldest one lies back, in milliseconds.
    pub since: Option<u64>,
    /// Largest number of them, the latest ones.
    pub number: usize,
    pub as_json: bool,
}

impl Wanted {
    /// Returns the time from which on runs are replayed, in milliseconds since 1970.
    pub fn from(&self) -> Option<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.since.map(|back| now.saturating_sub(back))
    }
}

/// Replays runs and returns the answer with its exit code.
pub fn of_runs(before: &Effective, after: &Effective, wanted: Wanted) -> Result<(String, u8), Failure> {
    let (store, known) = local()?;
    let (places, ring) = (crate::host::state_dir()?, known.ring());
    let failed = |error: std::io::Error| {
        let message = format!("the receipts cannot be read: {error}");
        Failure::refused("receipts", message, "look at the state directory's disk and permissions")
    };
    let from = wanted.from();
    let (mut replayed, mut skipped) = (Vec::new(), Vec::new());
    for run in store.runs().map_err(failed)? {
        if replayed.len() + skipped.len() >= wanted.number {
            break;
        }
        let receipt = match receipt_of(&store, run, &ring) {
            // Pruned since.
            Ok(None) => continue,
            Ok(Some(receipt)) => receipt,
            Err(why) => {
                skipped.push(Skipped { id: run.to_string(), why });
                continue;
            }
        };
        // Ids are ordered by the time at which runs began.
        if from.is_some_and(|from| receipt.timing.started_unix_ms < from) {
            break;
        }
        let mut missing = Vec::new();
        let past = past_run(&receipt, &places, &mut missing);
        replayed.push(Replayed {
            kind: "run_id",
            id: run.to_string(),
            started_ms: receipt.timing.started_unix_ms,
            command: command_line(&receipt.request.argv.items),
            found: differences(before, after, &past),
            missing,
        });
    }
    Ok(answer(&replayed, &skipped, wanted))
}

/// Replays the directives of a control plane and returns the answer with its exit code. The documents in force are those of this machine.
pub fn of_directives(
    access: &ServerArgs,
    before: &Effective,
    after: &Effective,
    wanted: Wanted,
) -> Result<(String, u8), Failure> {
    let (mut replayed, mut skipped) = (Vec::new(), Vec::new());
    for one in past_runs(access, wanted.from(), wanted.number)? {
        match one.run {
            Ok(past) => replayed.push(Replayed {
                kind: "directive_id",
                id: one.id,
                started_ms: one.created_ms,
                command: one.command,
                found: differences(before, after, &past),
                missing: Vec::new(),
            }),
            Err(why) => skipped.push(Skipped { id: one.id, why }),
        }
    }
    Ok(answer(&replayed, &skipped, wanted))
}

/// Returns the answer and its exit code.
fn answer(replayed: &[Replayed], skipped: &[Skipped], wanted: Wanted) -> (String, u8) {
    let differs = !skipped.is_empty() || replayed.iter().any(|one| !one.found.is_empty());
    let text = if wanted.as_json { as_document(replayed, skipped) } else { as_text(replayed, skipped) };
    (text, if differs { DIFFERS } else { 0 })
}

fn receipt_of(store: &Store, run: RunId, ring: &Keyring) -> Result<Option<Receipt>, String> {
    let file = match store.read(run) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("its receipt cannot be read: {error}")),
    };
    match open(&file, ring) {
        Ok(opened) if opened.receipt.run_id == run => Ok(Some(opened.receipt)),
        Ok(opened) => Err(format!("its receipt is that of the run {}", opened.receipt.run_id)),
        Err(error) => Err(format!("its receipt is not valid: {error}")),
    }
}

fn past_run(receipt: &Receipt, places: &StateDir, missing: &mut Vec<&'static str>) -> PastRun {
    let request = &receipt.request;
    let whole = |omitted: usize, what: &'static str, missing: &mut Vec<&'static str>| {
        if omitted > 0 {
            missing.push(what);
        }
        omitted == 0
    };
    let words = request.argv.items.iter().map(|word| word.as_path().display().to_string());
    let words = whole(request.argv.omitted, "the command", missing).then(|| words.collect());
    let changes = match request.changes.as_str() {
        "commit" | "direct" | "live" => Some(PastChanges::Come),
        "review" | "ask" => Some(PastChanges::Wait),
        "discard" => Some(PastChanges::Go),
        _ => None,
    };
    let mut paths = Vec::new();
    whole(request.binds.omitted, "some of the paths", missing);
    for bind in &request.binds.items {
        let path = bind.source.as_path();
        // A path that is gone since was most likely a directory: that is the wider question.
        let with_below = std::fs::metadata(path).map_or(true, |found| found.is_dir());
        match PathPattern::of_host(path, with_below) {
            Some(pattern) => paths.push((pattern, bind.access != Access::ReadOnly)),
            None => missing.push("a path whose name no policy can hold"),
        }
    }
    for socket in &request.allowed_sockets {
        match PathPattern::of_host(socket.as_path(), false) {
            Some(pattern) => paths.push((pattern, true)),
            None => missing.push("a socket whose name no policy can hold"),
        }
    }
    let mode = request.network.as_ref().map(|network| network.mode.as_str());
    let mode = match mode {
        Some("unrestricted") => NetMode::Unrestricted,
        Some("allowlist") => NetMode::Allowlist,
        Some("none") => NetMode::None,
        _ => {
            missing.push("the mode of the network");
            NetMode::None
        }
    };
    let limits = &request.limits;
    let mut used = Vec::new();
    let mut attempts = Vec::new();
    if let Some(egress) = &receipt.egress {
        used.push((BudgetKind::Connections, egress.allowed));
        used.push((BudgetKind::EgressBytes, egress.bytes_in.saturating_add(egress.bytes_out)));
        let path = record::place(places, receipt.run_id);
        let is_empty = egress.record.is_some_and(|record| record.bytes == 0);
        match check_net_record(receipt, &path) {
            _ if is_empty => {}
            Ok(None) => {
                attempts = attempts_of(&path).unwrap_or_else(|_| {
                    missing.push("the record of the network");
                    Vec::new()
                });
            }
            Ok(Some(_)) => missing.push("the record of the network, which is not the one of the receipt"),
            Err(_) => missing.push("the record of the network"),
        }
    }
    PastRun {
        sandbox: SandboxProfile::Untrusted,
        words,
        changes,
        mode,
        attempts,
        paths,
        limits: vec![
            (LimitKind::Memory, limits.memory_bytes),
            (LimitKind::Cpus, limits.cpu_millis.map(u64::from)),
            (LimitKind::Pids, Some(u64::from(limits.pids))),
            (LimitKind::Disk, limits.disk_bytes),
            (LimitKind::Timeout, request.timeout_ms),
        ],
        used,
        secrets: request
            .env_secrets
            .iter()
            .map(|name| name.as_path().display().to_string())
            .chain(request.secrets.iter().map(|secret| secret.name.clone()))
            .collect(),
    }
}

/// The fields of a record's line that a policy is about.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    host: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    resolved: Option<Vec<IpAddr>>,
}

/// Reads each destination that the command tried, once.
fn attempts_of(path: &Path) -> std::io::Result<Vec<PastAttempt>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in BufReader::new(File::open(path)?.take(MAX_RECORD)).lines() {
        // A line that a full disk cut off stands for nothing that was connected.
        let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
        if !matches!(line.event.as_str(), "allow" | "deny" | "request") || line.port == 0 {
            continue;
        }
        let shown = if line.host.contains(':') { format!("[{}]", line.host) } else { line.host.clone() };
        let addresses = line.resolved.unwrap_or(line.addresses);
        let (Ok(to), Ok(port)) = (Destination::parse(&format!("{shown}:{}", line.port)), Port::new(line.port)) else {
            continue;
        };
        if seen.insert((line.host, line.port, addresses.clone())) {
            found.push(PastAttempt { to, port, addresses });
        }
    }
    Ok(found)
}

fn as_document(replayed: &[Replayed], skipped: &[Skipped]) -> String {
    let one = |one: &Replayed| {
        json!({
            one.kind: one.id, "started_unix_ms": one.started_ms, "command": one.command, "differences": one.found,
            "not_recorded": one.missing,
        })
    };
    let runs: Vec<_> =
        replayed.iter().filter(|one| !one.found.is_empty() || !one.missing.is_empty()).map(one).collect();
    let skipped: Vec<_> = skipped.iter().map(|one| json!({"id": one.id, "why": one.why})).collect();
    let differing = replayed.iter().filter(|one| !one.found.is_empty()).count();
    let document = json!({
        "schema": "nexus.policy-replay/1", "runs": replayed.len(), "differing": differing, "differences": runs,
        "not_replayed": skipped,
    });
    format!("{document}\n")
}

fn as_text(replayed: &[Replayed], skipped: &[Skipped]) -> String {
    let mut text = String::new();
    let (mut differing, mut refused, mut asked) = (0, 0, 0);
    for one in replayed {
        if one.found.is_empty() && one.missing.is_empty() {
            continue;
        }
        let command: String = one.command.chars().take(120).collect();
        let _written = writeln!(text, "{}", one_line(&format!("{}  {}  {command}", utc(one.started_ms), one.id)));
        for difference in &one.found {
            let why = difference.after.why.as_ref().or(difference.before.why.as_ref());
            let question: String = difference.question.chars().take(200).collect();
            let (was, is) = (difference.before.outcome.word(), difference.after.outcome.word());
            let why = why.map(|why| format!("  ({why})")).unwrap_or_default();
            let _written = writeln!(text, "    {}", one_line(&format!("{was:<7} → {is:<7}  {question}{why}")));
        }
        for what in &one.missing {
            let _written = writeln!(text, "    not recorded: {what}");
        }
        differing += usize::from(!one.found.is_empty());
        let becomes = |outcome| one.found.iter().any(|difference| difference.after.outcome == outcome);
        refused += usize::from(becomes(Outcome::Refused));
        asked += usize::from(becomes(Outcome::Asked));
    }
    for one in skipped {
        let _written = writeln!(text, "{}", one_line(&format!("{}  not replayed: {}", one.id, one.why)));
    }
    let _written = writeln!(
        text,
        "{differing} of {} runs would be decided in another way: something is refused in {refused} and asked in {asked}",
        replayed.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_destination_of_a_record_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let lines = [
            r#"{"v":1,"event":"policy","host":"","port":0}"#,
            r#"{"v":1,"event":"allow","host":"a.test","port":443,"addresses":["192.0.2.1"]}"#,
            r#"{"v":1,"event":"close","host":"a.test","port":443,"addresses":["192.0.2.1"]}"#,
            r#"{"v":1,"event":"allow","host":"a.test","port":443,"addresses":["192.0.2.1"]}"#,
            r#"{"v":1,"event":"deny","host":"b.test","port":80,"resolved":["10.0.0.1"],"addresses":[]}"#,
            r#"{"v":1,"event":"dns","host":"c.test","port":0}"#,
            r#"{"v":1,"event":"deny","host":"2001:db8::1","port":22}"#,
            r#"{"v":1,"event":"allow","host":"cut"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = attempts_of(&path).unwrap();
        let shown: Vec<String> = found.iter().map(|one| one.to.to_string()).collect();
        assert_eq!(shown, ["a.test:443", "b.test:80", "[2001:db8::1]:22"]);
        assert_eq!(found[1].addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
