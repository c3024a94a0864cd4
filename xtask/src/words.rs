//! `check-words`: counts riddles and avoided words per crate, and compares the counts with the numbers that are allowed.
//!
//! ```text
//!  sources ─▶ doc comments   ─▶ riddles, avoided words
//!          ─▶ other comments ─▶ avoided words
//!          ─▶ literals       ─▶ avoided words in messages  ─▶ compared with `words_allowed`, crate by crate
//!          ─▶ code           ─▶ avoided parts of names, and questions that a function does not answer
//! ```
//! A number of the table can only go down: the check fails when a crate has more, and when it has fewer, until the table
//! is lowered. Names that users see (flags, JSON keys, error codes, environment variables, files of the state directory)
//! must not change: a literal without a space is not a message, and what stands between backticks is not a sentence.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;
use crate::rust_text::{Text, code_only, comments_and_literals};
use crate::sources;
use crate::words_allowed::{ALLOWED, Counts};
use crate::words_list::{DECLARED, FILES, IN_NAMES, IN_SENTENCES, OF_OTHERS, QUESTIONS, WHOLE_NAMES};
use crate::workspace::Workspace;

/// Classes of findings, in the order of the fields of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A doc comment that does not say what the item is.
    Riddle,
    /// An avoided word in a comment.
    Comment,
    /// An avoided word in a message.
    Message,
    /// An avoided word in a name.
    Name,
}

/// One riddle or one avoided word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Class under which it is counted.
    pub kind: Kind,
    /// Line of the source, counted from 1.
    pub line: usize,
    /// The riddle, or the word with the word to use instead.
    pub text: String,
}

/// Compares every crate with the table.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let members = workspace.packages.iter().filter_map(|package| {
        let directory = package.manifest.parent()?.strip_prefix(&workspace.root).ok()?;
        directory.to_str()
    });
    let mut found = BTreeMap::new();
    for name in members.chain(ALLOWED.iter().map(|(name, _)| *name)) {
        found.insert(name, counted(workspace, name)?.0);
    }
    let differences = differences(&found, ALLOWED);
    if differences.is_empty() {
        println!("check-words: {} crates are as their numbers say", found.len());
        return Ok(());
    }
    Err(Failure::new(
        format!("the numbers of riddles and avoided words have changed:\n  {}", differences.join("\n  ")),
        "`cargo xtask check-words CRATE` lists them; write new text in plain words (docs/glossary.md), and lower a \
         number of xtask/src/words_allowed.rs that has become too large",
    ))
}

/// Runs the check, or lists the findings of the crates whose directories are named.
pub fn run(workspace: &Workspace, crates: &[String]) -> Result<(), Failure> {
    for name in crates {
        let (counts, lines) = counted(workspace, name)?;
        for line in lines {
            println!("{line}");
        }
        println!("{name}: {counts:?}");
    }
    if crates.is_empty() { check(workspace) } else { Ok(()) }
}

/// Returns the counts of the crate in a directory, and one line for each finding.
fn counted(workspace: &Workspace, directory: &str) -> Result<(Counts, Vec<String>), Failure> {
    let (mut counts, mut lines) = (Counts::default(), Vec::new());
    for source in sources::below(&workspace.root, Path::new(directory))? {
        let is_list = source.path.ends_with("words_list.rs") || source.path.ends_with("words_tests.rs");
        let path = source.path.strip_prefix(directory).unwrap_or(&source.path);
        for finding in if is_list { Vec::new() } else { findings(path, &source.text) } {
            counts.add(finding.kind);
            lines.push(format!("{}:{}: {:?}: {}", source.path.display(), finding.line, finding.kind, finding.text));
        }
    }
    Ok((counts, lines))
}

impl Counts {
    fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Riddle => self.riddles += 1,
            Kind::Comment => self.comments += 1,
            Kind::Message => self.messages += 1,
            Kind::Name => self.names += 1,
        }
    }

    fn each(self) -> [(&'static str, usize); 4] {
        [
            ("riddles", self.riddles),
            ("words in comments", self.comments),
            ("words in messages", self.messages),
            ("words in names", self.names),
        ]
    }
}

