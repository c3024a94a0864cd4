//! Permissions that documents of all levels leave together, each value with the document and line that set it.

use super::budget::BudgetKind;
use super::ceiling::{FsCeiling, NetCeiling, Refusal};
use super::command_rule::CommandRule;
use super::form::{Act, Answer, Entry, Level};
use super::loaded::{DocumentName, LoadedPolicy};
use super::path_pattern::PathPattern;
use super::question::{Destination, Question};
use crate::command::Commands;
use crate::net::{Budget, Methods, Policy, PolicyBound, Port};
use crate::profile::{LimitValues, NetMode, Origin, Place, Sourced, format_limit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// A document that forbids what was asked, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forbidden {
    /// Level of the document.
    pub level: Level,
    /// Id of the document.
    pub id: String,
    /// File and line.
    pub from: Origin,
    /// The reason, for people.
    pub why: String,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} policy {}, {})", self.why, self.level.word(), self.id, self.from)
    }
}

/// Answer to a question: allowed when no document forbids it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Every document that forbids it, the farthest level first.
    pub forbidden: Vec<Forbidden>,
}

impl Verdict {
    /// Reports whether no document forbids it.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.forbidden.is_empty()
    }
}

/// One document's share of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    level: Level,
    id: String,
    file: String,
    network: Option<NetCeiling>,
    fs: Option<FsCeiling>,
    exec: Option<(Answer, Place)>,
    commands: Vec<(Answer, Entry<CommandRule>)>,
}

impl Part {
    /// Returns the answer of this document about commands: a strict rule about one of them, else a rule that lets the only one
    /// go, else the answer about all.
    fn exec(&self, commands: &Commands, rights: RunRights) -> Option<(Answer, Place)> {
        let strict =
            self.commands.iter().filter(|(answer, entry)| *answer != Answer::Skip && entry.rule.matches_some(commands));
        let lets_go = |(answer, entry): &&(Answer, Entry<CommandRule>)| {
            rights == RunRights::Plain && *answer == Answer::Skip && entry.rule.matches_all(commands)
        };
        let skip = || self.commands.iter().find(lets_go);
        let strict = strict.max_by_key(|(answer, _)| *answer);
        strict.or_else(skip).map(|(answer, entry)| (*answer, entry.place)).or(self.exec)
    }

    fn origin(&self, place: Place) -> Origin {
        Origin::File { name: self.file.clone(), place }
    }

    fn forbids(&self, (place, why): Refusal) -> Forbidden {
        Forbidden { level: self.level, id: self.id.clone(), from: self.origin(place), why }
    }
}

/// The rights that a command is to start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunRights {
    /// Those of a run without a flag that widens something.
    Plain,
    /// Others, or unknown ones: no rule lets the command go without a question.
    Other,
}

/// Effect of a document on a list that another level has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearer {
    /// Its own list takes the place of the other one.
    Replaces,
    /// Of the other list stays what its own one has too.
    Narrows,
}

/// A list that the nearest level set, with the first document of that level that says something.
type Nearest<T> = Option<(Level, String, Sourced<BTreeSet<T>>)>;

/// Permissions that documents leave together. Without a document everything stays as the caller has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effective {
    parts: Vec<Part>,
    limits: LimitValues,
    budgets: BTreeMap<BudgetKind, Sourced<u64>>,
    approval: BTreeMap<Act, Sourced<Answer>>,
    quorum: Option<Sourced<u32>>,
    secrets: Nearest<String>,
    sandbox: Nearest<&'static str>,
    documents: Vec<DocumentName>,
}

impl Effective {
    /// Combines documents. Their order does not matter: they are sorted by level and id first, and each part combines by
    /// a minimum, a maximum or an intersection.
    #[must_use]
    pub fn of(documents: &[LoadedPolicy]) -> Self {
        let mut sorted: Vec<&LoadedPolicy> = documents.iter().collect();
        sorted.sort_by_key(|loaded| loaded.key());
        let mut out = Self::default();
        for loaded in sorted {
            out.add(loaded, Nearer::Replaces);
        }
        out
    }

    /// Returns what is left where `more` counts beside these documents. A document of `more` only takes away, also from the lists
    /// that the nearest level replaces: its author is not the one of these documents.
    #[must_use]
    pub fn narrowed_by(&self, more: &[LoadedPolicy]) -> Self {
        let mut sorted: Vec<&LoadedPolicy> = more.iter().collect();
        sorted.sort_by_key(|loaded| loaded.key());
        let mut out = self.clone();
        for loaded in sorted {
            out.add(loaded, Nearer::Narrows);
        }
        out
    }

