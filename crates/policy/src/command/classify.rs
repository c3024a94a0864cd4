//! The verdict about a command line.

use super::forbidden;
use super::line::{Line, Stage};
use super::parse::parse;
use super::programs::{base, is_interpreter, is_wrapper};
use super::safe;

/// Class of a command line, from the laxest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No person needs to be asked.
    Safe,
    /// A person must look at it.
    NeedsApproval,
    /// No person may approve it.
    Forbidden,
}

impl Verdict {
    /// Returns the word of the verdict.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::NeedsApproval => "needs_approval",
            Self::Forbidden => "forbidden",
        }
    }
}

/// A verdict and its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// The verdict.
    pub verdict: Verdict,
    /// The reasons, for people; none for what is safe. Parts of the line stand in them quoted and escaped.
    pub reasons: Vec<String>,
}

/// Most reasons that are given.
const MAX_REASONS: usize = 16;

/// Classifies a command line as a POSIX shell or bash would read it.
#[must_use]
pub fn classify(text: &str) -> Classification {
    let line = parse(text);
    if let Some(why) = forbidden::of_line(&line, 0) {
        return Classification { verdict: Verdict::Forbidden, reasons: vec![why] };
    }
    let mut reasons: Vec<String> = line.unknown.iter().map(|what| format!("it has {what}")).collect();
    line.each_stage(&mut |stage| reasons.extend(of_stage(stage)));
    if is_empty(&line) {
        reasons.push("there is no command in it".to_owned());
    }
    reasons.truncate(MAX_REASONS);
    let verdict = if reasons.is_empty() { Verdict::Safe } else { Verdict::NeedsApproval };
    Classification { verdict, reasons }
}

fn is_empty(line: &Line) -> bool {
    line.pipelines.iter().flatten().all(|stage| stage.words.is_empty())
}

fn of_stage(stage: &Stage) -> Option<String> {
    if let Some(set) = stage.assignments.first() {
        let name = set.text.split('=').next().unwrap_or_default();
        return Some(format!("it sets the variable {name:?}"));
    }
    let first = stage.words.first()?;
    if first.is_open {
        return Some("which program it runs is not known before it runs".to_owned());
    }
    let name = base(&first.text);
    if is_interpreter(name) {
        return Some(format!("{name} runs whatever it reads"));
    }
    if is_wrapper(name) && name != "find" {
        return Some(format!("{name} runs another program"));
    }
    if stage.words.iter().any(|word| word.is_open) {
        return Some("a word of it is not known before it runs".to_owned());
    }
    safe::why_not(stage)
}
