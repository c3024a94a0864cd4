//! `nexus doctor --commands`: the commands that fix what was found, as a script to read. Nothing of it is run here.

use nexus_driver::ProbeReport;
use std::collections::HashSet;

/// Returns the script. Commands that fix several findings stand in it once.
pub fn script(report: &ProbeReport) -> String {
    let missing = report.missing.iter().map(|one| (one.what.clone(), &one.reason, &one.fix, &one.commands));
    let findings = report
        .findings
        .iter()
        .filter(|one| !one.given)
        .filter_map(|one| Some((one.guarantee.name().to_owned(), &one.reason, one.fix.as_ref()?, &one.commands)));
    let mut said = HashSet::new();
    let mut text = String::new();
    for (what, reason, fix, commands) in missing.chain(findings) {
        let new: Vec<&String> = commands.iter().filter(|command| !said.contains(*command)).collect();
        if new.is_empty() && !commands.is_empty() {
            continue;
        }
        comment(&mut text, &format!("{what}: {reason}"));
        if commands.is_empty() {
            comment(&mut text, &format!("by hand: {fix}"));
        } else {
            comment(&mut text, "as root, until the next boot:");
        }
        for command in new {
            text.push_str(command);
            text.push('\n');
            said.insert(command.clone());
        }
    }
    if text.is_empty() { "# there is nothing to fix here\n".to_owned() } else { text }
}

fn comment(text: &mut String, line: &str) {
    text.push_str("# ");
    text.push_str(&crate::failure::one_line(line));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_driver::{Finding, Missing};
    use nexus_model::Guarantee;

    fn finding(guarantee: Guarantee, commands: &[&str]) -> Finding {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        Finding { guarantee, given: false, reason: "not\nhere".into(), fix: Some("do it".into()), commands }
    }

    #[test]
    fn every_line_is_a_comment_or_a_command_that_was_given() {
        let report = ProbeReport {
            driver: "x",
            missing: vec![Missing {
                what: "a thing".into(),
                reason: "gone".into(),
                fix: "boot another kernel".into(),
                commands: Vec::new(),
            }],
            findings: vec![
                finding(Guarantee::LimitsMemory, &["mkdir a", "chown 7 a"]),
                finding(Guarantee::LimitsCpu, &["mkdir a", "chown 7 b"]),
                finding(Guarantee::LimitsPids, &["mkdir a"]),
            ],
        };
        let text = script(&report);
        let commands: Vec<&str> = text.lines().filter(|line| !line.starts_with("# ")).collect();
        assert_eq!(commands, ["mkdir a", "chown 7 a", "chown 7 b"]);
        assert!(text.contains("# by hand: boot another kernel\n") && !text.contains("limits.pids"), "{text}");
        let nothing = ProbeReport { driver: "x", missing: Vec::new(), findings: Vec::new() };
        assert_eq!(script(&nothing), "# there is nothing to fix here\n");
    }
}
