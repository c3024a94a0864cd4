//! From text to a [`PolicyDocument`]: known keys, right kinds, sound values, no contradiction. Every refusal names the
//! place. An unknown key is never passed over: a misspelt `deny` would deny nothing.

use super::budget::BudgetKind;
use super::command_rule::CommandRule;
use super::form::{Act, Answer, Case, Entry, FsPart, Level, MAX_QUORUM, NetPart, PolicyDocument};
use super::path_pattern::PathPattern;
use super::question::{Destination, Question, SANDBOXES, sandbox};
use crate::net::{Origin, Source, parse_allow, parse_deny};
use crate::profile::read::{entries, known, limits, list, no_nul, text_of, variable, word, wrong};
use crate::profile::tree::{Node, Value, read};
use crate::profile::{DocumentError, NetMode, Place};
use nexus_model::spec::SandboxProfile;

/// The word that a document begins with, so that a document of a later form is refused instead of half read.
const FORM: &str = "nexus.policy/1";

const KEYS: &[&str] = &[
    "policy",
    "id",
    "level",
    "description",
    "net",
    "fs",
    "limits",
    "budgets",
    "approval",
    "commands",
    "secrets",
    "sandbox",
    "tests",
];

/// Reads a document; `name` is its path for people.
pub fn parse(text: &str, name: &str) -> Result<PolicyDocument, DocumentError> {
    let (mut form, mut id, mut level) = (None, None, None);
    let mut rest = Rest::default();
    for (place, key, node) in entries(read(text)?, "a policy")? {
        nothing_is_empty(&node, &key)?;
        match known(place, &key, KEYS, "")? {
            "policy" => form = Some(text_of(node, "policy")?),
            "id" => id = Some(text_of(node, "id")?),
            "level" => level = Some(word::<Level>(node)?),
            "description" => rest.description = Some(text_of(node, "description")?.0),
            "net" => rest.net = Some((net(node, name)?, place)),
            "fs" => rest.fs = Some(fs(node)?),
            "limits" => rest.limits = limits(node)?,
            "budgets" => rest.budgets = budgets(node)?,
            "approval" => (rest.approval, rest.quorum) = approval(node)?,
            "commands" => rest.commands = commands(node)?,
            "secrets" => rest.secrets = Some((list(node, "secrets", secret)?, place)),
            "sandbox" => rest.sandbox = Some((list(node, "sandbox", isolation)?, place)),
            _ => rest.tests = cases(node, "tests", |text| Question::parse(text).map_err(|error| error.to_string()))?,
        }
    }
    let top = Place { line: 1, column: 1 };
    let missing = |what: &str| DocumentError::at(top, format!("{what} is missing"));
    let (form, place) = form.ok_or_else(|| missing(&format!("policy: {FORM}")))?;
    if form != FORM {
        return Err(DocumentError::at(place, format!("{form:?} is not a form that is read here: write {FORM}")));
    }
    let (id, place) = id.ok_or_else(|| missing("id"))?;
    identifier(&id).map_err(|message| DocumentError::at(place, message))?;
    let (level, _) = level.ok_or_else(|| missing("level"))?;
    let net = rest.net.map(|(net, place)| sound(net, place)).transpose()?;
    let names =
        |(found, place): (Vec<(String, Place)>, Place)| (found.into_iter().map(|(name, _)| name).collect(), place);
    let kinds = |(found, place): (Vec<(SandboxProfile, Place)>, Place)| {
        (found.into_iter().map(|(kind, _)| kind).collect(), place)
    };
    Ok(PolicyDocument {
        id,
        level,
        description: rest.description,
        net,
        fs: rest.fs,
        limits: rest.limits,
        budgets: rest.budgets,
        approval: rest.approval,
        quorum: rest.quorum,
        commands: rest.commands,
        secrets: rest.secrets.map(names),
        sandbox: rest.sandbox.map(kinds),
        tests: rest.tests,
    })
}

/// Refuses a key with nothing behind it: a document that was cut off there would say less than its author wrote.
fn nothing_is_empty(node: &Node, what: &str) -> Result<(), DocumentError> {
    match &node.value {
        Value::Null => {
            Err(DocumentError::at(node.place, format!("{what} is empty: say something there, or leave it out")))
        }
        Value::Map(entries) => entries.iter().try_for_each(|(_, key, node)| nothing_is_empty(node, key)),
        Value::List(nodes) => nodes.iter().try_for_each(|node| nothing_is_empty(node, what)),
        Value::Bool(_) | Value::Number(_) | Value::Text(_) => Ok(()),
    }
}

