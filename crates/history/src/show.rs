//! `nexus receipt show`: prints the content of a valid receipt as text.

use crate::args::ShowArgs;
use crate::failure::{Failure, one_line};
use crate::utc::utc;
use crate::verify::{failure, keyring, read};
use nexus_model::ByteText;
use nexus_model::units::format_size;
use nexus_receipt::{Changes, Egress, Exit, Receipt, Source, StreamDigest};

/// Returns the text of a valid receipt, or its signed JSON.
pub fn command(args: &ShowArgs) -> Result<String, Failure> {
    let ring = keyring(&args.key, &[])?;
    let source = Source::of(&args.receipt);
    let opened = source.open(&read(&source)?, &ring).map_err(|invalid| failure(&invalid))?;
    if args.json {
        // The signed bytes themselves.
        return Ok(String::from_utf8_lossy(&opened.payload).into_owned() + "\n");
    }
    let mut rows = rows(&opened.receipt);
    rows.push(("signature", format!("valid, by the key {}", opened.receipt.key_id)));
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<12}{}\n", one_line(value))).collect();
    Ok(lines.concat())
}

fn rows(receipt: &Receipt) -> Vec<(&'static str, String)> {
    let request = &receipt.request;
    let env: Vec<_> = request.env.items.iter().map(|entry| entry.name.as_os_str().display().to_string()).collect();
    let held = receipt.proof.iter().filter(|item| item.holds()).count();
    let chain = match &receipt.chain {
        Some(place) => format!("number {} of the chain of {}", place.seq, place.chain),
        None => "no place".to_owned(),
    };
    let more = |omitted: usize| if omitted == 0 { String::new() } else { format!(" … and {omitted} more") };
    let mut rows = vec![
        ("run", receipt.run_id.to_string()),
        ("command", command_line(&request.argv.items) + &more(request.argv.omitted)),
        ("workspace", request.workspace.as_path().display().to_string()),
        ("directory", request.cwd.as_path().display().to_string()),
        ("environment", env.join(" ") + &more(request.env.omitted)),
        ("started", format!("{} UTC", utc(receipt.timing.started_unix_ms))),
        ("duration", seconds(receipt.timing.duration_us)),
        ("ended", ended(&receipt.exit)),
        ("stdout", stream(&receipt.output.stdout)),
        ("stderr", stream(&receipt.output.stderr)),
        ("changes", format!("{}, {}", changes_in_short(&receipt.changes), receipt.changes.hash)),
        ("sandbox", format!("{} by {} {}", request.sandbox, receipt.driver.name, receipt.driver.version)),
        ("guarantees", receipt.guarantees.join(" ")),
        ("proof", format!("{held} of {} checks as expected", receipt.proof.len())),
        ("nexus", format!("{} on Linux {}, called by {}", receipt.nexus.version, receipt.kernel, receipt.identity)),
        ("request", receipt.spec_hash.to_string()),
        ("plan", receipt.plan_hash.to_string()),
        ("chain", chain),
    ];
    if let Some(checkpoint) = &receipt.changes.checkpoint {
        let at = rows.iter().position(|(name, _)| *name == "sandbox").unwrap_or(rows.len());
        rows.insert(at, ("checkpoint", format!("{checkpoint}, the workspace before this {} run", request.changes)));
    }
    let lists = [
        ("secrets", &request.env_secrets, "in the environment"),
        ("opened", &request.opened_binds, "by the operator"),
        ("sockets", &request.allowed_sockets, "of the host"),
    ];
    let devices = request.binds.items.iter().filter(|bind| bind.access.is_device());
    let devices: Vec<_> = devices.map(|bind| bind.target.as_path().display().to_string()).collect();
    if !devices.is_empty() {
        rows.push(("devices", format!("{} of the host", devices.join(" "))));
    }
    for (what, names, end) in lists.into_iter().filter(|(_, names, _)| !names.is_empty()) {
        let names: Vec<_> = names.iter().map(|name| name.as_os_str().display().to_string()).collect();
        rows.push((what, format!("{} {end}", names.join(" "))));
    }
    for secret in &request.secrets {
        rows.push(("secret", format!("{} from {}, as a file inside", secret.name, secret.provider)));
    }
    for auto in &request.auto_binds {
        rows.push(("shown", format!("{} ({})", auto.path.as_path().display(), auto.reason)));
    }
    if let Some(image) = &request.image {
        rows.push(("image", image.clone()));
    }
    if request.allow_ptrace {
        rows.push(("tracing", "processes inside could trace each other".to_owned()));
    }
    for profile in &receipt.profiles {
        rows.push(("profile", format!("{} ({}), {}", profile.name, profile.source.as_path().display(), profile.hash)));
    }
    if let Some(network) = &request.network {
        let said = std::iter::once(network.mode.clone()).chain(network.rules.items.iter().cloned());
        let said = said.collect::<Vec<_>>().join(", ");
        let upstream = if network.upstream { ", by an upstream proxy" } else { "" };
        let ask = if network.ask { ", others by question" } else { "" };
        let policy = network.policy.map(|hash| format!(", {hash}")).unwrap_or_default();
        let more = more(network.rules.omitted);
        rows.push(("may reach", format!("{said}{more}{upstream}{ask}{policy}")));
    }
    if let Some(egress) = &receipt.egress {
        let record = egress.record.map(|record| format!("; record {}", stream(&record))).unwrap_or_default();
        let Egress { allowed, denied, hash, .. } = egress;
        rows.push(("network", format!("{allowed} allowed, {denied} denied, {hash}{record}")));
        for one in egress.approved.iter().flat_map(|approved| &approved.items) {
            let often = one.connections.map_or_else(|| "for the run".to_owned(), |count| format!("{count} times"));
            let approval = one.approval.map(|id| format!(" (approval {id})")).unwrap_or_default();
            rows.push(("approved", format!("{} {often}, by {}{approval}", one.to, one.by)));
        }
        let omitted = egress.approved.as_ref().map_or(0, |approved| approved.omitted);
        if omitted > 0 {
            rows.push(("approved", format!("{omitted} more that the receipt does not list")));
        }
    }
    rows
}

/// Renders the words of a command, quoted where a shell would take them apart.
pub fn command_line(words: &[ByteText]) -> String {
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%".contains(c));
    let quoted = words.iter().map(|word| {
        let text = word.as_os_str().display().to_string();
        if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Summarizes changes in one line.
pub fn changes_in_short(changes: &Changes) -> String {
    let mut parts = vec![changes.state.clone()];
    let counts = [
        (changes.added, "added"),
        (changes.modified, "modified"),
        (changes.deleted, "deleted"),
        (changes.parked, "waiting"),
        (changes.conflicts, "in conflict"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, what)| format!("{count} {what}")));
    parts.join(", ")
}

fn ended(exit: &Exit) -> String {
    match exit.signal {
        Some(signal) => format!("exit {} ({}, signal {signal})", exit.code, exit.reason),
        None => format!("exit {} ({})", exit.code, exit.reason),
    }
}

fn stream(stream: &StreamDigest) -> String {
    format!("{}, {}", format_size(stream.bytes), stream.hash)
}

fn seconds(micros: u64) -> String {
    format!("{:.3} s", micros as f64 / 1e6)
}
