//! Judges what was seen and prints the table.

use crate::answer::Answer;
use crate::cases::{Case, Kind};
use crate::skips::Skip;
use std::collections::BTreeMap;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Without any driver.
    Unsandboxed,
    /// The driver that isolates nothing.
    Leaky,
    /// The real driver, started by root (or by whoever runs the suite).
    Root,
    /// The real driver, started by an ordinary user.
    User,
}

/// What was seen in every column that was played.
pub type Observations = BTreeMap<(&'static str, &'static str, Column), Answer>;

/// The result of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Everything as it should be.
    Pass,
    /// The real driver is right, but the hole could not be shown here.
    Skip(String),
    /// Wrong.
    Fail(String),
}

/// Judges one row. `played` are the columns that were asked for; `root` tells whether the suite itself is root.
pub fn judge(
    case: &Case,
    seen: &Observations,
    played: &[Column],
    skip: Option<&Skip>,
    root: bool,
    inject: bool,
) -> Verdict {
    if case.needs_inject && !inject {
        return Verdict::Skip("needs --inject and a driver built with the hook".to_owned());
    }
    let get = |column| seen.get(&(case.id, case.name, column));
    for column in [Column::Root, Column::User] {
        if !played.contains(&column) {
            continue;
        }
        match get(column) {
            None => return Verdict::Fail(format!("{column:?}: nothing was seen")),
            Some(found) if !case.accepts(&found.answer) => {
                let detail = found.detail.as_deref().unwrap_or("");
                return Verdict::Fail(format!("{column:?} answers {} {detail}", found.answer));
            }
            Some(_) => {}
        }
    }
    let mut blind = Vec::new();
    for column in [Column::Unsandboxed, Column::Leaky] {
        let scene = matches!(case.how, crate::cases::How::Scene);
        if !played.contains(&column) || (column == Column::Unsandboxed && scene && get(column).is_none()) {
            continue;
        }
        let Some(found) = get(column) else { return Verdict::Fail(format!("{column:?}: nothing was seen")) };
        let right = case.accepts(&found.answer);
        let detail = || format!("{column:?} answers {} {}", found.answer, found.detail.as_deref().unwrap_or(""));
        // An answer that comes from the probe's own trouble shows no hole.
        let broken = [
            "hung",
            "no-answer",
            "no-pipe",
            "no-fork",
            "panicked",
            "host-unknown",
            "no-file",
            "no-link",
            "did-not-run",
        ];
        match case.kind {
            Kind::Malicious if right => blind.push(format!("cannot see the hole: {}", detail())),
            Kind::Malicious if broken.contains(&found.answer.as_str()) => return Verdict::Fail(detail()),
            Kind::Harmless if !right => return Verdict::Fail(format!("harmless, but {}", detail())),
            _ => {}
        }
    }
    match (blind.first(), skip) {
        (None, _) => Verdict::Pass,
        (Some(_), Some(skip)) => Verdict::Skip(skip.reason.to_owned()),
        (Some(_), None) if !root => Verdict::Skip("only root can show the hole".to_owned()),
        (Some(why), None) => Verdict::Fail(why.clone()),
    }
}

/// Whether a skip in the list had nothing to excuse.
pub fn skip_is_needless(case: &Case, seen: &Observations) -> bool {
    let shown = |column| seen.get(&(case.id, case.name, column)).is_some_and(|found| !case.accepts(&found.answer));
    shown(Column::Unsandboxed) && shown(Column::Leaky)
}

/// One line of the table.
pub fn line(case: &Case, seen: &Observations, verdict: &Verdict) -> String {
    let mut text =
        format!("{:<4} {:<32} {}", case.id, case.name, if case.kind == Kind::Malicious { "bad " } else { "good" });
    for column in [Column::Unsandboxed, Column::Leaky, Column::Root, Column::User] {
        let word = seen.get(&(case.id, case.name, column)).map_or("-", |found| found.answer.as_str());
        text = format!("{text} {word:<13}");
    }
    match verdict {
        Verdict::Pass => text.push_str(" pass"),
        Verdict::Skip(why) => text = format!("{text} skip: {why}"),
        Verdict::Fail(why) => text = format!("{text} FAIL: {why}"),
    }
    text
}

/// The same as JSON.
pub fn json_line(case: &Case, seen: &Observations, verdict: &Verdict) -> String {
    let answer = |column| seen.get(&(case.id, case.name, column));
    let (word, why) = match verdict {
        Verdict::Pass => ("pass", None),
        Verdict::Skip(why) => ("skip", Some(why)),
        Verdict::Fail(why) => ("fail", Some(why)),
    };
    serde_json::json!({
        "id": case.id,
        "case": case.name,
        "kind": if case.kind == Kind::Malicious { "malicious" } else { "harmless" },
        "expect": case.expect,
        "unsandboxed": answer(Column::Unsandboxed),
        "leaky": answer(Column::Leaky),
        "root": answer(Column::Root),
        "user": answer(Column::User),
        "verdict": word,
        "why": why,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(id: &'static str, name: &'static str, answers: &[(Column, &str)], skip: Option<&Skip>) -> Verdict {
        let case = crate::cases::all().find(|case| case.id == id && case.name == name).expect("the row");
        let seen: Observations =
            answers.iter().map(|(column, word)| ((id, name, *column), Answer::of(*word))).collect();
        let played: Vec<Column> = answers.iter().map(|(column, _)| *column).collect();
        judge(case, &seen, &played, skip, true, false)
    }

    #[test]
    fn a_refusal_passes_only_when_the_hole_was_shown() {
        use Column::{Leaky, Root, Unsandboxed};
        let seen = [(Unsandboxed, "ok"), (Leaky, "ok"), (Root, "EPERM")];
        assert_eq!(verdict("A08", "acct", &seen, None), Verdict::Pass);
        let blind = [(Unsandboxed, "EPERM"), (Leaky, "EPERM"), (Root, "EPERM")];
        assert!(matches!(verdict("A08", "acct", &blind, None), Verdict::Fail(_)));
        let skip = Skip { id: "A08", case: "acct", reason: "absent" };
        assert!(matches!(verdict("A08", "acct", &blind, Some(&skip)), Verdict::Skip(_)));
        let open = [(Unsandboxed, "EPERM"), (Leaky, "EPERM"), (Root, "ok")];
        assert!(matches!(verdict("A08", "acct", &open, Some(&skip)), Verdict::Fail(_)), "a skip excuses no hole");
    }

    #[test]
    fn a_probe_that_could_not_run_shows_no_hole() {
        use Column::{Leaky, Root, Unsandboxed};
        let seen = [(Unsandboxed, "no-answer"), (Leaky, "ok"), (Root, "EPERM")];
        assert!(matches!(verdict("A08", "acct", &seen, None), Verdict::Fail(_)));
    }

    #[test]
    fn a_harmless_twin_must_work_everywhere() {
        use Column::{Leaky, Root, Unsandboxed};
        let refused = [(Unsandboxed, "ok"), (Leaky, "ok"), (Root, "EPERM")];
        assert!(matches!(verdict("A08", "own_name", &refused, None), Verdict::Fail(_)));
        let works = [(Unsandboxed, "ok"), (Leaky, "ok"), (Root, "ok")];
        assert_eq!(verdict("A08", "own_name", &works, None), Verdict::Pass);
    }
}
