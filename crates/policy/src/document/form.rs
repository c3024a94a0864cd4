//! Content of one policy document, typed, each part with its place.

use super::budget::BudgetKind;
use super::command_rule::CommandRule;
use super::path_pattern::PathPattern;
use super::question::Question;
use crate::net::{AnyRule, Methods, Rule};
use crate::profile::document::words;
use crate::profile::{LimitKind, NetMode, Place};
use nexus_model::spec::SandboxProfile;
use serde::Serialize;

/// Level of a document, from the farthest to the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything on this machine or in this control plane.
    Global,
    /// One account of a control plane.
    Account,
    /// One user of a machine.
    User,
    /// One workspace of a run.
    Facility,
}

/// Act that may need an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Start of a command.
    Exec,
    /// Changes that come into the workspace.
    Changes,
    /// Connection that no rule allows, which a person may let through.
    Egress,
}

/// Largest number of users who must approve an act.
pub const MAX_QUORUM: u32 = 10;

/// Answer of a policy about an act, from the laxest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// No person is asked.
    Skip,
    /// A person must approve it.
    NeedsApproval,
    /// No person can approve it.
    Forbidden,
}

words!(Level, "a level", Level::Global => "global", Level::Account => "account", Level::User => "user", Level::Facility => "facility");
words!(Act, "an act", Act::Exec => "exec", Act::Changes => "changes", Act::Egress => "egress");
words!(Answer, "an answer", Answer::Skip => "skip", Answer::NeedsApproval => "needs_approval", Answer::Forbidden => "forbidden");

impl Act {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exec, Self::Changes, Self::Egress];
}

/// Rule of a list, with the cases that its author wrote beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// The rule as it was read.
    pub rule: T,
    /// The rule as it was written.
    pub text: String,
    /// The place of the rule.
    pub place: Place,
    /// Cases about this rule alone.
    pub cases: Vec<Case>,
}

/// Case that must hold before a document counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The question to ask.
    pub question: Question,
    /// True if it must be allowed (`match`), false if it must not be (`not_match`).
    pub allowed: bool,
    /// The place of the case.
    pub place: Place,
}

/// The part `net`: a ceiling over every network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetPart {
    /// The most open mode; a list implies the allowlist.
    pub mode: Option<(NetMode, Place)>,
    /// Destinations that may be allowed, with the mode allowlist.
    pub allow: Option<Vec<Entry<Rule>>>,
    /// Destinations that stay closed.
    pub deny: Vec<Entry<AnyRule>>,
    /// The HTTP methods.
    pub methods: Option<(Methods, Place)>,
}

/// The part `fs`: a ceiling over the paths that a command may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsPart {
    /// Paths that may be read; `None` leaves reading as it is.
    pub read: Option<Vec<Entry<PathPattern>>>,
    /// Paths that may be written; `None` leaves writing as it is.
    pub write: Option<Vec<Entry<PathPattern>>>,
    /// Paths that may be neither read nor written, whatever the lists say.
    pub deny: Vec<Entry<PathPattern>>,
}

/// A policy document. Every list is in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDocument {
    /// Name of the document; one per level.
    pub id: String,
    /// Level of the document.
    pub level: Level,
    /// One line for people.
    pub description: Option<String>,
    /// Part about the network.
    pub net: Option<NetPart>,
    /// Part about paths.
    pub fs: Option<FsPart>,
    /// Limits by kind.
    pub limits: Vec<(LimitKind, (u64, Place))>,
    /// Budgets by kind.
    pub budgets: Vec<(BudgetKind, (u64, Place))>,
    /// The acts that need an approval or are forbidden.
    pub approval: Vec<(Act, (Answer, Place))>,
    /// Users who must approve an act; `None` leaves it at one.
    pub quorum: Option<(u32, Place)>,
    /// Rules about commands; in their document they come before `approval.exec`.
    pub commands: Vec<(Answer, Entry<CommandRule>)>,
    /// Names of the variables that may be passed as secrets; `None` leaves them as they are.
    pub secrets: Option<(Vec<String>, Place)>,
    /// Strengths of isolation that may be asked for; `None` leaves them as they are.
    pub sandbox: Option<(Vec<SandboxProfile>, Place)>,
    /// Cases about the whole document.
    pub tests: Vec<Case>,
}