/// Describes each number that is not the one of the table. A crate that the table lacks has zeros.
pub fn differences(found: &BTreeMap<&str, Counts>, allowed: &[(&str, Counts)]) -> Vec<String> {
    let mut all = Vec::new();
    for (name, found) in found {
        let allowed = allowed.iter().find(|(known, _)| known == name).map(|(_, counts)| *counts).unwrap_or_default();
        for ((what, found), (_, allowed)) in found.each().into_iter().zip(allowed.each()) {
            if found > allowed {
                all.push(format!("{name}: {found} {what}, and at most {allowed} are allowed"));
            } else if found < allowed {
                all.push(format!("{name}: {found} {what}: lower the number {allowed} to {found}"));
            }
        }
    }
    all
}

/// Returns every riddle and avoided word of one source. Of tests, the messages do not count, and of their names only
/// those of the test functions do.
///
/// `path` is relative to the directory of the crate.
pub fn findings(path: &Path, source: &str) -> Vec<Finding> {
    let texts = comments_and_literals(source);
    let is_test = path.starts_with("tests") || path.ends_with("tests.rs") || stem(path).ends_with("_tests");
    let is_module = |line: &str| line.trim_start().starts_with("mod tests {");
    let product_lines = if is_test { 0 } else { source.lines().position(is_module).unwrap_or(usize::MAX) };
    let mut found = Vec::new();
    for (start, comment) in comments(&texts) {
        if start != "//" && is_riddle(&comment.text) {
            let first = comment.text.lines().next().unwrap_or_default();
            found.push(Finding { kind: Kind::Riddle, line: comment.line, text: first.to_owned() });
        }
        add_words(&mut found, Kind::Comment, comment.line, &without_code(&comment.text));
    }
    for text in texts.iter().filter(|text| text.line <= product_lines && is_message(&text.text)) {
        add_words(&mut found, Kind::Message, text.line, &without_code(&text.text));
    }
    let mut is_test_function = false;
    let code_only = code_only(source);
    let lines: Vec<&str> = code_only.lines().collect();
    for (line, code) in (1..).zip(&lines) {
        if line <= product_lines {
            add_names(&mut found, line, code);
            found.extend(unanswered(&lines[line - 1..]).map(|name| {
                let text = format!("{name} → a verb: it answers nothing");
                Finding { kind: Kind::Name, line, text }
            }));
        } else if let Some((_, function)) = code.split_once("fn ").filter(|_| is_test_function) {
            add_names(&mut found, line, function.split('(').next().unwrap_or_default());
        }
        let attribute = code.trim_start();
        is_test_function = attribute.starts_with("#[") && (is_test_function || attribute.contains("test"));
    }
    if let (false, Some((_, better))) = (is_test, FILES.iter().find(|(avoided, _)| *avoided == stem(path))) {
        found.push(Finding { kind: Kind::Name, line: 1, text: format!("{} → {better}", path.display()) });
    }
    found
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// Joins the lines of each comment, without slashes, and returns it with the slashes that begin its lines. Literals and
/// lines of four slashes are left out.
fn comments(texts: &[Text]) -> Vec<(&str, Text)> {
    let mut found: Vec<(&str, Text, usize)> = Vec::new();
    for text in texts {
        let start = ["///", "//!", "//", "/*"].into_iter().find(|start| text.text.starts_with(start));
        let Some((start, rest)) = start.and_then(|start| Some((start, text.text.strip_prefix(start)?))) else {
            continue;
        };
        match found.last_mut() {
            _ if start == "///" && rest.starts_with('/') => {}
            Some((same, block, last)) if *same == start && start != "/*" && *last + 1 == text.line => {
                block.text.push('\n');
                block.text.push_str(rest.trim());
                *last = text.line;
            }
            _ => {
                let start = if start == "/*" { "//" } else { start };
                found.push((start, Text { line: text.line, text: rest.trim().to_owned() }, text.line));
            }
        }
    }
    found.into_iter().map(|(start, block, _)| (start, block)).collect()
}

/// Returns whether a doc comment leaves the reader with a question: it begins with one, or has at most two words.
fn is_riddle(doc: &str) -> bool {
    let mut words = doc.split_whitespace();
    let first = words.next().unwrap_or_default().trim_matches(|letter: char| !letter.is_alphanumeric());
    QUESTIONS.contains(&first.to_lowercase().as_str()) || words.count() < 2
}

/// Returns whether a literal is a message: text of two words or more, and not a character.
fn is_message(literal: &str) -> bool {
    let is_text = literal.ends_with(['"', '#']) && !literal.starts_with('/');
    is_text && literal.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count() > 1
}

/// Replaces what stands between backticks with one letter, so that code is not read as a sentence.
fn without_code(text: &str) -> String {
    let unfenced: String = text.split("```").step_by(2).collect();
    unfenced.split('`').step_by(2).collect::<Vec<_>>().join("x")
}

fn add_words(found: &mut Vec<Finding>, kind: Kind, line: usize, text: &str) {
    let lower = text.to_lowercase();
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    let sentence: Vec<&str> = lower.split(|letter| !is_part(letter)).filter(|word| !word.is_empty()).collect();
    for (avoided, better) in IN_SENTENCES {
        let words: Vec<&str> = avoided.split(' ').collect();
        // "there is no", "is no longer" and "is no more than" are English.
        let times = sentence.windows(words.len()).enumerate().filter(|(at, window)| {
            let before = at.checked_sub(1).and_then(|before| sentence.get(before));
            let next = sentence.get(at + words.len());
            let is_english = before == Some(&"there") || matches!(next, Some(&("longer" | "more" | "less")));
            *window == words && !(words.last() == Some(&"no") && is_english)
        });
        found.extend(times.map(|_| Finding { kind, line, text: format!("{avoided} → {better}") }));
    }
}

fn add_names(found: &mut Vec<Finding>, line: usize, code: &str) {
    for name in code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
        if OF_OTHERS.contains(&name) {
            continue;
        }
        let whole = WHOLE_NAMES.iter().find(|(avoided, _)| *avoided == name);
        let whole = whole.or_else(|| DECLARED.iter().find(|(avoided, _)| *avoided == name && declares(code, name)));
        let parts = parts_of(name);
        let part = IN_NAMES.iter().find(|(avoided, _)| {
            let in_constant = !matches!(*avoided, "most" | "least") || name.chars().all(|l| !l.is_lowercase());
            in_constant && parts.iter().any(|part| part == avoided)
        });
        if let Some((_, better)) = whole.or(part) {
            found.push(Finding { kind: Kind::Name, line, text: format!("{name} → {better}") });
        }
    }
}

