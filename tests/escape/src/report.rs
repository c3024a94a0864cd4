//! Evaluates the observations and prints the table.

use crate::answer::Answer;
use crate::cases::{Case, Kind, Limit};
use crate::skips::Skip;
use std::collections::BTreeMap;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Without any driver.
    Unsandboxed,
    /// The driver that isolates nothing.
    Leaky,
    /// The real driver, started by root (or by the user who runs the suite).
    Root,
    /// The real driver, started by an ordinary user.
    User,
}

impl Column {
    /// In the order of the table.
    pub const ALL: &'static [Self] = &[Self::Unsandboxed, Self::Leaky, Self::Root, Self::User];
}

/// Answers in every column that was played.
pub(crate) type Observations = BTreeMap<(&'static str, &'static str, Column), Answer>;

/// The result of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Everything as it should be.
    Pass,
    /// The real driver is right, but the hole could not be shown here.
    Skip(String),
    /// Not as the table expects, with the reason.
    Fail(String),
}

impl Verdict {
    /// `pass`, `skip` or `fail`, and why.
    #[must_use]
    pub fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Pass => ("pass", None),
            Self::Skip(why) => ("skip", Some(why)),
            Self::Fail(why) => ("fail", Some(why)),
        }
    }
}

/// One row with what became of it.
#[derive(Debug)]
pub struct Evaluated {
    /// Row of the table.
    pub case: &'static Case,
    /// Answers in each column that was played.
    pub answers: BTreeMap<Column, Answer>,
    /// Verdict on the row.
    pub verdict: Verdict,
}

/// Columns and parts that were asked for, and the user who asked.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// The columns that were played.
    pub played: &'a [Column],
    /// Set when the suite itself is root.
    pub root: bool,
    /// Set when steps are made to fail.
    pub inject: bool,
    /// Limits that cannot be held here.
    pub not_given: &'a [(Limit, String)],
}

/// Answers of a driver that did not start the command, without and with `--json`.
const NOT_STARTED: &[&str] = &["refused", "driver_failed"];

impl Asked<'_> {
    /// Returns the reason for which this case cannot be played here.
    fn lacks(&self, case: &Case) -> Option<String> {
        let needed = case.needs()?;
        let (_, reason) = self.not_given.iter().find(|(limit, _)| *limit == needed)?;
        Some(format!("{} cannot be held here and is refused: {reason}", needed.flag()))
    }
}

/// Evaluates one row.
pub(crate) fn evaluate(case: &Case, seen: &Observations, asked: &Asked, skip: Option<&Skip>) -> Verdict {
    let Asked { played, root, .. } = *asked;
    if case.needs_inject && !asked.inject {
        return Verdict::Skip("only a test build can make a step fail".to_owned());
    }
    let get = |column| seen.get(&(case.id, case.name, column));
    for column in [Column::Root, Column::User] {
        if !played.contains(&column) {
            continue;
        }
        match get(column) {
            None => return Verdict::Fail(format!("{column:?}: nothing was seen")),
            // Fail closed: a limit that cannot be held is refused. Then it is neither a hole nor a proof.
            Some(found)
                if NOT_STARTED.contains(&found.answer.as_str())
                    && !case.accepts(&found.answer)
                    && asked.lacks(case).is_some() =>
            {
                return Verdict::Skip(asked.lacks(case).unwrap_or_default());
            }
            Some(found) if found.answer == "host-unknown" && !root => {
                return Verdict::Skip("only root can make what is attacked".to_owned());
            }
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
            "never-started",
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

/// Returns whether a skip in the list had nothing to excuse.
pub(crate) fn skip_is_needless(case: &Case, seen: &Observations) -> bool {
    let shown = |column| seen.get(&(case.id, case.name, column)).is_some_and(|found| !case.accepts(&found.answer));
    shown(Column::Unsandboxed) && shown(Column::Leaky)
}

/// One line of the table.
#[must_use]
pub fn line(row: &Evaluated) -> String {
    let case = row.case;
    let mut text =
        format!("{:<4} {:<32} {}", case.id, case.name, if case.kind == Kind::Malicious { "bad " } else { "good" });
    for column in Column::ALL {
        let word = row.answers.get(column).map_or("-", |found| found.answer.as_str());
        text = format!("{text} {word:<13}");
    }
    match &row.verdict {
        Verdict::Pass => text.push_str(" pass"),
        Verdict::Skip(why) => text = format!("{text} skip: {why}"),
        Verdict::Fail(why) => text = format!("{text} FAIL: {why}"),
    }
    text
}

/// The same as JSON.
#[must_use]
pub fn json_line(row: &Evaluated) -> String {
    let (word, why) = row.verdict.words();
    serde_json::json!({
        "id": row.case.id,
        "case": row.case.name,
        "kind": row.case.kind.name(),
        "expect": row.case.expect,
        "unsandboxed": row.answers.get(&Column::Unsandboxed),
        "leaky": row.answers.get(&Column::Leaky),
        "root": row.answers.get(&Column::Root),
        "user": row.answers.get(&Column::User),
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
        evaluate(case, &seen, &asked(&played, &[]), skip)
    }

    fn asked<'a>(played: &'a [Column], not_given: &'a [(Limit, String)]) -> Asked<'a> {
        Asked { played, root: true, inject: false, not_given }
    }

    #[test]
    fn what_only_root_can_make_on_the_host_is_skipped_for_others_and_failed_for_root() {
        let case = crate::cases::all().find(|case| case.id == "A13" && case.name == "run").expect("the row");
        let seen: Observations = [((case.id, case.name, Column::Root), Answer::of("host-unknown"))].into();
        let as_user = Asked { root: false, ..asked(&[Column::Root], &[]) };
        assert!(matches!(evaluate(case, &seen, &as_user, None), Verdict::Skip(_)));
        assert!(matches!(evaluate(case, &seen, &asked(&[Column::Root], &[]), None), Verdict::Fail(_)));
    }

    #[test]
    fn a_limit_that_cannot_be_held_is_skipped_when_it_is_refused_and_only_then() {
        let case = crate::cases::all().find(|case| case.id == "E02" && case.name == "touch").expect("the row");
        let evaluated = |word: &str, not_given: &[(Limit, String)]| {
            let seen: Observations = [((case.id, case.name, Column::Root), Answer::of(word))].into();
            evaluate(case, &seen, &asked(&[Column::Root], not_given), None)
        };
        let lacking = [(Limit::Memory, "no control group".to_owned())];
        assert!(matches!(evaluated("refused", &lacking), Verdict::Skip(why) if why.contains("no control group")));
        assert!(matches!(evaluated("ok", &lacking), Verdict::Fail(_)), "it ran without its limit");
        assert!(matches!(evaluated("driver_failed", &lacking), Verdict::Skip(_)));
        assert!(matches!(evaluated("refused", &[]), Verdict::Fail(_)));
        assert!(matches!(evaluated("refused", &[(Limit::Cpu, "none".to_owned())]), Verdict::Fail(_)));
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
