//! A document while it is put together. Every rule is read as the document's reader will read it.

use super::form::{LeftOut, Wanted};
use crate::command::Commands;
use crate::document::{Answer, CommandRule, PathPattern};
use crate::net::{Source, parse_allow, parse_deny};
use std::fmt::Write as _;

/// A rule about commands.
#[derive(Debug)]
struct Command {
    answer: Answer,
    rule: String,
    matches: Vec<String>,
    not_matches: Vec<String>,
}

/// The parts so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// `net.allow`, if the rules close everything else.
    pub allow: Option<Vec<String>>,
    deny: Vec<String>,
    /// `fs.read`, if the rules close everything else.
    pub read: Option<Vec<String>>,
    /// `fs.write`, if the rules close everything else.
    pub write: Option<Vec<String>>,
    hidden: Vec<String>,
    exec: Option<Answer>,
    commands: Vec<Command>,
    pub left_out: Vec<LeftOut>,
}

/// A list of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paths {
    Read,
    Write,
    Deny,
}

impl Draft {
    /// Reports a rule that is not carried over, or not exactly.
    pub fn leave_out(&mut self, what: &str, why: impl Into<String>) {
        self.left_out.push(LeftOut { what: what.chars().take(200).collect(), why: why.into() });
    }

    /// Adds a destination that may be reached.
    pub fn allow(&mut self, what: &str, rule: String) {
        match parse_allow(&rule, Source::flag(rule.as_str())) {
            Ok(_) => push(self.allow.get_or_insert_default(), rule),
            Err(error) => self.leave_out(what, error.to_string()),
        }
    }

    /// Adds a destination that stays closed.
    pub fn deny(&mut self, what: &str, rule: String) {
        match parse_deny(&rule, Source::flag(rule.as_str())) {
            Ok(_) => push(&mut self.deny, rule),
            Err(error) => self.leave_out(what, error.to_string()),
        }
    }

    /// Adds a path to a list.
    pub fn path(&mut self, what: &str, pattern: Result<String, String>, to: Paths) {
        let read = pattern.and_then(|pattern| match PathPattern::parse(&pattern) {
            Ok(_) => Ok(pattern),
            Err(error) => Err(error.to_string()),
        });
        match (read, to) {
            (Ok(pattern), Paths::Read) => push(self.read.get_or_insert_default(), pattern),
            (Ok(pattern), Paths::Write) => push(self.write.get_or_insert_default(), pattern),
            (Ok(pattern), Paths::Deny) => push(&mut self.hidden, pattern),
            (Err(why), _) => self.leave_out(what, why),
        }
    }

    /// Sets the answer about every command; the strictest holds.
    pub fn exec(&mut self, answer: Answer) {
        self.exec = Some(self.exec.map_or(answer, |known| known.max(answer)));
    }

    /// Adds a rule about commands with its examples. An example that does not hold here is reported.
    pub fn command(&mut self, what: &str, answer: Answer, rule: &str, examples: [&[String]; 2]) {
        let read = match CommandRule::parse(rule) {
            Ok(read) => read,
            Err(why) => return self.leave_out(what, why),
        };
        let matches = |line: &String| {
            let commands = Commands::of_line(line);
            if answer == Answer::Skip { read.matches_all(&commands) } else { read.matches_some(&commands) }
        };
        let mut kept = [Vec::new(), Vec::new()];
        for (at, wanted) in [(0, true), (1, false)] {
            for line in examples[at] {
                if matches(line) == wanted && !line.trim().is_empty() {
                    kept[at].push(line.clone());
                } else {
                    self.leave_out(line, format!("this example of {what} does not hold here"));
                }
            }
        }
        let [matches, not_matches] = kept;
        self.commands.push(Command { answer, rule: rule.to_owned(), matches, not_matches });
    }

    /// Returns the document.
    pub fn text(&self, wanted: Wanted<'_>) -> String {
        let mut out = format!("policy: nexus.policy/1\nid: {}\nlevel: {}\n", quoted(wanted.id), wanted.level.word());
        let lists = [("allow", self.allow.as_deref()), ("deny", some(&self.deny))];
        section(&mut out, "net", &lists);
        let lists = [("read", self.read.as_deref()), ("write", self.write.as_deref()), ("deny", some(&self.hidden))];
        section(&mut out, "fs", &lists);
        if let Some(answer) = self.exec {
            let _written = writeln!(out, "approval:\n  exec: {}", answer.word());
        }
        if !self.commands.is_empty() {
            out.push_str("commands:\n");
        }
        for answer in [Answer::Skip, Answer::NeedsApproval, Answer::Forbidden] {
            let mut rules = self.commands.iter().filter(|command| command.answer == answer).peekable();
            if rules.peek().is_some() {
                let _written = writeln!(out, "  {}:", answer.word());
            }
            for command in rules {
                let _written = writeln!(out, "    - rule: {}", quoted(&command.rule));
                for (name, list) in [("match", &command.matches), ("not_match", &command.not_matches)] {
                    if !list.is_empty() {
                        let list: Vec<String> = list.iter().map(|line| quoted(line)).collect();
                        let _written = writeln!(out, "      {name}: [{}]", list.join(", "));
                    }
                }
            }
        }
        out
    }
}

fn push(list: &mut Vec<String>, rule: String) {
    if !list.contains(&rule) {
        list.push(rule);
    }
}

fn some(list: &[String]) -> Option<&[String]> {
    (!list.is_empty()).then_some(list)
}

fn section(out: &mut String, name: &str, lists: &[(&str, Option<&[String]>)]) {
    let given: Vec<_> = lists.iter().filter_map(|(key, list)| Some((key, (*list)?))).collect();
    if given.is_empty() {
        return;
    }
    let _written = writeln!(out, "{name}:");
    for (key, list) in given {
        if list.is_empty() {
            let _written = writeln!(out, "  {key}: []");
            continue;
        }
        let _written = writeln!(out, "  {key}:");
        for rule in list {
            let _written = writeln!(out, "    - {}", quoted(rule));
        }
    }
}

/// Returns a text as YAML reads it back: quoted, everything but printable ASCII as a number.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            other => {
                let _written = write!(out, "\\U{:08x}", u32::from(other));
            }
        }
    }
    out.push('"');
    out
}
