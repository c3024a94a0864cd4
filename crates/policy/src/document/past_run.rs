//! A run that was recorded, under the documents that hold and under others: what would be decided in another way.
//!
//! ```text
//!  receipt, record of the network ─▶ PastRun ─▶ the same questions ─┬─ documents in force ─▶ answers ─┐
//!                                                                   └─ documents to try ──▶ answers ──┴▶ differences
//! ```
//! Documents only take away, so that an answer is about the documents alone: what a profile or a flag refused then stays refused.

use super::budget::BudgetKind;
use super::effective::{Effective, RunRights, Verdict};
use super::form::{Act, Answer};
use super::path_pattern::PathPattern;
use super::question::{Destination, Question};
use crate::command::Commands;
use crate::net::Port;
use crate::profile::{LimitKind, NetMode, format_limit};
use nexus_model::spec::SandboxProfile;
use serde::Serialize;
use std::net::IpAddr;

/// Way in which the changes of a run came into its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastChanges {
    /// At once: committed at the end, or written directly.
    Come,
    /// After an accept.
    Wait,
    /// Not at all.
    Go,
}

/// A destination that a run tried to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastAttempt {
    /// The destination as it was asked for.
    pub to: Destination,
    /// Port of the destination.
    pub port: Port,
    /// Addresses that its name had then.
    pub addresses: Vec<IpAddr>,
}

/// A run as it was recorded, as far as documents are about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRun {
    /// Isolation that the run had.
    pub sandbox: SandboxProfile,
    /// Words of the command; `None` if the record has not all of them.
    pub words: Option<Vec<String>>,
    /// Treatment of the changes; `None` if the record does not say it.
    pub changes: Option<PastChanges>,
    /// The mode of the network.
    pub mode: NetMode,
    /// Destinations that it tried to reach.
    pub attempts: Vec<PastAttempt>,
    /// Paths that it was shown, and whether it could write there.
    pub paths: Vec<(PathPattern, bool)>,
    /// Limits that the record knows; `None` was no limit.
    pub limits: Vec<(LimitKind, Option<u64>)>,
    /// Amount that the run used of each budget.
    pub used: Vec<(BudgetKind, u64)>,
    /// Names of the secrets that it had.
    pub secrets: Vec<String>,
}

/// Answer to one question about a run, from the laxest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is as it was.
    Allowed,
    /// It gets less: a flag that asks for this much is refused, and a profile is cut.
    Lowered,
    /// A person is asked.
    Asked,
    /// It is refused.
    Refused,
}

impl Outcome {
    /// Returns the word of the answer.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Lowered => "lowered",
            Self::Asked => "asked",
            Self::Refused => "refused",
        }
    }
}

/// Answer to a question, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Answer of the documents.
    pub outcome: Outcome,
    /// Document, line and reason; nothing for what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Decision {
    fn allowed() -> Self {
        Self { outcome: Outcome::Allowed, why: None }
    }

    fn of(verdict: &Verdict) -> Self {
        verdict.forbidden.first().map_or_else(Self::allowed, |by| Self::because(Outcome::Refused, by))
    }

    fn because(outcome: Outcome, why: &impl ToString) -> Self {
        Self { outcome, why: Some(why.to_string()) }
    }
}

/// A question with one answer under the documents in force and another one under those to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The question, as `nexus policy explain` takes it where it has such a one.
    pub question: String,
    /// The answer of the documents in force.
    pub before: Decision,
    /// The answer of the documents to try.
    pub after: Decision,
}

