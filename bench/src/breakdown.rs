//! `--breakdown`: counts the system calls of each process of a run and names the slowest. A profile, not a time.

use crate::failed;
use crate::failure::Failure;
use crate::place::Place;
use crate::report::Report;
use crate::tools::find;
use std::process::Stdio;

/// One `nexus run -- /bin/true` under strace.
pub fn measure(place: &Place, report: &mut Report) -> Result<(), Failure> {
    let (Some(strace), Some(runner)) = (find("strace"), place.runners.first()) else {
        report.note("no breakdown: strace is not installed; `apt-get install strace` brings it");
        return Ok(());
    };
    let log = runner.directory.join("strace");
    let mut command = runner.command(&strace);
    command.args(["-f", "-T", "-o"]).arg(&log).args([&place.nexus, "run", "--", "/bin/true"]);
    let status = command.stdin(Stdio::null()).status().map_err(|error| failed(&format!("strace: {error}")))?;
    if !status.success() {
        return Err(failed(&format!("strace ended with {status}")));
    }
    let text = std::fs::read_to_string(&log).map_err(|error| failed(&format!("{}: {error}", log.display())))?;
    let counts = calls_by_process(&text).into_iter().map(|(process, count)| vec![process, count.to_string()]);
    report.table("System calls of each process of a cold command", &["process", "calls"], counts.collect());
    let slow = slowest(&text).into_iter().map(|(seconds, call)| vec![format!("{:.0}", seconds * 1e6), call]);
    let title = "The slowest calls (under strace all are too slow; their order counts)";
    report.table(title, &["us", "call"], slow.collect());
    Ok(())
}

/// Processes in order of appearance.
fn calls_by_process(log: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for line in log.lines().filter(|line| !line.contains("resumed>") && !line.contains("+++") && !line.contains("---"))
    {
        let pid = line.split_ascii_whitespace().next().unwrap_or_default();
        match found.iter_mut().find(|(known, _)| known == pid) {
            Some((_, count)) => *count += 1,
            None => found.push((pid.to_owned(), 1)),
        }
    }
    found
}

/// The twelve calls that took longest, waiting apart.
fn slowest(log: &str) -> Vec<(f64, String)> {
    let waits = ["poll(", "wait", "read(", "recvmsg(", "resumed>", "clone("];
    let mut found: Vec<(f64, String)> = log
        .lines()
        .filter(|line| !waits.iter().any(|wait| line.contains(wait)))
        .filter_map(|line| {
            let (call, time) = line.rsplit_once(" <")?;
            let seconds = time.strip_suffix('>')?.parse().ok()?;
            Some((seconds, call.chars().take(100).collect()))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(12);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
7 openat(1) = 3 <0.000100>
8 fsconfig(4) = 0 <0.002000>
8 poll([]) = 1 <1.000000>
8 <... poll resumed>) = 1 <1.5>
7 +++ exited with 0 +++
";

    #[test]
    fn calls_are_counted_by_process() {
        assert_eq!(calls_by_process(LOG), [("7".to_owned(), 1), ("8".to_owned(), 2)]);
    }

    #[test]
    fn the_slowest_call_comes_first_and_waiting_does_not_count() {
        let found = slowest(LOG);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (0.002, "8 fsconfig(4) = 0".to_owned()));
    }
}