    fn add(&mut self, loaded: &LoadedPolicy, nearer: Nearer) {
        let document = &loaded.document;
        let part = Part {
            level: document.level,
            id: document.id.clone(),
            file: loaded.source.clone(),
            network: document.net.as_ref().map(NetCeiling::of),
            fs: document.fs.as_ref().map(FsCeiling::of),
            exec: document.approval.iter().find(|(act, _)| *act == Act::Exec).map(|(_, answer)| *answer),
            commands: document.commands.clone(),
        };
        for (kind, (value, place)) in &document.limits {
            if self.limits.get(kind).is_none_or(|known| *value < known.value) {
                self.limits.insert(*kind, Sourced::new(*value, part.origin(*place)));
            }
        }
        for (kind, (value, place)) in &document.budgets {
            if self.budgets.get(kind).is_none_or(|known| *value < known.value) {
                self.budgets.insert(*kind, Sourced::new(*value, part.origin(*place)));
            }
        }
        for (act, (answer, place)) in &document.approval {
            if self.approval.get(act).is_none_or(|known| *answer > known.value) {
                self.approval.insert(*act, Sourced::new(*answer, part.origin(*place)));
            }
        }
        if let Some((users, place)) = &document.quorum
            && self.quorum.as_ref().is_none_or(|known| *users > known.value)
        {
            self.quorum = Some(Sourced::new(*users, part.origin(*place)));
        }
        if let Some((names, place)) = &document.secrets {
            nearest(&mut self.secrets, &part, names.iter().cloned().collect(), *place, nearer);
        }
        if let Some((kinds, place)) = &document.sandbox {
            nearest(&mut self.sandbox, &part, kinds.iter().map(|kind| kind.name()).collect(), *place, nearer);
        }
        self.parts.push(part);
        self.documents.push(loaded.name());
    }

    /// Answers a question, with every document that forbids it.
    #[must_use]
    pub fn ask(&self, question: &Question) -> Verdict {
        let ceiling = |asks: &dyn Fn(&Part) -> Result<(), Refusal>| -> Vec<Forbidden> {
            self.parts.iter().filter_map(|part| asks(part).err().map(|refusal| part.forbids(refusal))).collect()
        };
        let network = |asks: &dyn Fn(&NetCeiling) -> Result<(), Refusal>| {
            ceiling(&|part| part.network.as_ref().map_or(Ok(()), asks))
        };
        let paths =
            |asks: &dyn Fn(&FsCeiling) -> Result<(), Refusal>| ceiling(&|part| part.fs.as_ref().map_or(Ok(()), asks));
        let forbidden = match question {
            Question::Reach(destination) => network(&|net| net.reach(destination)),
            Question::Mode(mode) => network(&|net| net.mode(*mode)),
            Question::Methods(methods) => network(&|net| net.methods(*methods)),
            Question::Read(path) => paths(&|fs| fs.read(path)),
            Question::Write(path) => paths(&|fs| fs.write(path)),
            Question::Limit(kind, value) => self.above(self.limits.get(kind), *value, &|max| format_limit(*kind, max)),
            Question::Budget(kind, value) => self.above(self.budgets.get(kind), *value, &|max| max.to_string()),
            Question::Secret(name) => not_in(self.secrets.as_ref(), name.as_str(), "the secrets"),
            Question::Run(line) => {
                let commands = Commands::of_line(line);
                ceiling(&|part| match part.exec(&commands, RunRights::Plain) {
                    Some((answer, place)) if answer != Answer::Skip => Err((place, answer.word().to_owned())),
                    Some(_) | None => Ok(()),
                })
            }
            Question::Sandbox(profile) => not_in(self.sandbox.as_ref(), profile.name(), "the kinds of isolation"),
        };
        Verdict { forbidden }
    }

    fn above(&self, max: Option<&Sourced<u64>>, value: u64, shown: &dyn Fn(u64) -> String) -> Vec<Forbidden> {
        let Some(max) = max.filter(|max| value > max.value) else { return Vec::new() };
        let named = |part: &&Part| matches!(&max.from, Origin::File { name, .. } if *name == part.file);
        let (level, id) =
            self.parts.iter().find(named).map_or((Level::Global, String::new()), |part| (part.level, part.id.clone()));
        vec![Forbidden { level, id, from: max.from.clone(), why: format!("at most {} is allowed", shown(max.value)) }]
    }