#[derive(Default)]
struct Rest {
    description: Option<String>,
    net: Option<(NetPart, Place)>,
    fs: Option<FsPart>,
    limits: Vec<(crate::profile::LimitKind, (u64, Place))>,
    budgets: Vec<(BudgetKind, (u64, Place))>,
    approval: Vec<(Act, (Answer, Place))>,
    quorum: Option<(u32, Place)>,
    commands: Vec<(Answer, Entry<CommandRule>)>,
    secrets: Option<(Vec<(String, Place)>, Place)>,
    sandbox: Option<(Vec<(SandboxProfile, Place)>, Place)>,
    tests: Vec<Case>,
}

fn identifier(text: &str) -> Result<(), String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > 64 || text.starts_with(['.', '-']) || !text.chars().all(letter) {
        return Err(format!("{text:?} cannot be the id of a policy: write letters, digits, -, _ and ."));
    }
    Ok(())
}

/// Refuses lists that the mode would ignore, and settles what a list implies.
fn sound(mut net: NetPart, place: Place) -> Result<NetPart, DocumentError> {
    match (&net.mode, &net.allow) {
        (Some((mode @ (NetMode::None | NetMode::Unrestricted), place)), Some(_)) => {
            let message = format!("the mode {} takes no list allow: leave one of both out", mode.word());
            Err(DocumentError::at(*place, message))
        }
        (Some((NetMode::Allowlist, place)), None) => {
            Err(DocumentError::at(*place, "the mode allowlist needs a list allow; it may be empty"))
        }
        (None, Some(_)) => {
            net.mode = Some((NetMode::Allowlist, place));
            Ok(net)
        }
        _ => Ok(net),
    }
}

fn net(node: Node, name: &str) -> Result<NetPart, DocumentError> {
    let mut part = NetPart::default();
    let source = |text: &str, place: Place| Source {
        origin: Origin::Operator,
        text: text.to_owned(),
        file: Some(name.to_owned()),
        line: u32::try_from(place.line).ok(),
    };
    for (place, key, node) in entries(node, "net")? {
        match known(place, &key, &["mode", "allow", "deny", "methods"], "net.")? {
            "mode" => part.mode = Some(word(node)?),
            "methods" => part.methods = Some(word(node)?),
            "allow" => {
                let rule =
                    |text: &str, place| parse_allow(text, source(text, place)).map_err(|error| error.to_string());
                part.allow = Some(rules(node, "net.allow", rule, reach)?);
            }
            _ => {
                let rule = |text: &str, place| parse_deny(text, source(text, place)).map_err(|error| error.to_string());
                part.deny = rules(node, "net.deny", rule, reach)?;
            }
        }
    }
    Ok(part)
}

fn reach(text: &str) -> Result<Question, String> {
    Destination::parse(text).map(Question::Reach).map_err(|error| error.to_string())
}

fn fs(node: Node) -> Result<FsPart, DocumentError> {
    let mut part = FsPart::default();
    let rule = |text: &str, _| PathPattern::parse(text).map_err(|error| error.to_string());
    let case = |text: &str| PathPattern::parse(text).map(Question::Read).map_err(|error| error.to_string());
    for (place, key, node) in entries(node, "fs")? {
        match known(place, &key, &["read", "write", "deny"], "fs.")? {
            "read" => part.read = Some(rules(node, "fs.read", rule, case)?),
            "write" => part.write = Some(rules(node, "fs.write", rule, case)?),
            _ => part.deny = rules(node, "fs.deny", rule, case)?,
        }
    }
    Ok(part)
}

/// Reads a list of rules: each a text, or `{rule: TEXT, match: […], not_match: […]}`.
fn rules<T>(
    node: Node,
    what: &str,
    rule: impl Fn(&str, Place) -> Result<T, String>,
    case: impl Fn(&str) -> Result<Question, String> + Copy,
) -> Result<Vec<Entry<T>>, DocumentError> {
    let one = |node: Node| {
        let at = node.place;
        let made = |text: String, place: Place, cases: Vec<Case>| -> Result<(Entry<T>, Place), DocumentError> {
            no_nul(&text).map_err(|message| DocumentError::at(place, message))?;
            let rule = rule(&text, place).map_err(|message| DocumentError::at(place, message))?;
            Ok((Entry { rule, text, place, cases }, place))
        };
        if !matches!(node.value, Value::Map(_)) {
            let (text, place) = text_of(node, "a rule")?;
            return made(text, place, Vec::new());
        }
        let (mut text, mut found) = (None, Vec::new());
        for (place, key, node) in entries(node, "a rule")? {
            match known(place, &key, &["rule", "match", "not_match"], "")? {
                "rule" => text = Some(text_of(node, "rule")?),
                key => found.extend(list_of_cases(node, key, case)?),
            }
        }
        let (text, place) = text.ok_or_else(|| DocumentError::at(at, "rule is missing: write {rule: TEXT}"))?;
        made(text, place, found)
    };
    Ok(list(node, what, one)?.into_iter().map(|(entry, _)| entry).collect())
}

