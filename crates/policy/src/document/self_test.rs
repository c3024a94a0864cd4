//! The cases that a document brings along. A document of which one does not hold never counts.

use super::ceiling::{denies, lists};
use super::effective::Effective;
use super::form::{Answer, Case, PolicyDocument};
use super::loaded::LoadedPolicy;
use super::question::Question;
use crate::command::Commands;
use crate::profile::Place;
use std::fmt;

/// Result of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The case, as a question.
    pub question: String,
    /// The rule that the case is about; `None` for the whole document.
    pub rule: Option<String>,
    /// True if the case says `match`.
    pub wanted: bool,
    /// True if the case holds.
    pub holds: bool,
    /// The place of the case.
    pub place: Place,
}

/// A case that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TestFailure {
    /// The document for people.
    pub file: String,
    /// The case.
    pub case: CaseResult,
}

impl fmt::Display for TestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseResult { question, rule, wanted, place, .. } = &self.case;
        let about = rule.as_ref().map_or_else(|| "the document".to_owned(), |rule| format!("the rule {rule}"));
        let (should, does) = if *wanted { ("match", "does not") } else { ("not match", "does") };
        write!(f, "{}:{place}: {about} should {should} {question:?}, and {does}", self.file)
    }
}

/// Runs all cases of a document, in the order of its rules, its own last. A case of a rule is about that rule alone, one
/// of the document about everything that the document says.
#[must_use]
pub fn run_cases(loaded: &LoadedPolicy) -> Vec<CaseResult> {
    let mut results = Vec::new();
    let mut of_rule = |rule: &str, cases: &[Case], matches: &dyn Fn(&Question) -> bool| {
        results.extend(cases.iter().map(|case| result(case, Some(rule), matches(&case.question))));
    };
    let PolicyDocument { net, fs, commands, tests, .. } = &loaded.document;
    if let Some(net) = net {
        for entry in net.allow.iter().flatten() {
            let matches = |asked: &Question| matches!(asked, Question::Reach(to) if lists(&entry.rule, to));
            of_rule(&entry.text, &entry.cases, &matches);
        }
        for entry in &net.deny {
            let matches = |asked: &Question| matches!(asked, Question::Reach(to) if denies(&entry.rule, to));
            of_rule(&entry.text, &entry.cases, &matches);
        }
    }
    if let Some(fs) = fs {
        for entry in fs.read.iter().chain(&fs.write).flatten() {
            let matches = |asked: &Question| matches!(asked, Question::Read(path) if entry.rule.covers(path));
            of_rule(&entry.text, &entry.cases, &matches);
        }
        for entry in &fs.deny {
            let matches = |asked: &Question| matches!(asked, Question::Read(path) if entry.rule.overlaps(path));
            of_rule(&entry.text, &entry.cases, &matches);
        }
    }
    for (answer, entry) in commands {
        let matches = |asked: &Question| {
            let Question::Run(line) = asked else { return false };
            let commands = Commands::of_line(line);
            if *answer == Answer::Skip { entry.rule.matches_all(&commands) } else { entry.rule.matches_some(&commands) }
        };
        of_rule(&entry.text, &entry.cases, &matches);
    }
    let alone = Effective::of(std::slice::from_ref(loaded));
    results.extend(tests.iter().map(|case| result(case, None, alone.ask(&case.question).is_allowed())));
    results
}

fn result(case: &Case, rule: Option<&str>, matches: bool) -> CaseResult {
    CaseResult {
        question: case.question.to_string(),
        rule: rule.map(str::to_owned),
        wanted: case.allowed,
        holds: matches == case.allowed,
        place: case.place,
    }
}