    /// Answers whether a destination may be reached at these addresses. Of the addresses only a rule that denies them counts.
    #[must_use]
    pub fn reach_at(&self, to: &Destination, port: Port, addresses: &[IpAddr]) -> Verdict {
        let reach = |part: &Part| -> Option<Forbidden> {
            let net = part.network.as_ref()?;
            let refusal = net.reach(to).and_then(|()| {
                addresses.iter().try_for_each(|address| net.denies_none(&Destination::Address(*address, port)))
            });
            refusal.err().map(|refusal| part.forbids(refusal))
        };
        Verdict { forbidden: self.parts.iter().filter_map(reach).collect() }
    }

    /// Returns a network policy under every ceiling. The result never allows anything that `policy` does not.
    #[must_use]
    pub fn narrow(&self, policy: Policy) -> Policy {
        let ceilings = self.parts.iter().filter_map(|part| part.network.as_ref());
        let policy = ceilings.fold(policy, |policy, ceiling| policy.narrow(&ceiling.narrower()));
        if self.budgets.is_empty() {
            return policy;
        }
        policy.narrow(&PolicyBound { budget: self.budget(), ..PolicyBound::default() })
    }

    /// Reports whether a document says something about paths.
    #[must_use]
    pub fn limits_paths(&self) -> bool {
        self.parts.iter().any(|part| part.fs.is_some())
    }

    /// Returns the answer about reading the whole workspace, apart from the paths of [`Self::denied_in_workspace`].
    #[must_use]
    pub fn reads_workspace(&self) -> Verdict {
        self.whole_workspace(FsCeiling::read_apart_from_denied)
    }

    /// Returns the answer about writing the whole workspace, apart from the paths of [`Self::denied_in_workspace`].
    #[must_use]
    pub fn writes_workspace(&self) -> Verdict {
        self.whole_workspace(FsCeiling::write_apart_from_denied)
    }

    fn whole_workspace(&self, asks: fn(&FsCeiling, &PathPattern) -> Result<(), Refusal>) -> Verdict {
        let whole = PathPattern::workspace();
        let parts = self.parts.iter().filter_map(|part| Some((part, part.fs.as_ref()?)));
        let refused = parts.filter_map(|(part, fs)| asks(fs, &whole).err().map(|refusal| part.forbids(refusal)));
        Verdict { forbidden: refused.collect() }
    }

    /// Returns the paths of the workspace that are denied, each with its origin.
    #[must_use]
    pub fn denied_in_workspace(&self) -> Vec<Sourced<PathPattern>> {
        self.denied(true)
    }

    /// Returns the paths of the host that are denied, each with its origin.
    #[must_use]
    pub fn denied_on_host(&self) -> Vec<Sourced<PathPattern>> {
        self.denied(false)
    }

    fn denied(&self, in_workspace: bool) -> Vec<Sourced<PathPattern>> {
        let parts = self.parts.iter().filter_map(|part| Some((part, part.fs.as_ref()?)));
        let denied = parts.flat_map(move |(part, fs)| {
            fs.denied()
                .filter(move |entry| entry.rule.is_in_workspace() == in_workspace)
                .map(|entry| Sourced::new(entry.rule.clone(), part.origin(entry.place)))
        });
        denied.collect()
    }

    /// Returns the most open mode of a network, if a document says one.
    #[must_use]
    pub fn max_mode(&self) -> Option<Sourced<NetMode>> {
        let modes = self.parts.iter().filter_map(|part| {
            let (mode, place) = part.network.as_ref()?.mode?;
            Some(Sourced::new(mode, part.origin(place)))
        });
        modes.reduce(|min, mode| if mode.value < min.value { mode } else { min })
    }

    /// Returns the HTTP methods, if a document limits them.
    #[must_use]
    pub fn methods(&self) -> Option<Sourced<Methods>> {
        let methods = self.parts.iter().filter_map(|part| {
            let (methods, place) = part.network.as_ref()?.methods?;
            Some(Sourced::new(methods, part.origin(place)))
        });
        methods.reduce(|strictest, one| if one.value > strictest.value { one } else { strictest })
    }

    /// Returns the smallest limits.
    #[must_use]
    pub fn limits(&self) -> &LimitValues {
        &self.limits
    }

    /// Returns the smallest budgets.
    #[must_use]
    pub fn budgets(&self) -> &BTreeMap<BudgetKind, Sourced<u64>> {
        &self.budgets
    }

    /// Returns the budgets as the network counts them.
    #[must_use]
    pub fn budget(&self) -> Budget {
        let max = |kind| self.budgets.get(&kind).map(|max| max.value);
        Budget {
            connections: max(BudgetKind::Connections),
            bytes_total: max(BudgetKind::EgressBytes),
            ..Budget::default()
        }
    }