/// Returns what documents decide about each part of a run. The questions are those of the run, in one order, whatever the documents.
#[must_use]
pub fn decide(policies: &Effective, run: &PastRun) -> Vec<(String, Decision)> {
    let mut all = Vec::new();
    let mut ask = |question: Question| {
        let decision = Decision::of(&policies.ask(&question));
        all.push((question.to_string(), decision));
    };
    ask(Question::Sandbox(run.sandbox));
    run.secrets.iter().for_each(|name| ask(Question::Secret(name.clone())));
    ask(Question::Mode(run.mode));
    for (path, writes) in &run.paths {
        ask(Question::Read(path.clone()));
        if *writes {
            ask(Question::Write(path.clone()));
        }
    }
    all.push((format!("read {}", PathPattern::workspace()), Decision::of(&policies.reads_workspace())));
    if let Some(changes) = run.changes {
        all.push(("changes".to_owned(), decide_changes(policies, changes)));
    }
    if let Some(words) = &run.words {
        all.push((format!("run {}", words.join(" ")), decide_exec(policies, words)));
    }
    for attempt in &run.attempts {
        let verdict = policies.reach_at(&attempt.to, attempt.port, &attempt.addresses);
        all.push((format!("net {}", attempt.to), Decision::of(&verdict)));
    }
    for (kind, had) in &run.limits {
        all.push(decide_limit(policies, *kind, *had));
    }
    for (kind, used) in &run.used {
        let question = Question::Budget(*kind, *used);
        all.push((question.to_string(), Decision::of(&policies.ask(&question))));
    }
    all
}

fn decide_changes(policies: &Effective, changes: PastChanges) -> Decision {
    if changes == PastChanges::Go {
        return Decision::allowed();
    }
    if let Some(by) = policies.writes_workspace().forbidden.first() {
        return Decision::because(Outcome::Refused, by);
    }
    match policies.answer(Act::Changes) {
        Some(by) if by.value == Answer::Forbidden => Decision::because(Outcome::Refused, &by.from),
        Some(by) if by.value == Answer::NeedsApproval && changes == PastChanges::Come => {
            Decision::because(Outcome::Asked, &by.from)
        }
        Some(_) | None => Decision::allowed(),
    }
}

fn decide_exec(policies: &Effective, words: &[String]) -> Decision {
    // The flags of the run are not known: its paths and its network have answers of their own.
    match policies.exec_answer(&Commands::of_words(words), RunRights::Plain) {
        Some(by) if by.value == Answer::Forbidden => Decision::because(Outcome::Refused, &by.from),
        Some(by) if by.value == Answer::NeedsApproval => Decision::because(Outcome::Asked, &by.from),
        Some(_) | None => Decision::allowed(),
    }
}

fn decide_limit(policies: &Effective, kind: LimitKind, had: Option<u64>) -> (String, Decision) {
    let shown = had.map_or_else(|| "none".to_owned(), |had| format_limit(kind, had));
    let max = policies.limits().get(&kind).filter(|max| had.is_none_or(|had| had > max.value));
    let decision = max.map_or_else(Decision::allowed, |max| {
        let why = format!("at most {} is allowed ({})", format_limit(kind, max.value), max.from);
        Decision::because(Outcome::Lowered, &why)
    });
    (format!("limit {}={shown}", kind.key()), decision)
}

/// Returns what would be decided in another way. The same answer for another reason does not count.
#[must_use]
pub fn differences(before: &Effective, after: &Effective, run: &PastRun) -> Vec<Difference> {
    let pairs = decide(before, run).into_iter().zip(decide(after, run));
    let mut found: Vec<Difference> = pairs
        .filter(|((_, before), (_, after))| before.outcome != after.outcome)
        .map(|((question, before), (_, after))| Difference { question, before, after })
        .collect();
    found.dedup_by(|one, other| one.question == other.question);
    let hidden = |policies: &Effective| {
        let all = policies.denied_in_workspace().into_iter();
        all.map(|path| (path.value.to_string(), path.from.to_string())).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (was, is) = (hidden(before), hidden(after));
    let decision =
        |from: Option<&String>| from.map_or_else(Decision::allowed, |from| Decision::because(Outcome::Refused, from));
    let paths: std::collections::BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let changed = paths.into_iter().filter(|path| was.contains_key(*path) != is.contains_key(*path));
    found.extend(changed.map(|path| Difference {
        question: format!("read {path}"),
        before: decision(was.get(path)),
        after: decision(is.get(path)),
    }));
    found
}