fn list_of_cases(
    node: Node,
    key: &str,
    case: impl Fn(&str) -> Result<Question, String>,
) -> Result<Vec<Case>, DocumentError> {
    let allowed = key == "match";
    let one = |node: Node| {
        let (text, place) = text_of(node, "a case")?;
        let question = case(&text).map_err(|message| DocumentError::at(place, message))?;
        Ok((Case { question, allowed, place }, place))
    };
    Ok(list(node, key, one)?.into_iter().map(|(case, _)| case).collect())
}

fn cases(
    node: Node,
    what: &str,
    case: impl Fn(&str) -> Result<Question, String> + Copy,
) -> Result<Vec<Case>, DocumentError> {
    let mut found = Vec::new();
    for (place, key, node) in entries(node, what)? {
        let key = known(place, &key, &["match", "not_match"], "tests.")?;
        found.extend(list_of_cases(node, key, case)?);
    }
    Ok(found)
}

/// A value, and where it stands.
type Placed<T> = (T, Place);

fn budgets(node: Node) -> Result<Vec<(BudgetKind, Placed<u64>)>, DocumentError> {
    let keys: Vec<&str> = BudgetKind::ALL.into_iter().map(BudgetKind::key).collect();
    let mut found = Vec::new();
    for (place, key, node) in entries(node, "budgets")? {
        let key = known(place, &key, &keys, "budgets.")?;
        let Some(kind) = BudgetKind::by_key(key) else { continue };
        let at = node.place;
        let (Value::Text(text) | Value::Number(text)) = &node.value else {
            return Err(wrong(&node, key, "a number"));
        };
        found.push((kind, (kind.read(text).map_err(|message| DocumentError::at(at, message))?, at)));
    }
    Ok(found)
}

/// The answers about acts, and the number of users who must approve one.
type Approvals = (Vec<(Act, Placed<Answer>)>, Option<Placed<u32>>);

fn approval(node: Node) -> Result<Approvals, DocumentError> {
    let keys: Vec<&str> = Act::ALL.into_iter().map(Act::word).chain(["quorum"]).collect();
    let (mut found, mut users) = (Vec::new(), None);
    for (place, key, node) in entries(node, "approval")? {
        let key = known(place, &key, &keys, "approval.")?;
        match Act::ALL.into_iter().find(|act| act.word() == key) {
            Some(act) => found.push((act, word::<Answer>(node)?)),
            None => users = Some(quorum(&node)?),
        }
    }
    Ok((found, users))
}

fn quorum(node: &Node) -> Result<Placed<u32>, DocumentError> {
    let number = match &node.value {
        Value::Number(text) => text.parse().ok().filter(|number| (1..=MAX_QUORUM).contains(number)),
        _ => None,
    };
    let expected = format!("a whole number from 1 to {MAX_QUORUM}");
    number.map(|number| (number, node.place)).ok_or_else(|| wrong(node, "quorum", &expected))
}

fn commands(node: Node) -> Result<Vec<(Answer, Entry<CommandRule>)>, DocumentError> {
    let answers = [Answer::Skip, Answer::NeedsApproval, Answer::Forbidden];
    let keys: Vec<&str> = answers.into_iter().map(Answer::word).collect();
    let rule = |text: &str, _| CommandRule::parse(text);
    let case = |text: &str| Ok(Question::Run(text.to_owned()));
    let mut found = Vec::new();
    for (place, key, node) in entries(node, "commands")? {
        let key = known(place, &key, &keys, "commands.")?;
        let Some(answer) = answers.into_iter().find(|answer| answer.word() == key) else { continue };
        found.extend(rules(node, key, rule, case)?.into_iter().map(|entry| (answer, entry)));
    }
    Ok(found)
}

fn secret(node: Node) -> Result<(String, Place), DocumentError> {
    let (name, place) = text_of(node, "a secret")?;
    variable(&name).map_err(|message| DocumentError::at(place, message))?;
    Ok((name, place))
}

fn isolation(node: Node) -> Result<(SandboxProfile, Place), DocumentError> {
    let (name, place) = text_of(node, "a kind of isolation")?;
    match sandbox(&name) {
        Some(kind) => Ok((kind, place)),
        None => Err(DocumentError::at(place, format!("{name:?} is not a kind of isolation: {SANDBOXES}"))),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