    /// Returns the answer about an act, and who gave it; `None` leaves the act as it is.
    #[must_use]
    pub fn answer(&self, act: Act) -> Option<&Sourced<Answer>> {
        self.approval.get(&act)
    }

    /// Returns the number of users who must approve an act, and who asks for that; `None` where no document does.
    #[must_use]
    pub fn quorum(&self) -> Option<&Sourced<u32>> {
        self.quorum.as_ref()
    }

    /// Returns the strictest answer about commands with these rights, and who gave it; `None` where no document says something.
    #[must_use]
    pub fn exec_answer(&self, commands: &Commands, rights: RunRights) -> Option<Sourced<Answer>> {
        let answers = self.parts.iter().filter_map(|part| {
            let (answer, place) = part.exec(commands, rights)?;
            Some(Sourced::new(answer, part.origin(place)))
        });
        answers.reduce(|strictest, one| if one.value > strictest.value { one } else { strictest })
    }

    /// Returns the names of the documents, the farthest level first.
    #[must_use]
    pub fn documents(&self) -> &[DocumentName] {
        &self.documents
    }

    /// Reports whether there is no document.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Lists every value with its origin, for people.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, Origin)> {
        let mut rows = Vec::new();
        for part in &self.parts {
            let mut row = |what: String, place: Place| rows.push((what, part.origin(place)));
            if let Some(net) = &part.network {
                net.mode.iter().for_each(|(mode, place)| row(format!("net at most {}", mode.word()), *place));
                net.allow.iter().for_each(|entry| row(format!("net only {}", entry.text), entry.place));
                net.deny.iter().for_each(|entry| row(format!("net never {}", entry.text), entry.place));
                let methods = net.methods.iter();
                methods.for_each(|(methods, place)| row(format!("methods {}", methods.word()), *place));
            }
            if let Some(fs) = &part.fs {
                fs.rows(&mut row);
            }
            part.commands
                .iter()
                .for_each(|(answer, entry)| row(format!("{} {}", answer.word(), entry.text), entry.place));
        }
        rows.extend(self.limits.iter().map(|(kind, max)| {
            (format!("limit {} at most {}", kind.key(), format_limit(*kind, max.value)), max.from.clone())
        }));
        rows.extend(
            self.budgets
                .iter()
                .map(|(kind, max)| (format!("budget {} at most {}", kind.key(), max.value), max.from.clone())),
        );
        rows.extend(
            self.approval
                .iter()
                .map(|(act, answer)| (format!("{} {}", act.word(), answer.value.word()), answer.from.clone())),
        );
        rows.extend(
            self.quorum.iter().map(|users| (format!("an approval by {} users", users.value), users.from.clone())),
        );
        let listed = |what: &str, names: Vec<&str>| {
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("{what} only {names}")
        };
        rows.extend(self.secrets.iter().map(|(_, _, names)| {
            (listed("secrets", names.value.iter().map(String::as_str).collect()), names.from.clone())
        }));
        rows.extend(
            self.sandbox
                .iter()
                .map(|(_, _, names)| (listed("sandbox", names.value.iter().copied().collect()), names.from.clone())),
        );
        rows
    }
}

/// Takes a list of a document: that of a nearer level replaces or narrows, one of the same level leaves what both list.
fn nearest<T: Ord + Clone>(has: &mut Nearest<T>, part: &Part, names: BTreeSet<T>, place: Place, nearer: Nearer) {
    match has {
        Some((level, _, known)) if *level == part.level && nearer == Nearer::Replaces => {
            known.value.retain(|name| names.contains(name));
        }
        Some((level, id, known)) if nearer == Nearer::Narrows => {
            let before = known.value.len();
            known.value.retain(|name| names.contains(name));
            if known.value.len() < before {
                (*level, *id, known.from) = (part.level, part.id.clone(), part.origin(place));
            }
        }
        Some(_) | None => *has = Some((part.level, part.id.clone(), Sourced::new(names, part.origin(place)))),
    }
}

fn not_in<T: Ord + std::borrow::Borrow<str>>(
    list: Option<&(Level, String, Sourced<BTreeSet<T>>)>,
    name: &str,
    what: &str,
) -> Vec<Forbidden> {
    let Some((level, id, names)) = list.filter(|(_, _, names)| !names.value.iter().any(|one| one.borrow() == name))
    else {
        return Vec::new();
    };
    let why = format!("it is not among {what} that may be used");
    vec![Forbidden { level: *level, id: id.clone(), from: names.from.clone(), why }]
}