/// Returns the name of the function that begins in the first line if it reads as a question and the function returns no answer. That
/// something may not be is an answer, given as an error, but not by a function that changes its object.
fn unanswered<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let (_, rest) = lines.first()?.split_once("fn ")?;
    let name = rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next()?;
    if !["is_", "has_", "was_", "may_", "can_"].iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let mut signature = String::new();
    for line in lines {
        signature.push_str(line.split('{').next().unwrap_or_default());
        if line.contains('{') || line.trim_end().ends_with(';') {
            break;
        }
    }
    let answer = signature.rsplit_once("->").map_or("", |(_, answer)| answer.trim());
    (answer.is_empty() || answer == "()" || (answer.contains("Result<()") && signature.contains("&mut self")))
        .then_some(name)
}

/// Returns whether a line of code makes a name that stands for a type or a module, or gives one another name.
fn declares(code: &str, name: &str) -> bool {
    let words: Vec<&str> = code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).collect();
    let makes = |word: &str| matches!(word, "struct" | "enum" | "union" | "trait" | "type" | "mod" | "as");
    words.windows(2).any(|pair| makes(pair[0]) && pair[1] == name)
}

/// Splits a name at its underscores and capital letters, in lower case.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_small = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && after_small) {
            parts.push(String::new());
        }
        if let (false, Some(part)) = (letter == '_', parts.last_mut()) {
            part.extend(letter.to_lowercase());
        }
        after_small = letter.is_lowercase();
    }
    parts
}
